"""A kernel of the device that fails: what the backend does then, for kernels that are made to fail.

The second of the backend's two ways to the CPU ([PRE] ``Operation.__call__``, internals 2.2 and 2.4): the op has
a kernel, and compiling or running it failed. ``TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS=1`` forbids this
way, and only this. The emulated device has no failing kernels of its own; `EmulatedDevice.inject_failure` makes some.
Nor has it kernels that compute wrongly: `EmulatedDevice.inject_fault` makes those, and nothing recovers from them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from torch import Tensor

from smoketest.devices.emulated.compat import dispatch_keys
from smoketest.devices.emulated.tracker import Tracker
from smoketest.operators.profile import OperatorProfile

__all__ = ["INJECTED", "STRICT", "Recovery"]

STRICT = "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS"
"""[PUB] env-vars page; unset counts as 0, the default of release builds ([PRE] ``_build_config.py``)."""

INJECTED = "failure injected into the emulated kernel"

_IMPLEMENTATIONS = {"torch_mlir": "ImplementationWrapper", "neuron_op": "PriorityImpl"}
"""Class names seen in messages ([PRE] internals 2.2); those of hand-written kernels are not known."""

_op_logger = logging.getLogger("torch_neuronx.python_ops.torch_mlir.op_impl")


class Recovery:
    """What happens to an op whose kernel is made to fail.

    Args:
        profile: says how an op is registered, and under which name it is recorded.
        tracker: told what runs on the CPU.
    """

    def __init__(self, profile: OperatorProfile, tracker: Tracker) -> None:
        self._profile = profile
        self._tracker = tracker
        self._said: set[str] = set()

    def run(self, name: str, kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``kernel`` as the backend's recovery does: log, then compute on the CPU or raise.

        Raises:
            RuntimeError: `STRICT` is 1, in the words of the backend.
            NotImplementedError: an op the backend's recovery does not find on the CPU: the overload is part of the name
                it looks up (``gather.out``, ``scatter_add.out``).
        """
        fault = self._tracker.faults.get(name)
        if fault is not None:  # nobody notices
            self._tracker.ran(name)
            return fault(kernel, args, kwargs)
        registered = self._profile.registered_by.get(name, "")
        implementation = _IMPLEMENTATIONS.get(registered, "unknown")
        bare = self._profile.recovered_as.get(name)
        op = bare or name.removeprefix("aten::").partition(".")[0]
        inputs = f"Args: [{_described(args, kwargs)[0]}]. Kwargs: [{_described(args, kwargs)[1]}]"
        details = f"{implementation}: {INJECTED}"
        strict = os.environ.get(STRICT) == "1"  # the backend reads it at every failure
        if registered == "torch_mlir":
            _op_logger.debug("Execution failed: %s", INJECTED)
        self._once(logging.DEBUG, f"Neuron implementation {implementation} failed: {INJECTED}")
        self._once(
            logging.ERROR if strict else logging.DEBUG,
            f"No implementation could handle operation {op}. Falling back on CPU. {inputs}. Details: {details}",
        )
        if strict:
            raise RuntimeError(
                f"CPU fallback disabled because {STRICT}=1. Operation {op} failed to execute on Neuron "
                f"(last implementation: {implementation}). Details: {details}. {inputs}"
            )
        if "." in op:
            raise NotImplementedError(f"Operation {op} is not implemented for Neuron")
        recorded = bare or name
        self._tracker.fell_back(recorded, f"Operator '{recorded}' fell back to CPU")
        return kernel(*args, **kwargs)

    def _once(self, level: int, text: str) -> None:
        """Through the root logger, each distinct text once per process ([PRE] internals 2.7)."""
        if text not in self._said:
            self._said.add(text)
            logging.log(level, text)


def _described(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    """Positional and keyword arguments as the backend's messages list them."""
    return (
        ", ".join(f"arg{index}: {_one(value)}" for index, value in enumerate(args)),
        ", ".join(f"{name}: {_one(value)}" for name, value in kwargs.items()),
    )


def _one(value: Any) -> str:
    if not isinstance(value, Tensor):
        return str(value)
    return (
        f"Tensor(shape={value.shape}, dtype={value.dtype}, device={value.device}, "
        f"dispatch keys: {dispatch_keys(value)})"
    )
