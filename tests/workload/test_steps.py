"""A step does what a training loop written by hand does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from smoketest.config.models import Batch, Check, Loss, Model, Optimizer, TensorSpec, Training
from smoketest.errors import UserCodeError
from smoketest.workload.build import build_workload
from smoketest.workload.workload import Workload, loss_value

LINEAR = Check(
    name="linear",
    model=Model(target="torch.nn:Linear", kwargs={"in_features": 3, "out_features": 2}),
    batch=Batch(
        tensors={
            "x": TensorSpec(shape=[4, 3]),
            "y": TensorSpec(shape=[4], dtype="int64", low=0, high=2),
        },
        forward=["x"],
    ),
    loss=Loss(name="cross_entropy", target="batch.y"),
    optimizer=Optimizer(name="SGD", lr=0.5),  # type: ignore[call-arg]
)


def with_training(**options: Any) -> Check:
    return LINEAR.model_copy(update={"training": Training(**options)})


def from_text(tmp_path: Path, text: str, **parts: Any) -> Workload:
    file = tmp_path / f"workload_{abs(hash(text))}.py"
    file.write_text(text)
    return build_workload(Check(name="x", workload=file, **parts), "cpu")


def test_a_step_equals_the_loop_written_by_hand() -> None:
    work = build_workload(LINEAR, "cpu")
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(3):
        batch = work.batch(step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch["x"]), batch["y"])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        assert loss_value(work.step(step)) == loss.item()
    assert torch.equal(work.model.weight, model.weight)  # type: ignore[arg-type]


def test_micro_batches_are_averaged() -> None:
    work = build_workload(with_training(accumulate=3), "cpu")
    model = nn.Linear(3, 2)
    model.load_state_dict(work.model.state_dict())
    whole = [work.batch(index) for index in range(3)]
    x, y = torch.cat([b["x"] for b in whole]), torch.cat([b["y"] for b in whole])
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    losses = work.step(0)
    assert len(losses) == 3
    assert loss_value(losses) == pytest.approx(loss.item(), rel=1e-6)
    torch.testing.assert_close(work.model.state_dict(), model.state_dict())


PADDED = """
import torch
from torch import nn
def make_model():
    return nn.Linear(1, 2, bias=False)
def make_batch(step):
    return {"x": torch.tensor([[1.0], [2.0], [3.0], [4.0]]), "y": torch.tensor([0, -100, 1, 1])}
def loss_fn(output, batch):
    return nn.functional.cross_entropy(output, batch["y"])
def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.5)
"""
"""One label of the first half counts, two of the second."""
CALLED_WITH_X = Batch(forward=["x"])


def test_a_step_in_parts_is_made_of_the_mean_of_their_losses_as_ranks_make_it(tmp_path: Path) -> None:
    file = tmp_path / "padded.py"
    file.write_text(PADDED)
    check = Check(name="padded", workload=file, batch=CALLED_WITH_X)
    work, whole = build_workload(check, "cpu", parts=2), build_workload(check, "cpu")
    weight = work.model.get_parameter("weight").detach().clone().requires_grad_()
    x, y = torch.tensor([[1.0], [3.0], [4.0]]), torch.tensor([0, 1, 1])
    each = nn.functional.cross_entropy(x @ weight.T, y, reduction="none")
    loss = (each[0] + each[1:].mean()) / 2
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss_value(work.step(0)) == pytest.approx(loss.item(), rel=1e-6)
    assert weight.grad is not None
    assert torch.allclose(work.model.get_parameter("weight"), weight - 0.5 * weight.grad)
    assert loss_value(whole.step(0)) == pytest.approx(each.mean().item(), rel=1e-6), "which is another loss"


def test_a_custom_train_step_gets_the_whole_batch_whatever_the_parts(tmp_path: Path) -> None:
    file = tmp_path / "counted.py"
    file.write_text(PADDED + "def train_step(model, batch, optimizer):\n    return float(len(batch['x']))\n")
    assert build_workload(Check(name="x", workload=file), "cpu", parts=2).step(0) == [4.0]


def test_gradients_are_clipped_to_the_norm() -> None:
    before = build_workload(with_training(clip_grad_norm=1e-3), "cpu")
    weights = torch.cat([p.detach().flatten().clone() for p in before.model.parameters()])
    before.step(0)
    moved = torch.cat([p.detach().flatten() for p in before.model.parameters()]) - weights
    assert moved.norm().item() == pytest.approx(0.5 * 1e-3, rel=1e-3)


def test_autocast_covers_forward_and_loss() -> None:
    work = build_workload(with_training(autocast="bfloat16"), "cpu")
    seen = []
    work.model.register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    work.step(0)
    assert seen == [torch.bfloat16]


def test_phases_come_in_order_and_repeat_for_micro_batches() -> None:
    phases: list[str] = []

    @contextmanager
    def marker(phase: str) -> Iterator[None]:
        phases.append(phase)
        yield

    build_workload(with_training(accumulate=2), "cpu").step(0, marker)
    assert phases == ["setup", "forward", "backward", "forward", "backward", "optimizer"]


def test_a_steps_own_loss_is_the_one_reported_and_its_phases_are_not_split(tmp_path: Path) -> None:
    work = from_text(
        tmp_path,
        "import torch\n"
        "def make_model(): return torch.nn.Linear(2, 1)\n"
        "def make_batch(step): return (torch.ones(3, 2),), {}\n"
        "def make_optimizer(params): return {'main': torch.optim.SGD(params, lr=0.1)}\n"
        "def train_step(model, batch, optimizers):\n"
        "    loss = model(*batch[0]).pow(2).mean()\n"
        "    loss.backward()\n"
        "    optimizers['main'].step()\n"
        "    optimizers['main'].zero_grad()\n"
        "    return loss\n",
    )
    first, second = loss_value(work.step(0)), loss_value(work.step(1))
    assert first is not None
    assert second is not None
    assert second < first
    assert not work.is_split


def test_a_train_step_must_return_the_loss(tmp_path: Path) -> None:
    work = from_text(
        tmp_path,
        "import torch\ndef make_model(): return torch.nn.Linear(2, 1)\n"
        "def make_batch(step): return torch.ones(3, 2)\ndef train_step(model, batch, optimizers): pass\n",
    )
    with pytest.raises(UserCodeError, match=r"train_step must return the loss, .* it returned a NoneType"):
        work.step(0)


def test_lazy_modules_are_there_when_the_optimizer_is_made(tmp_path: Path) -> None:
    work = from_text(
        tmp_path,
        "import torch\nfrom torch import nn\n"
        "def make_model(): return nn.Sequential(nn.LazyLinear(4), nn.Dropout(0.5), nn.LazyLinear(1))\n"
        "def make_batch(step): return (torch.ones(3, 2),), {}\n"
        "def loss_fn(output, batch): return output.mean() + batch[0][0].mean()\n",
    )
    assert [tuple(p.shape) for p in work.optimizer.param_groups[0]["params"]] == [(4, 2), (4,), (1, 4), (1,)]
    assert loss_value(work.step(0)) is not None


def test_the_config_is_built_first_and_weights_get_their_dtype(tmp_path: Path) -> None:
    file = tmp_path / "configured.py"
    file.write_text(
        "from dataclasses import dataclass\nimport torch\n"
        "@dataclass\nclass Config:\n    width: int = 1\n"
        "class Net(torch.nn.Linear):\n"
        "    def __init__(self, config, extra=0):\n        super().__init__(config.width, 1 + extra)\n"
    )
    check = LINEAR.model_copy(
        update={
            "model": Model(
                target=f"{file}:Net",
                config={"class": f"{file}:Config", "width": 5},
                kwargs={"extra": 2},
                dtype="bfloat16",
            )
        }
    )
    model = build_workload(check, "cpu").model
    assert tuple(model.weight.shape) == (3, 5)  # type: ignore[arg-type, operator]
    assert model.weight.dtype is torch.bfloat16


def test_forward_backward_runs_through_the_callable_it_is_given() -> None:
    work = build_workload(LINEAR, "cpu")
    before = work.model.weight.clone()  # type: ignore[operator]
    calls = []

    def compiled(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return work.model(*args, **kwargs)

    work.forward_backward(compiled, 0)
    assert calls == [1]
    assert work.model.weight.grad is not None
    assert torch.equal(work.model.weight, before), "no optimizer step"  # type: ignore[arg-type]


def test_a_loss_that_is_not_finite_is_null() -> None:
    assert loss_value([torch.tensor(float("nan"))]) is None
    assert loss_value([1.0, torch.tensor(3.0)]) == 2.0
