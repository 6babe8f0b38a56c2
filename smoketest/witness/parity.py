"""Whether two records of the same step agree, and what differs first: NST106.

A tensor may differ from the reference by the larger of two measures: a share of its own size (`Tolerances.rtol`), and a
multiple (`Tolerances.rounding`) of what the reference itself does where every parameter is off by a rounding error. The
second is measured, not assumed: it is large where gradients cancel, where an optimizer makes a sign of a gradient
that is noise, or where a choice turns over, and small everywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from smoketest.findings.report import Phase
from smoketest.witness.digest import Digest, distance
from smoketest.witness.sites import Line

__all__ = [
    "Difference",
    "Seen",
    "Tolerances",
    "differences",
    "losses_apart",
    "precision",
    "relative_errors",
    "tolerances_for",
]

RTOL = {
    torch.float64: 1e-4,  # the device computes in float32
    torch.float32: 1e-4,
    torch.float16: 4e-3,
    torch.bfloat16: 2e-2,
}
"""About 800 units of rounding of float32, and 2.5 of bfloat16, whose sums are made in float32."""
ROUNDING = 8.0
"""How often the measured effect of rounding is tolerated. Healthy runs need 1 to 1.5 (tests/worker/healthy.py)."""


@dataclass(frozen=True)
class Tolerances:
    """How far from the reference is near enough.

    Attributes:
        dtype: the coarsest floating-point dtype of the step.
        rtol: share of a tensor's size.
        atol: per value, whatever the size.
        rounding: multiple of what rounding does to the tensor.
    """

    dtype: torch.dtype
    rtol: float
    atol: float = 0.0
    rounding: float = ROUNDING

    @property
    def unit(self) -> float:
        """Half the distance from 1 to the next number of `dtype`."""
        return torch.finfo(self.dtype).eps / 2


@dataclass(frozen=True)
class Seen:
    """One tensor of a step, in the order of the reference.

    Attributes:
        key: tells tensors apart; the same one in every record of the step.
        kind: value, gradient, update: tensors of one kind are of comparable size.
        what: words for it, such as ``the output of h.0.mlp``.
        module: to look at.
        phase: of the step.
        digest: of it.
        line: the user's line that called the module.
        stored: Euclidean norm of what the tensor is the change of: it is rounded to the units of that.
    """

    key: str
    kind: str
    what: str
    module: str | None
    phase: Phase
    digest: Digest
    line: Line | None = None
    stored: float = 0.0


@dataclass(frozen=True)
class Difference:
    """A tensor that differs.

    Attributes:
        seen: in the reference.
        error: distance by the reference's size; infinite where one of them is not finite or has another shape.
        tolerated: the same for what would be near enough.
    """

    seen: Seen
    error: float
    tolerated: float


def precision(dtypes: Iterator[torch.dtype] | set[torch.dtype]) -> torch.dtype:
    """The coarsest of the floating-point dtypes; float32 where there is none."""
    real = [dtype.to_real() for dtype in dtypes if dtype.is_floating_point or dtype.is_complex]
    known = [dtype for dtype in real if dtype in RTOL]
    return max(known, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)


def tolerances_for(
    dtype: torch.dtype, rtol: float | None = None, atol: float = 0.0, rounding: float = ROUNDING
) -> Tolerances:
    """The tolerances for a step whose coarsest dtype is `dtype`; `rtol` is that of the dtype where it is None."""
    return Tolerances(dtype, RTOL[dtype] if rtol is None else rtol, atol, rounding)


def differences(
    device: Mapping[str, Digest],
    reference: Sequence[Seen],
    tolerances: Tolerances,
    rounded: Sequence[Mapping[str, Digest]] = (),
) -> list[Difference]:
    """The tensors of the reference that the device has too, and other values for, in their order.

    Args:
        device: what the device gave, by key.
        reference: what the CPU gave.
        tolerances: how near is near enough.
        rounded: what the CPU gave with parameters off by a rounding error, by key; empty where that is not known yet.
    """
    sizes: dict[str, float] = {}
    for seen in reference:
        sizes[seen.kind] = max(sizes.get(seen.kind, 0.0), seen.digest.size)
    found = []
    for seen in reference:
        ours = device.get(seen.key)
        if ours is None:
            continue
        apart = distance(ours, seen.digest)
        near = _near_enough(seen, sizes[seen.kind], tolerances)
        if apart > near:
            near = max(near, _noise(seen, tolerances, rounded))
        if apart > near:
            size = seen.digest.size or sizes[seen.kind] or 1.0
            found.append(Difference(seen, apart / size, near / size))
    return found


def _near_enough(seen: Seen, largest: float, tolerances: Tolerances) -> float:
    # A value that is nought but for rounding is nought beside the largest of its kind; a change that is rounded as what
    # it changes is known to one unit of that.
    relative = max(tolerances.rtol * seen.digest.size, tolerances.unit * max(largest, 2 * seen.stored))
    return relative + _absolute(seen, tolerances)


def _noise(seen: Seen, tolerances: Tolerances, rounded: Sequence[Mapping[str, Digest]]) -> float:
    """What rounding errors of the parameters make of it, and some more."""
    measured = [distance(other[seen.key], seen.digest) for other in rounded if seen.key in other]
    return tolerances.rounding * max(measured, default=0.0) + _absolute(seen, tolerances)


def _absolute(seen: Seen, tolerances: Tolerances) -> float:
    return float(tolerances.atol * seen.digest.values.numel() ** 0.5)


def losses_apart(
    device: Sequence[float | None], reference: Sequence[float | None], allowed: Sequence[float]
) -> int | None:
    """The first step whose loss is off by more than what is allowed, relative to the reference's; None without one."""
    errors = relative_errors(device, reference)
    return next((index for index, error in enumerate(errors) if error > allowed[index]), None)


def relative_errors(device: Sequence[float | None], reference: Sequence[float | None]) -> list[float]:
    """How far each loss is from the reference's, relative to it.

    Infinite where one of them is not finite, which is None; nought where both are not.
    """
    return [
        (0.0 if ours is theirs else math.inf)
        if ours is None or theirs is None
        else abs(ours - theirs) / max(abs(theirs), 1e-30)
        for ours, theirs in zip(device, reference, strict=False)
    ]
