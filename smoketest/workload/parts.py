"""The parts of a batch that several ranks train on, one each."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from smoketest.config.models import Check
from smoketest.errors import UserCodeError
from smoketest.workload.moving import change_tensors, tensors_in

__all__ = ["part_of", "parts_in"]


def parts_in(check: Check) -> int:
    """Into how many parts the ranks of `check` divide a batch: 1 for one process, and under tensor parallelism."""
    return 1 if check.parallel is None or check.parallel.kind == "tp" else check.ranks


def part_of(batch: Any, rank: int, size: int) -> Any:
    """Part `rank` of `size` equal parts of a batch, along the first dimension of its tensors.

    A tensor without dimensions, or whose first one is 1, is the same on every rank, and so is what is no tensor.

    Raises:
        UserCodeError: the tensors are of different first dimensions, or of one that `size` does not divide.
    """
    sizes = sorted({len(tensor) for tensor in tensors_in(batch) if _is_divided(tensor)})
    if len(sizes) > 1:
        raise UserCodeError(
            f"the batch cannot be split for {size} ranks: its tensors have the first dimensions"
            f" {', '.join(map(str, sizes))}",
            hint="give tensors whose first dimension is that of the batch, or use --nproc 1",
        )
    if sizes and sizes[0] % size:
        raise UserCodeError(
            f"the batch cannot be split for {size} ranks: its first dimension, {sizes[0]}, is no multiple of {size}",
            hint=f"make batches of a multiple of {size}, or use another --nproc",
        )

    def part(tensor: Tensor) -> Tensor:
        return tensor.chunk(size)[rank] if _is_divided(tensor) else tensor

    return change_tensors(batch, part)


def _is_divided(tensor: Tensor) -> bool:
    return tensor.dim() > 0 and len(tensor) > 1
