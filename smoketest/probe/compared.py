"""Whether a compiled step gives what the eager one gives: NST208.

A tensor may differ from the eager one by the larger of two measures: a share of its size, by the coarsest dtype of the
step, and a multiple of what the eager step itself does where every parameter is off by a rounding error. The second is
measured: it is large where gradients cancel, and small everywhere else (docs/rules/NST208.md). Shares and multiple are
those of the comparison with plain CPU, `smoketest.witness.parity`, which this room does not import.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["Comparison", "Difference", "Values", "coarsest", "differences", "perturbed", "without_dropout"]

Values = Mapping[str, Tensor]
"""Tensors of a step on the CPU, by name: ``output 0``, ``gradient h.0.weight``."""

_SHARE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
_ROUNDING = 8.0


@dataclass(frozen=True)
class Difference:
    """A tensor that differs.

    Attributes:
        what: its name.
        error: distance by the eager one's size; infinite where it has another shape or is not finite.
        tolerated: the same for what would be near enough.
    """

    what: str
    error: float
    tolerated: float

    @property
    def module(self) -> str | None:
        """Of a gradient the module its parameter is of."""
        kind, _, name = self.what.partition(" ")
        return name.rpartition(".")[0] or None if kind == "gradient" else None

    def sentence(self, others: int = 0) -> str:
        """In words, with how many others differ too."""
        kind, _, name = self.what.partition(" ")
        of = f"the gradient of {name}" if kind == "gradient" else f"output {name} of the model"
        more = f"; so do {others} other tensors" if others else ""
        if math.isinf(self.error):
            return f"{of} has another shape, or values that are not finite, compiled and eager{more}"
        return (
            f"{of} differs from the eager one by {self.error:.2g} of its size, where {self.tolerated:.2g} is "
            f"tolerated{more}"
        )


@dataclass(frozen=True)
class Comparison:
    """What came of comparing two steps.

    Attributes:
        compared: how many tensors were.
        differences: those that differ.
        graphs: numbers of the forward graphs whose results differ from their own op-by-op ones, in order.
        not_checked: why something could not be compared, one clause each.
    """

    compared: int = 0
    differences: tuple[Difference, ...] = ()
    graphs: tuple[int, ...] = ()
    not_checked: tuple[str, ...] = ()

    @property
    def first(self) -> Difference | None:
        """The one to tell: an output before a gradient, which follows from it; the worst of its kind."""
        outputs = [found for found in self.differences if found.what.startswith("output")]
        return max(outputs or self.differences, key=lambda found: found.error / found.tolerated, default=None)


def coarsest(dtypes: Iterable[torch.dtype]) -> torch.dtype:
    """The coarsest of the floating-point dtypes; float32 where there is none."""
    known = [dtype for dtype in dtypes if dtype in _SHARE]
    return max(known, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)


def differences(
    eager: Values, compiled: Values, dtype: torch.dtype, rounded: Iterable[Values] = ()
) -> tuple[Difference, ...]:
    """The tensors of `eager` that `compiled` has too, and other values for.

    Args:
        eager: what is right.
        compiled: what is asked about.
        dtype: the coarsest floating-point dtype of the step.
        rounded: what the eager step gives with parameters off by a rounding error.
    """
    found = []
    noise = list(rounded)
    for name, right in eager.items():
        other = compiled.get(name)
        if other is None or not bool(right.isfinite().all()):
            continue
        size = _size(right)
        near = max([_SHARE[dtype] * size, *(_ROUNDING * _apart(right, values[name]) for values in noise)])
        apart = _apart(right, other)
        if apart > near:
            scale = size or 1.0
            found.append(Difference(name, apart / scale, near / scale or torch.finfo(torch.float32).tiny))
    return tuple(found)


def _size(x: Tensor) -> float:
    return float(_wide(x).norm())


def _apart(right: Tensor, other: Tensor) -> float:
    if right.shape != other.shape:
        return math.inf
    distance = float((_wide(other) - _wide(right)).norm())
    return distance if math.isfinite(distance) else math.inf


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


@contextmanager
def perturbed(model: nn.Module, dtype: torch.dtype, seed: int) -> Iterator[None]:
    """Every parameter off by half a unit of rounding of `dtype`, up or down; afterwards as they were."""
    unit = torch.finfo(dtype).eps / 2
    generator = torch.Generator().manual_seed(seed)
    parameters = [p for p in model.parameters() if p.is_floating_point()]
    before = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for p in parameters:
            signs = torch.randint(2, p.shape, generator=generator) * 2 - 1
            p.copy_((p.detach().cpu() * (1 + unit * signs)).to(p.dtype).to(p.device))
    try:
        yield
    finally:
        with torch.no_grad():
            for p, kept in zip(parameters, before, strict=True):
                p.copy_(kept)


_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """The model with every dropout switched off: modules of that name, and numbers that attention passes on."""
    changed: list[tuple[nn.Module, str, float]] = []
    for module in model.modules():
        for name, value in vars(module).items():
            is_rate = name == "p" and isinstance(module, _DROPOUTS)
            if isinstance(value, float) and (is_rate or "dropout" in name):
                changed.append((module, name, value))
    for module, name, _ in changed:
        setattr(module, name, 0.0)
    try:
        yield
    finally:
        for module, name, value in changed:
            setattr(module, name, value)
