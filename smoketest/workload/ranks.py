# mypy: allow-untyped-calls
"""One of several processes that make a step together: its place among them, and its part of a batch."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from smoketest.config.models import Check, Parallel
from smoketest.workload.parallel import clip_grad_norm, parallelize
from smoketest.workload.parts import how_split, part_of

__all__ = ["Ranks", "join"]

_BEYOND = 60
"""Seconds that a collective waits longer than the run does: the supervisor ends a run that hangs, and says who does."""


@dataclass(frozen=True)
class Ranks:
    """This process among those that the launcher started.

    Attributes:
        parallel: how they share the work.
        rank: of this process, from 0.
        size: how many there are.
    """

    parallel: Parallel
    rank: int
    size: int

    def spread(self, model: nn.Module, device_type: str) -> nn.Module:
        """The model as this rank calls and trains it; see `parallelize`."""
        return parallelize(model, self.parallel, device_type, init_device_mesh(device_type, (self.size,)))

    def clip_grad_norm(self, parameters: Iterable[Tensor], most: float) -> Tensor:
        """As ``torch.nn.utils.clip_grad_norm_``, for gradients of which some are distributed."""
        return clip_grad_norm(parameters, most)

    def take(self, batch: Any) -> Any:
        """What this rank trains on: its part of the batch, or all of it under tensor parallelism."""
        return batch if self.parallel.kind == "tp" else part_of(batch, self.rank, self.size, self.parallel.split)

    def split(self, batch: Any) -> dict[str, list[str]]:
        """What of the batch is split over the ranks, and what is whole on each, by name; nothing under tp."""
        if self.parallel.kind == "tp":
            return {}
        parts, whole = how_split(batch, self.parallel.split)
        return {"split_over_ranks": parts, "whole_on_each": whole}


def join(check: Check) -> Ranks:
    """Join the process group of the ranks that the launcher tells of (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).

    On the real device this comes before its first use ([USER-B4], [PRE]: ``Neuron runtime should not be initialized
    before the init_process_group.``), and the device stays bare ``neuron``.
    """
    assert check.parallel is not None
    ranks = Ranks(check.parallel, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    dist.init_process_group("neuron", timeout=dt.timedelta(seconds=check.training.timeout + _BEYOND))
    return ranks
