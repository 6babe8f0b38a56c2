"""The names recorded for every ATen overload that PyTorch's own operator samples reach, against the registry's.

    python tests/devices/recorded_names.py [--samples N] [NAME ...]

Samples are run forward and backward; an overload that is dispatched is called in its other forms too: functional,
in-place, ``out=``. What the device records for each call is compared with ``registry_2026_04.json``. Ends with
``N overloads called, N agree, N unknown to the registry, 0 differ``, and with 1 if it does not.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from opinfo import op_db
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from smoketest.devices.emulated import EmulatedDevice
from smoketest.operators.functional import forms

DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
DIFFERENTIABLE = (torch.float32, torch.complex64)
REGISTRY: dict[str, Any] = json.loads((Path(__file__).parent / "registry_2026_04.json").read_text())

NOT_ON_THE_DEVICE = (
    "jiterator_",  # CUDA only
    "sparse.",  # sparse layouts have dispatch keys of their own
    "tril_indices",  # takes no tensor: the sample's device is the CPU
    "triu_indices",
)

COMPOSED = ("aten::all.dims", "aten::any.dims")
"""PyTorch has a composite kernel for every backend beside the structured form that the registry goes by: what is
recorded is what that one calls (`all.dim`, `any.dim`, which the device has)."""


@dataclass
class Seen:
    """What the device recorded: for each overload called, a set of names for each call; and what it executed."""

    recorded: dict[str, list[frozenset[str]]] = field(default_factory=dict)
    executed: set[str] = field(default_factory=set)

    def expected(self, overload: str) -> set[str] | None:
        """What the registry says is recorded; None where it says nothing."""
        if overload in REGISTRY["native"] or overload in REGISTRY["native_via_out"]:
            return set()
        name = None if overload in COMPOSED else REGISTRY["recorded"].get(overload)
        return None if name is None else {name}

    def differences(self, silent: Iterable[str]) -> dict[str, str]:
        """Overloads whose names are not those of the registry, and what is.

        Args:
            silent: names that the view whitelist keeps out of the tracker.
        """
        known = set(REGISTRY["recorded"].values())
        found = {}
        for overload, calls in self.recorded.items():
            expected = self.expected(overload)
            for names in calls:
                if expected is None:  # a composite: whatever it comes to must be a name of the registry
                    if names - known:
                        found[overload] = f"recorded {sorted(names - known)}"
                elif names != expected - set(silent):
                    found[overload] = f"recorded {sorted(names)}, the registry says {sorted(expected)}"
        return found


class Watch(TorchDispatchMode):
    """Calls each overload that is dispatched, and its other forms, with an empty tracker."""

    def __init__(self, device: EmulatedDevice, seen: Seen) -> None:
        super().__init__()
        self.device, self.seen = device, seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        first = func.name() not in self.seen.recorded
        kept = _copied((args, kwargs)) if first else None
        result = self.call(func, args, kwargs)
        for form in all_forms(func) if kept is not None else ():
            if form.name() not in self.seen.recorded:  # type: ignore[no-untyped-call]
                with contextlib.suppress(RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
                    called = arguments(form, func, *_copied(kept), result)
                    if called is not None:
                        self.call(form, *called)
        return result

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call an overload and keep what is recorded; a call refused before anything ran leaves nothing."""
        self.device.clear_op_tracking()
        returned, result = False, None
        try:
            result = func(*args, **kwargs)
            returned = True
        finally:
            names = frozenset(self.device.get_fallback_ops())
            if names or (returned and on_the_device(args, kwargs, result)):
                self.seen.recorded.setdefault(func.name(), []).append(names)
                self.seen.executed.update(self.device.get_executed_ops())
        return result


def on_the_device(*values: Any) -> bool:
    """Whether a tensor of the device is among them: some samples compute pieces of theirs on the CPU."""
    return any(isinstance(value, Tensor) and value.device.type == "neuron" for value in tree_leaves(values))


def all_forms(func: Any) -> Iterator[Any]:
    """Functional, ``out=`` and in-place forms of an overload, itself left out."""
    yield from (form for form in forms(func) if form is not func)
    namespace, _, base = func._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), f"{base}_", None)
    for which in packet.overloads() if packet is not None else ():
        form = getattr(packet, which)
        if _read(form) == _read(func):
            yield form


def _read(op: Any) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in op._schema.arguments if not (a.kwarg_only and _writes(a))]


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def arguments(form: Any, func: Any, args: Any, kwargs: Any, result: Any) -> tuple[list[Any], dict[str, Any]] | None:
    """What to call another form with, from a call and its result; None where that does not tell it."""
    given = {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)} | kwargs
    results = iter(result if isinstance(result, (tuple, list)) else [result])
    positional: list[Any] = []
    keyword: dict[str, Any] = {}
    for a in form._schema.arguments:
        if a.kwarg_only and _writes(a):
            like = next(results, None)
            if not isinstance(like, Tensor):
                return None
            keyword[a.name] = torch.empty_like(like)
        elif a.name not in given and not a.has_default_value():
            return None
        elif a.kwarg_only and a.name in given:
            keyword[a.name] = given[a.name]
        elif not a.kwarg_only:
            positional.append(given.get(a.name, a.default_value))
    return positional, keyword


def _copied(value: Any) -> Any:
    return tree_map(lambda x: x.detach().clone() if isinstance(x, Tensor) and x.device.type == "neuron" else x, value)


def sweep(device: EmulatedDevice, samples: int | None = 1, names: Iterable[str] = ()) -> Seen:
    """Run the samples of all ops, or of the named ones, and see what is recorded."""
    seen, wanted = Seen(), set(names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, about deprecated or experimental ops
        for op in op_db:
            if op.name.startswith(NOT_ON_THE_DEVICE) or (wanted and op.name not in wanted):
                continue
            for dtype in DTYPES:
                if dtype in op.supported_dtypes("cpu"):
                    _run(op, dtype, samples, device, seen)
    return seen


def _run(op: Any, dtype: torch.dtype, samples: int | None, device: EmulatedDevice, seen: Seen) -> None:
    backward = op.supports_autograd and dtype in DIFFERENTIABLE and dtype in op.supported_backward_dtypes("cpu")
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=backward), samples):
        value, args, kwargs = tree_map(_moved, (sample.input, sample.args, sample.kwargs))
        # Recorded before it runs, so that an op that raises is recorded too.
        with (
            Watch(device, seen),
            contextlib.suppress(RuntimeError, NotImplementedError, TypeError, ValueError, IndexError),
        ):
            out = [x for x in tree_leaves(op(value, *args, **kwargs)) if isinstance(x, Tensor) and x.requires_grad]
            if backward and out:
                sum((x.abs() if x.is_complex() else x).sum() for x in out).backward()  # type: ignore[union-attr]


def _moved(x: Any) -> Any:
    if not (isinstance(x, Tensor) and x.layout is torch.strided):
        return x
    return x.detach().to("neuron").requires_grad_(x.requires_grad)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="only these ops")
    parser.add_argument("--samples", type=int, help="of each op and dtype; all of them when absent")
    given = parser.parse_args()

    import smoketest

    torch.set_num_threads(1)
    device = smoketest.emulate(warn=False)
    seen = sweep(device, given.samples, given.names)
    differing = seen.differences(device.profile.view_whitelist)
    for overload, text in differing.items():
        sys.stdout.write(f"differ   {overload}: {text}\n")
    unknown = sum(seen.expected(overload) is None for overload in seen.recorded)
    agree = len(seen.recorded) - unknown - len(differing)
    sys.stdout.write(
        f"{len(seen.recorded)} overloads called, {agree} agree, {unknown} of which the registry names nothing, "
        f"{len(differing)} differ\n"
    )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
