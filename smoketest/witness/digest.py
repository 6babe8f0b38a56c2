"""A tensor in small: enough of it to tell whether two tensors are the same but for rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["MOST_VALUES", "Digest", "digest_of", "distance", "picked"]

MOST_VALUES = 2**18
"""Values kept of one tensor (1 MiB of float32). Larger tensors are compared in these, evenly spread, and by norm."""


@dataclass(frozen=True)
class Digest:
    """What is kept of a tensor.

    Attributes:
        values: its values, or evenly spread ones of them: 1-D, float32, on the CPU.
        norm: Euclidean norm of all finite values; None where it was not taken.
        not_finite: how many of all values are NaN or infinite.
        dtype: of the tensor.
    """

    values: Tensor
    norm: float | None
    not_finite: int
    dtype: torch.dtype

    @cached_property
    def size(self) -> float:
        """Euclidean norm of the finite ones of the values that are kept."""
        return _norm(self.values)


def digest_of(tensor: Tensor) -> Digest | None:
    """The digest of a tensor of any device; None where it holds no real or complex numbers, or has no strides.

    It copies the tensor to the host, so it waits for the device.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout is not torch.strided:
        return None
    flat = _flat(tensor)
    finite = flat.isfinite()
    missing = int(flat.numel() - finite.sum())
    whole = flat if not missing else flat[finite]
    norm = float(torch.linalg.vector_norm(whole, dtype=torch.float64)) if whole.numel() else 0.0
    return Digest(_spread(flat).float(), norm, missing, tensor.dtype)


def picked(tensor: Tensor, most: int = MOST_VALUES) -> Tensor:
    """The values a digest keeps of a tensor, or `most` of them: 1-D, float64, a copy on the CPU."""
    return _spread(_flat(tensor), most).double().clone()


def distance(ours: Digest, reference: Digest) -> float:
    """How far two digests are apart, in the units of `Digest.size`; infinite where shapes or NaNs do not agree.

    Differences in values that were not kept count by the norm of the whole.
    """
    if ours.values.shape != reference.values.shape:
        return float("inf")
    if ours.not_finite != reference.not_finite:
        return float("inf")
    a, b = ours.values.double(), reference.values.double()
    if ours.not_finite:
        good = a.isfinite() & b.isfinite()
        if not bool((good | (a == b) | (a.isnan() & b.isnan())).all()):
            return float("inf")
        a, b = a[good], b[good]
    apart = _norm(a - b)
    if ours.norm is None or reference.norm is None:
        return apart
    whole = abs(ours.norm - reference.norm)
    share = reference.size / reference.norm if reference.norm else 1.0
    return max(apart, whole * share)


def _flat(tensor: Tensor) -> Tensor:
    here = tensor.detach().to("cpu")
    if here.is_complex():
        here = torch.view_as_real(here.resolve_conj())
    return here.reshape(-1)


def _spread(flat: Tensor, most: int = MOST_VALUES) -> Tensor:
    """At most `most` of the values; the step is odd, so that it does not walk down one column of a matrix."""
    step = -(-flat.numel() // most)
    return flat[:: step | 1] if step > 1 else flat.clone()


def _norm(values: Tensor) -> float:
    norm = float(torch.linalg.vector_norm(values, dtype=torch.float64))
    return norm if math.isfinite(norm) else float(torch.linalg.vector_norm(values[values.isfinite()].double()))
