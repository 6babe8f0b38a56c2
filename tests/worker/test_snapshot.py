"""A step made again from the state that was kept is the same step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from smoketest.config.models import Training
from smoketest.worker import snapshot
from smoketest.worker.record import record_step
from smoketest.workload import Workload
from smoketest.workload.batches import remembering
from smoketest.workload.workload import loss_value


@pytest.fixture
def state(tmp_path: Path) -> Path:
    file = tmp_path / "state"
    file.touch()
    return file


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(1), persistent=False)
        self.calls, self.total = 0, torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen += 1
        self.total += x.sum(0).detach()
        x = torch.dropout(self.norm(self.lin(x)), 0.5, True)
        return (x * self.calls + self.seen + self.total).square().mean()


def workload(
    optimizer: Callable[[Any], Any] = torch.optim.AdamW, accumulate: int = 1, model: nn.Module | None = None
) -> Workload:
    torch.manual_seed(0)
    net = model or Net()
    return Workload(
        model=net, make_batch=remembering(lambda step: {"x": torch.rand(8, 4)}, accumulate), batch_spec=None,
        loss=lambda output, batch: output, loss_name="the output", optimizer=optimizer(net.parameters()),
        train_step=None, training=Training(accumulate=accumulate), device="cpu",
    )  # fmt: skip


class Pair:
    def __init__(self, parameters: Any) -> None:
        given = list(parameters)
        self.halves = {"a": torch.optim.Adam(given[:2]), "b": torch.optim.SGD(given[2:], lr=0.1, momentum=0.9)}

    def zero_grad(self) -> None:
        for half in self.halves.values():
            half.zero_grad()

    def step(self) -> None:
        for half in self.halves.values():
            half.step()


class Stateless:
    def __init__(self, parameters: Any) -> None:
        self.parameters, self.rate = list(parameters), 0.1

    def step(self) -> None:
        with torch.no_grad():
            for parameter in self.parameters:
                parameter -= self.rate * parameter.grad


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.Adagrad, Pair, Stateless])
def test_a_step_made_again_is_the_same_to_the_bit(state: Path, optimizer: Any, accumulate: int) -> None:
    made = workload(optimizer, accumulate)
    made.step(0)
    made.prepare(1)
    snapshot.keep(made, state)
    records = []
    for _ in range(3):
        snapshot.put_back(made, state)
        records.append(record_step(made, 1))
    first = records[0]
    assert first.loss is not None
    assert first.draws
    assert len(first.updates) == 4
    for other in records[1:]:
        assert (other.loss, other.random_after) == (first.loss, first.random_after)
        for name in first.updates:
            assert torch.equal(other.updates[name].values, first.updates[name].values)
        assert other.events.keys() == first.events.keys()


def test_the_state_can_be_given_to_another_workload_of_the_same_check(state: Path) -> None:
    one, other = workload(), workload()
    for step in range(3):
        one.step(step)
    other.step(0)
    one.prepare(3)
    batch = one.make_batch(3)
    snapshot.keep(one, state)
    snapshot.put_back(other, state)
    other = Workload(**{**vars(other), "make_batch": lambda step: batch})
    torch.set_rng_state(torch.get_rng_state())
    loss = loss_value(other.step(3))
    snapshot.put_back(one, state)
    assert loss_value(one.step(3)) == loss


def test_parameters_can_be_put_back_off_by_a_rounding_error(state: Path) -> None:
    made = workload()
    before = made.model.lin.weight.detach().clone()  # type: ignore[union-attr, operator]
    snapshot.keep(made, state)
    snapshot.put_back(made, state, spread=1e-3, seed=1)
    apart = (made.model.lin.weight.detach() - before).norm() / before.norm()  # type: ignore[union-attr, operator]
    assert 2e-4 < float(apart) < 3e-3


class Own:
    def __init__(self, parameters: Any) -> None:
        self.parameters = list(parameters)
        self.average = [parameter.detach().clone() for parameter in self.parameters]

    def step(self) -> None: ...


def test_what_cannot_be_kept_is_said_with_its_reason(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(snapshot.NotKept, match=r"the state of a Own, which is no torch\.optim\.Optimizer, is its own"):
        snapshot.keep(workload(Own), state)
    monkeypatch.setattr(snapshot, "MOST_BYTES", 10)
    with pytest.raises(snapshot.NotKept, match=r"the state of model and optimizer takes 0\.0 GiB, too much to keep"):
        snapshot.keep(workload(), state)


def test_the_state_of_another_model_is_refused(state: Path) -> None:
    snapshot.keep(workload(), state)
    other = workload(model=nn.Linear(3, 3))
    with pytest.raises(snapshot.NotKept, match="the model has other parameters or buffers"):
        snapshot.put_back(other, state)
