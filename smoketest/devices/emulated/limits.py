"""What the backend refuses or changes beyond missing kernels, where the profile says so.

Each limit is data of the profile, with source and grade. One that is graded [PRE] only is noted when a tensor it speaks
of is made, and computed on as on the CPU; `EmulatedDevice.strict_limits` makes all of them act.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from smoketest.devices.emulated.compat import Overload
from smoketest.devices.emulated.crossing import to_cpu, to_neuron
from smoketest.operators.profile import Limit, OperatorProfile

__all__ = ["Limits"]

_NARROWER = {"float64": (torch.float64, torch.float32), "int64": (torch.int64, torch.int32)}
_LAYOUTS = (torch.channels_last, torch.channels_last_3d)


class Limits:
    """The limits of one profile, and which of them were met.

    Args:
        profile: holds them.

    Attributes:
        narrowing: what 64-bit dtypes are computed as, where those limits act; empty where none does;
            always the same dict.
    """

    def __init__(self, profile: OperatorProfile) -> None:
        self._known: dict[str, Limit] = {limit.what: limit for limit in profile.limits}
        self._met: set[str] = set()
        self._strict = False
        self.narrowing: dict[torch.dtype, torch.dtype] = {}
        self._choose()

    @property
    def strict(self) -> bool:
        """Whether all limits act, whatever their grade."""
        return self._strict

    @strict.setter
    def strict(self, on: bool) -> None:
        self._strict = on
        self._choose()

    def _choose(self) -> None:
        self.narrowing.clear()
        self.narrowing.update(pair for what, pair in _NARROWER.items() if self.acts(what))

    @property
    def met(self) -> list[Limit]:
        """The limits that tensors of this process met, acting or not."""
        return [limit for what, limit in self._known.items() if what in self._met]

    def acts(self, what: str) -> bool:
        """Whether a limit changes what is computed."""
        limit = self._known.get(what)
        return limit is not None and (self._strict or limit.grade != "PRE")

    def making(self, size: Sequence[int], dtype: torch.dtype | None, memory_format: torch.memory_format | None) -> None:
        """A tensor is made on the device.

        Raises:
            RuntimeError: it is to have a memory format the backend refuses, and that limit acts.
        """
        if dtype is torch.float64 and len(size):
            self._met.add("float64")
        if memory_format in _LAYOUTS:
            self._met.add("memory_format")
            if self.acts("memory_format"):
                raise RuntimeError("empty: Neuron tensors only support contiguous or preserve memory format")

    def narrowed(self, op: Overload, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel as it computes under the limits that act on dtypes: 64-bit values go in and out as 32-bit ones.

        0-dim inputs are left alone, as the backend leaves them; what the op writes into is narrowed when it is done.
        """
        written = {
            argument.name if argument.kwarg_only else index
            for index, argument in enumerate(op._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        }

        def limited(*args: Any, **kwargs: Any) -> Any:
            dtypes = self.narrowing

            def narrow(x: Any) -> Any:
                narrower = dtypes.get(x.dtype) if isinstance(x, Tensor) and x.dim() and not x.is_cpu else None
                return x if narrower is None else to_neuron(to_cpu(x).to(narrower).to(x.dtype))

            result = kernel(
                *(x if index in written else tree_map(narrow, x) for index, x in enumerate(args)),
                **{name: x if name in written else tree_map(narrow, x) for name, x in kwargs.items()},
            )
            for x in tree_leaves(result):
                if isinstance(x, Tensor) and x.dtype in dtypes and not x.is_cpu:
                    alias = to_cpu(x)
                    alias.copy_(alias.to(dtypes[x.dtype]))
            return result

        return limited
