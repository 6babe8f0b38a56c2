"""A tensor-parallel plan that cannot fit the model is refused before any step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from smoketest.config.models import Parallel
from smoketest.errors import UserCodeError
from smoketest.workload.parallel import parallelize

Plan = dict[str, Literal["colwise", "rowwise"]]


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    """Two ranks of which this process is one; PyTorch's own stand-in for a process group carries nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield DeviceMesh("cpu", [0, 1])
    dist.destroy_process_group()


def model(hidden: int = 16) -> nn.Module:
    return nn.ModuleDict({"up": nn.Linear(8, hidden), "down": nn.Linear(hidden, 8), "words": nn.Embedding(5, 8)})


@pytest.mark.parametrize(("hidden", "plan", "expected"), [
    (15, {"up": "colwise", "down": "rowwise"},
     "up has out_features=15, which does not split into equal parts for 2 ranks"),
    (16, {"up": "colwise"}, "up is split colwise, and no rowwise Linear takes its part up"),
    (16, {"down": "rowwise"}, "down is split rowwise, and no colwise layer gives it a part"),
])  # fmt: skip
def test_a_plan_that_fits_no_step_is_refused(mesh: DeviceMesh, hidden: int, plan: Plan, expected: str) -> None:
    with pytest.raises(UserCodeError) as told:
        parallelize(model(hidden), Parallel(kind="tp", plan=plan), "cpu", mesh)
    assert told.value.message == f"parallel.plan does not fit the model: {expected}"
    assert told.value.hint is not None


@pytest.mark.parametrize("plan", [{"up": "colwise", "down": "rowwise"}, {"words": "rowwise"}])
def test_a_plan_that_may_fit_is_taken(mesh: DeviceMesh, plan: Plan) -> None:
    parallelize(model(), Parallel(kind="tp", plan=plan), "cpu", mesh)
