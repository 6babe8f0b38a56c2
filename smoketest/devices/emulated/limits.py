"""What the backend refuses or changes beyond missing kernels, where the profile says so.

Each limit is data of the profile, with source and grade. One that is graded [PRE] only is noted when it is met, and
computed past as on the CPU; `EmulatedDevice.strict_limits` makes all of them act.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from smoketest.devices.emulated.compat import NAME, Overload
from smoketest.devices.emulated.crossing import to_cpu, to_neuron
from smoketest.operators.profile import Limit, OperatorProfile

__all__ = ["Limits"]

_NARROWER = {"float64": (torch.float64, torch.float32), "int64": (torch.int64, torch.int32)}
_LAYOUTS = (torch.channels_last, torch.channels_last_3d)
_OF_KERNELS = frozenset({"float64", "int64", "complex"})


class Limits:
    """The limits of one profile, and which of them were met.

    Args:
        profile: holds them.

    Attributes:
        acting: names of the limits that act and change how kernels compute; always the same set.
        forked: whether this process is a fork of the one that has the device.
    """

    def __init__(self, profile: OperatorProfile) -> None:
        self._known: dict[str, Limit] = {limit.what: limit for limit in profile.limits}
        self._met: set[str] = set()
        self._met_in_a_fork = mmap.mmap(-1, 1)  # shared with every forked child: it cannot tell otherwise
        self._strict = False
        self._narrowing: dict[torch.dtype, torch.dtype] = {}
        self.acting: set[str] = set()
        self.forked = False
        self._choose()
        os.register_at_fork(after_in_child=self._fork)

    def _fork(self) -> None:
        self.forked = True

    @property
    def strict(self) -> bool:
        """Whether all limits act, whatever their grade."""
        return self._strict

    @strict.setter
    def strict(self, on: bool) -> None:
        self._strict = on
        self._choose()

    def _choose(self) -> None:
        self.acting.clear()
        self.acting.update(what for what in _OF_KERNELS if self.acts(what))
        self._narrowing = dict(pair for what, pair in _NARROWER.items() if what in self.acting)

    @property
    def met(self) -> list[Limit]:
        """The limits that this process and its forks met, acting or not."""
        met = self._met | ({"fork"} if self._met_in_a_fork[0] else set())
        return [limit for what, limit in self._known.items() if what in met]

    def acts(self, what: str) -> bool:
        """Whether a limit changes what is computed."""
        limit = self._known.get(what)
        return limit is not None and (self._strict or limit.grade != "PRE")

    def _meet(self, what: str, refusal: str) -> None:
        if what in self._known:
            self._met.add(what)
            if self.acts(what):
                raise RuntimeError(refusal)

    def making(self, size: Sequence[int], dtype: torch.dtype | None) -> None:
        """A tensor is made on the device.

        Raises:
            RuntimeError: this process is a fork, and that limit acts ([PRE] wording, internals 5).
        """
        if dtype is torch.float64 and len(size):
            self._met.add("float64")
        elif dtype is not None and dtype.is_complex:
            self._met.add("complex")
        if self.forked and "fork" in self._known:
            self._met_in_a_fork[0] = 1
            self._meet(
                "fork",
                "Cannot re-initialize Neuron runtime in forked subprocess. To use Neuron with multiprocessing, use the "
                "'spawn' start method",
            )

    def made(self, result: Any) -> None:
        """An op on the CPU made something for the device."""
        if any(isinstance(x, Tensor) and x.is_complex() for x in tree_leaves(result)):
            self._met.add("complex")

    def laying_out(self, op: str, memory_format: torch.memory_format | None) -> None:
        """An op is asked for a memory format.

        Raises:
            RuntimeError: one that the backend refuses, and that limit acts ([PRE] wording, public facts 5).
        """
        if memory_format in _LAYOUTS:
            self._meet("memory_format", f"{op}: Neuron tensors only support contiguous or preserve memory format")

    def copying(self, source: Tensor, destination: Tensor) -> None:
        """``destination.copy_(source)``, one of them on the device.

        Raises:
            RuntimeError: a copy that the backend refuses, and that limit acts ([PRE] wordings, public facts 5).
        """
        if destination.is_cpu:
            return
        if source.is_cpu:
            if not destination.is_contiguous():
                self._meet("copy_destination", "Destination Neuron tensor must be contiguous")
        elif source.shape != destination.shape:
            self._meet("copy_size", "Neuron->Neuron copy with size mismatch is not supported")
        elif source.stride() != destination.stride():
            self._meet(
                "copy_layout",
                "Neuron->Neuron copy with layout change is not supported yet. Please make tensors contiguous first.",
            )

    def making_a_dual(self) -> None:
        """Forward-mode differentiation begins.

        Raises:
            NotImplementedError: that limit acts; the class is that of PyTorch's dispatcher, the backend's words are
                not known.
        """
        if "forward_ad" in self._known:
            self._met.add("forward_ad")
            if self.acts("forward_ad"):
                raise NotImplementedError(f"{NAME}: forward-mode automatic differentiation is not there on this device")

    def view_on_cpu(self) -> bool:
        """A view op runs on the CPU; whether its result has memory of its own, as it has on the device."""
        self._met.add("fallback_view")
        return self.acts("fallback_view")

    def narrowed(self, op: Overload, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel as it computes under the limits that act on dtypes: 64-bit values go in and out as 32-bit ones.

        0-dim inputs are left alone, as the backend leaves them; what the op writes into is narrowed when it is done.
        The kernel raises TypeError for a float64 ``out=`` of other inputs, RuntimeError for complex ones.
        """
        written = {
            argument.name if argument.kwarg_only else index
            for index, argument in enumerate(op._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        }

        def limited(*args: Any, **kwargs: Any) -> Any:
            narrowing = self._narrowing
            read = [x for index, x in enumerate(args) if index not in written]
            read += [x for name, x in kwargs.items() if name not in written]
            self._refuse(op, read, [x for name, x in kwargs.items() if name in written])

            def narrow(x: Any) -> Any:
                narrower = narrowing.get(x.dtype) if isinstance(x, Tensor) and x.dim() and not x.is_cpu else None
                return x if narrower is None else to_neuron(to_cpu(x).to(narrower).to(x.dtype))

            result = kernel(
                *(x if index in written else tree_map(narrow, x) for index, x in enumerate(args)),
                **{name: x if name in written else tree_map(narrow, x) for name, x in kwargs.items()},
            )
            for x in tree_leaves(result):
                if isinstance(x, Tensor) and x.dtype in narrowing and not x.is_cpu:
                    alias = to_cpu(x)
                    alias.copy_(alias.to(narrowing[x.dtype]))
            return result

        return limited

    def _refuse(self, op: Overload, read: list[Any], outs: list[Any]) -> None:
        """Raise where the backend refuses dtypes: [USER-B3] wording for complex, [PRE] base.py for float64."""
        inputs = [x for x in tree_leaves(read) if isinstance(x, Tensor) and not x.is_cpu]
        if "complex" in self.acting and any(x.is_complex() for x in inputs):
            raise RuntimeError(f"{op.name()}: complex dtypes are not supported natively on Neuron")  # type: ignore[no-untyped-call]
        if "float64" not in self.acting or any(x.dtype is torch.float64 for x in inputs):
            return
        if any(isinstance(x, Tensor) and x.dtype is torch.float64 for x in tree_leaves(outs)):
            raise TypeError("Output tensor has dtype float64 which is not supported on Neuron")
