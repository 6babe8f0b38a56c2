"""Losses and optimizers: every way a check can name them, and the text when it cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from smoketest.config.models import Loss, Optimizer
from smoketest.errors import UserCodeError
from smoketest.workload import losses, optimizers


def error(call: Callable[[], Any]) -> str:
    with pytest.raises(UserCodeError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("output", "whole"),
        ("output.loss", 1),
        ("output.0", 2),
        ("output[1]", 3),
        ("output[-1]", 3),
        ('output["x"]', 4),
        ("output['x'].y.0", 5),
        ("batch.labels", 6),
        ("batch.0.0", 7),
        ("batch[1]['labels']", 6),
    ],
)
def test_a_path_reads_attributes_keys_and_positions(path: str, value: Any) -> None:
    outputs: dict[str, Any] = {
        "output": "whole",
        "output.loss": SimpleNamespace(loss=1),
        "output.0": (2, 3),
        "output[1]": (2, 3),
        "output[-1]": (2, 3),
        'output["x"]': {"x": 4},
        "output['x'].y.0": {"x": SimpleNamespace(y=[5])},
    }
    batch = ((7,), {"labels": 6})
    assert losses.read_path(path, outputs.get(path), batch) == value


def test_a_path_that_leads_nowhere_says_what_is_there() -> None:
    assert error(lambda: losses.read_path("output.loss", {"logits": 1, "states": 2}, None)) == (
        "'output.loss' leads nowhere: output has no 'loss' in a dict with the keys 'logits', 'states'\n"
        "  hint: it has logits, states"
    )
    assert error(lambda: losses.read_path("output.3", (1, 2), None)) == (
        "'output.3' leads nowhere: output has no 3 in a tuple of 2\n  hint: it has the positions 0 to 1"
    )
    assert "is not a path to a value" in error(lambda: losses.read_path("ouput.loss", None, None))
    assert "is not a path to a value" in error(lambda: losses.read_path("output.loss!", None, None))


def test_a_functional_loss_is_the_one_of_torch() -> None:
    logits, labels = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    spec = Loss(name="cross_entropy", input="output.logits", target="batch.labels", kwargs={"label_smoothing": 0.1})
    loss, _ = losses.from_spec(spec)
    expected = nn.functional.cross_entropy(logits, labels, label_smoothing=0.1)
    assert torch.equal(loss(SimpleNamespace(logits=logits), {"labels": labels}), expected)


def test_unknown_functions_and_optimizers_are_suggested() -> None:
    assert error(lambda: losses.from_spec(Loss(name="cross_entrpy", target="batch.y"))) == (
        "torch.nn.functional has no 'cross_entrpy'\n  hint: did you mean 'cross_entropy'?"
    )
    assert error(lambda: optimizers.from_spec(Optimizer(name="AdmaW"), nn.Linear(1, 1))) == (
        "torch.optim has no optimizer 'AdmaW'\n  hint: did you mean 'AdamW'?"
    )
    assert "torch.optim has no optimizer 'lr_scheduler'" in error(
        lambda: optimizers.from_spec(Optimizer(name="lr_scheduler"), nn.Linear(1, 1))
    )


def test_an_option_the_optimizer_does_not_know_is_the_users_error() -> None:
    message = error(lambda: optimizers.from_spec(Optimizer(name="SGD", learning_rate=1), nn.Linear(1, 1)))  # type: ignore[call-arg]
    assert message.startswith("torch.optim.SGD cannot be made with {'learning_rate': 1}: TypeError: ")


def test_a_loss_must_be_a_scalar_tensor_that_requires_grad() -> None:
    assert error(lambda: losses.checked_loss(torch.ones(4, 2, requires_grad=True), "loss_fn")) == (
        "the loss must be a scalar tensor; loss_fn gave one of shape (4, 2)\n"
        "  hint: reduce it, for example with .mean()"
    )
    assert error(lambda: losses.checked_loss(1.5, "loss_fn")) == (
        "the loss must be a scalar tensor; loss_fn gave a float, from which no backward can start\n"
        "  hint: drop .item() or float(), and return the tensor itself"
    )
    assert error(lambda: losses.checked_loss(torch.ones(()), "loss_fn")).startswith(
        "the loss from loss_fn does not require grad, so backward cannot start from it\n"
    )
    one = torch.ones(1, requires_grad=True)
    assert losses.checked_loss(one, "loss_fn") is one


def test_without_a_loss_the_outputs_own_is_taken() -> None:
    loss, _ = losses.from_output()
    assert loss(SimpleNamespace(loss=3), None) == 3
    assert loss({"loss": 4}, None) == 4
    assert loss(5, None) == 5


def test_a_maker_gets_the_model_or_its_parameters_by_the_name_it_gives_them() -> None:
    model = nn.Linear(2, 2)
    given: list[Any] = []

    def of_params(params: Any) -> Any:
        given.append(params)
        return torch.optim.SGD(params)

    def of_model(model: nn.Module) -> Any:
        given.append(model)
        return [torch.optim.SGD(model.parameters()), torch.optim.Adam(model.parameters())]

    assert optimizers.names_of(optimizers.from_function(of_params, model)) == "SGD"
    assert optimizers.names_of(optimizers.from_function(of_model, model)) == "SGD, Adam"
    assert [type(one) for one in given] == [list, nn.Linear]


def test_what_cannot_step_is_no_optimizer() -> None:
    assert error(lambda: optimizers.from_function(lambda params: None, nn.Linear(1, 1))) == (
        "make_optimizer gave None, which has no step()\n  hint: return an optimizer, or a list, tuple or dict of them"
    )
    assert "gave a list, which has no step()" in error(
        lambda: optimizers.from_function(lambda params: [3], nn.Linear(1, 1))
    )


def test_an_optimizer_that_needs_a_closure_is_refused_with_what_to_define() -> None:
    lbfgs = torch.optim.LBFGS(nn.Linear(2, 2).parameters())
    assert error(lambda: optimizers.refuse_closures([lbfgs])) == (
        "LBFGS needs a closure that makes forward and backward, which a step in three phases has not\n"
        "  hint: define train_step(model, batch, optimizer): call optimizer.step(closure), return the loss"
    )
    optimizers.refuse_closures(torch.optim.SGD(nn.Linear(2, 2).parameters()))


def test_a_complex_loss_is_refused() -> None:
    loss = torch.ones(1, dtype=torch.complex64, requires_grad=True).sum()
    assert error(lambda: losses.checked_loss(loss, "loss_fn")) == (
        "the loss must be a real number; loss_fn gave one of dtype complex64\n  hint: take .abs() or .real of it"
    )


def test_a_model_without_parameters_is_told_as_that_where_no_optimizer_was_named() -> None:
    said = error(lambda: optimizers.default_optimizer(nn.ReLU()))
    assert said.startswith("ReLU has no parameters, so there is nothing to train and no optimizer to make")
    assert "nn.Parameter" in said
    assert "under `optimizer`" not in said
