"""What the eager worker leaves for the reference worker, in a file without a name that the supervisor passes to both.

It holds tensors of the user's: nothing of them goes into a report, and the file is gone when the run is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoketest.witness.digest import Digest, digest_of, picked
from smoketest.worker.record import Record
from smoketest.workload import Workload
from smoketest.workload.moving import tensors_in

__all__ = ["FromDevice", "batch_of", "other_weight", "read", "same", "weights_of", "write"]

_FEW = 1024
_NEAR = 1e-4
"""Share of a weight's size: some initialisations add up in another order with another number of threads."""


@dataclass
class FromDevice:
    """What the device gave.

    Attributes:
        kind: of the device.
        losses: of all steps, the traced one last; None for one that is not finite.
        record: of one step; None where there is none.
        index: of that step. The traced one begins in the state that was kept; an earlier one, the first whose loss or
            gradients are not finite, in what a run from the start comes to.
        problem: why there is no record.
        batch: of the traced step, as `make_batch` gave it.
        weights: what the model was made with; None where that was not looked at.
        unlike: how the traced step differed from the same step made untraced; None where it did not.
        dtypes: that the ops of the traced step were given; empty where no witness saw them.
    """

    kind: str
    losses: list[float | None]
    record: Record | None = None
    index: int = -1
    problem: str | None = None
    batch: list[Digest] = field(default_factory=list)
    weights: dict[str, Tensor] | None = None
    unlike: str | None = None
    dtypes: frozenset[torch.dtype] = frozenset()


def write(told: FromDevice, file: Path) -> None:
    """Leave it in `file`."""
    torch.save(told, file)


def read(file: Path) -> FromDevice | None:
    """What was left there; None where nothing was."""
    if not file.stat().st_size:
        return None
    # Written by a worker of the same run, into a file that only it and this process have.
    told: FromDevice = torch.load(file, weights_only=False)
    return told


def batch_of(workload: Workload, index: int) -> list[Digest]:
    """The batches of step `index`, whatever their dtypes, on the CPU."""
    tensors = tensors_in([workload.make_batch(place) for place in workload.places(index)])
    digests = (digest_of(tensor if tensor.is_floating_point() else tensor.double()) for tensor in tensors)
    return [digest for digest in digests if digest is not None]


def same(ours: list[Digest], theirs: list[Digest]) -> bool:
    """Whether two batches hold the same values."""
    return len(ours) == len(theirs) and all(
        torch.equal(a.values.nan_to_num(), b.values.nan_to_num()) for a, b in zip(ours, theirs, strict=True)
    )


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A few values of each parameter and buffer of a model, by name."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: picked(tensor, _FEW) for name, tensor in named if _has_values(tensor)}


def other_weight(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> str | None:
    """The first name with other values; None where all are the same."""
    for name in [*ours, *theirs]:
        if name not in ours or name not in theirs or ours[name].shape != theirs[name].shape:
            return name
        a, b = ours[name].nan_to_num(), theirs[name].nan_to_num()
        if float((a - b).norm()) > _NEAR * float(b.norm()):
            return name
    return None


def _has_values(tensor: Tensor) -> bool:
    """Whether its values can be looked at, without making a large tensor of one that repeats a few."""
    if is_lazy(tensor) or tensor.is_meta or tensor.layout is not torch.strided:
        return False
    return tensor.is_contiguous() or tensor.nbytes <= tensor.untyped_storage().nbytes()
