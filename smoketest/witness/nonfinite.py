"""Which op made the first value that is not finite: a dispatch mode for a step that is made again for it.

Every op's results are looked at, and from where, among its arguments, a NaN or an infinity came. Afterwards the chain
is walked back from the loss or a gradient: an infinity that a mask puts there on purpose and a softmax takes away again
is on no such chain.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from smoketest.findings.report import Phase
from smoketest.witness.context import Context
from smoketest.witness.modes import WatchingMode, tensors_of
from smoketest.witness.sites import Line, Origins

__all__ = ["Maker", "NonFinite"]


@dataclass(frozen=True, eq=False)
class Maker:
    """An op whose result is not finite.

    Attributes:
        op: overload name as dispatched.
        phase: of the step.
        module: in whose forward, or for which, it ran.
        line: the user's.
        is_nan: whether a NaN is among the values; else infinities only.
        is_meant: whether code put the infinities there: as a number (a mask filled with -inf), or in a tensor that was
            there before the step.
        out_of: what went into it, in words.
        came_from: the ops that made those of its arguments that are not finite either.
    """

    op: str
    phase: Phase | None
    module: str | None
    line: Line | None
    is_nan: bool
    is_meant: bool
    out_of: str
    came_from: tuple[Maker, ...]

    def first(self) -> Maker:
        """The op that made it, as far back as there is one; infinities that are meant to be there are none."""
        here = self
        while True:
            before = [maker for maker in here.came_from if not maker.is_meant]
            if not before:
                return here
            here = max(before, key=lambda maker: maker.is_nan)


class NonFinite(WatchingMode):  # type: ignore[no-untyped-call]
    """Looks at what each op makes while entered; it reads every result, so it is slow and waits for the device.

    Tensors are told apart by their memory: a view of a NaN is that NaN. What an op writes into a part of some memory
    does not take away what the rest holds.

    Args:
        origins: finds module and line of an op.
        context: says in which phase the step is.
    """

    def __init__(self, origins: Origins, context: Context) -> None:
        super().__init__()
        self._origins = origins
        self._context = context
        self._makers: dict[int, Maker] = {}
        self._alive: list[Any] = []  # storages, so that no address is given away
        self._lock = threading.Lock()

    def maker_of(self, tensor: Tensor) -> Maker | None:
        """The op that made the first such value in a tensor's history; None where all was finite, or nobody looked."""
        maker = self._makers.get(_memory(tensor))
        return None if maker is None else maker.first()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` as it is, and look at what it makes."""
        kwargs = kwargs or {}
        if func.namespace == "profiler" or self._context.phase == "setup":
            return func(*args, **kwargs)
        op: str = func.name()
        given = list(tensors_of((*args, *kwargs.values())))
        origin = self._origins.of(op, any(tensor.requires_grad for tensor in given))
        for tensor in given:
            if tensor.requires_grad and tensor.is_leaf:
                self._origins.used(tensor, origin)
        known = (self._makers.get(_memory(tensor)) for tensor in given)
        came_from = tuple(dict.fromkeys(before for before in known if before is not None))
        result = func(*args, **kwargs)
        if op.partition(".")[0] in _ARBITRARY:
            return result
        for tensor in tensors_of((result,)):
            state = _state(tensor)
            out_of, is_meant = _given(given, args, kwargs, came_from) if state is not None else ("", False)
            with self._lock:
                if state is not None:
                    phase, is_nan = origin.phase(self._context), state == "nan"
                    self._makers[_memory(tensor)] = Maker(
                        op, phase, origin.module, origin.line, is_nan, is_meant and not is_nan, out_of, came_from
                    )
                    self._alive.append(tensor)
                elif tensor.nbytes == _whole(tensor):
                    self._makers.pop(_memory(tensor), None)
        return result


_ARBITRARY = frozenset({"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::resize_",
                        "aten::new_empty_strided"})  # fmt: skip
"""Whose results hold whatever was in memory."""


def _given(given: list[Tensor], args: Any, kwargs: Any, came_from: tuple[Maker, ...]) -> tuple[str, bool]:
    """What went into an op whose result is not finite, and whether the infinities in it are meant."""
    if came_from:
        known = "a NaN" if any(maker.is_nan for maker in came_from) else "infinities"
        return known, all(maker.is_meant for maker in came_from)
    if any(isinstance(value, float) and math.isinf(value) for value in (*args, *kwargs.values())):
        return "an infinite number in the code", True
    states = {_state(tensor) for tensor in given}
    if "nan" in states:
        return "a NaN that was there before the step", False
    return ("infinities that were there before the step", True) if "inf" in states else ("finite values", False)


def _state(tensor: Tensor) -> str | None:
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return None
    if bool(tensor.isfinite().all()):
        return None
    return "nan" if bool(tensor.isnan().any()) else "inf"


def _memory(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # no storage: sparse, or a subclass
        return id(tensor)


def _whole(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):
        return -1
