"""The parts of a batch that several ranks train on, one each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from smoketest.config.models import Check
from smoketest.errors import UserCodeError
from smoketest.workload.moving import change_tensors, tensors_in

__all__ = ["how_split", "part_of", "parts_in"]


def parts_in(check: Check) -> int:
    """Into how many parts the ranks of `check` divide a batch: 1 for one process, and under tensor parallelism."""
    return 1 if check.parallel is None or check.parallel.kind == "tp" else check.ranks


def part_of(batch: Any, rank: int, size: int, split: Sequence[str] | None = None) -> Any:
    """Part `rank` of `size` equal parts of a batch, along the first dimension of its tensors.

    Args:
        batch: of any form.
        rank: from 0.
        size: how many ranks there are.
        split: names, or positions in a tuple, of what is split; None for every tensor whose first dimension is more
            than 1. The rest is the same on every rank.

    Raises:
        UserCodeError: the tensors are of different first dimensions, or of one that `size` does not divide, such as 1;
            or a name is not in the batch.
    """
    divided = _divided(batch, split)
    sizes = sorted({len(tensor) for tensor in divided})
    if len(sizes) > 1:
        raise UserCodeError(
            f"the batch cannot be split for {size} ranks: its tensors have the first dimensions"
            f" {', '.join(map(str, sizes))}",
            hint="name those that are split in parallel.split, or use --nproc 1",
        )
    if not sizes or sizes[0] % size:
        found = f"its first dimension, {sizes[0] if sizes else 1}, is no multiple of {size}"
        raise UserCodeError(
            f"the batch cannot be split for {size} ranks: {found}",
            hint=f"make batches of a multiple of {size}, or use another --nproc",
        )
    known = {id(tensor) for tensor in divided}
    return change_tensors(batch, lambda tensor: tensor.chunk(size)[rank] if id(tensor) in known else tensor)


def how_split(batch: Any, split: Sequence[str] | None = None) -> tuple[list[str], list[str]]:
    """Names, or positions, of what in the batch is split over the ranks, and of the tensors that are whole on each."""
    divided = {id(tensor) for tensor in _divided(batch, split)}
    parts, whole = [], []
    for name, value in _named(batch).items():
        tensors = list(tensors_in(value))
        if any(id(tensor) in divided for tensor in tensors):
            parts.append(name)
        elif tensors:
            whole.append(name)
    return parts, whole


def _divided(batch: Any, split: Sequence[str] | None) -> list[Tensor]:
    """The tensors of which each rank gets its part."""
    if split is None:
        return [tensor for tensor in tensors_in(batch) if tensor.dim() > 0 and len(tensor) > 1]
    named = _named(batch)
    missing = [name for name in split if name not in named]
    if missing:
        raise UserCodeError(
            f"parallel.split names {missing[0]!r}, which the batch does not have: it has {', '.join(named)}",
            hint="name tensors of the batch, by position where it is a tuple",
        )
    return [tensor for name in split for tensor in tensors_in(named[name]) if tensor.dim() > 0]


def _named(batch: Any) -> dict[str, Any]:
    if isinstance(batch, Mapping):
        return {str(name): value for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return {str(place): value for place, value in enumerate(batch)}
    return {"batch": batch}
