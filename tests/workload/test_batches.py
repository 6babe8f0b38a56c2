"""Batches: random ones are reproducible, and tensors reach the device wherever they sit."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from smoketest.config.models import Batch, TensorSpec
from smoketest.errors import UserCodeError
from smoketest.workload.batches import Call, call_for, explain_call, from_function, from_specs, remembering
from smoketest.workload.moving import move, tensors_in

Pair = namedtuple("Pair", "left right")


class TwoInputs(nn.Module):
    def forward(self, a: Any, b: Any = None) -> Any:
        return a, b


@dataclass(frozen=True)
class Graph:
    nodes: torch.Tensor
    count: int


def test_the_same_seed_and_step_give_the_same_batch() -> None:
    specs = {"x": TensorSpec(shape=[2, 3]), "y": TensorSpec(shape=[4], dtype="int64", low=5, high=9)}
    first, again, other = from_specs(specs, 1)(0), from_specs(specs, 1)(0), from_specs(specs, 1)(1)
    assert torch.equal(first["x"], again["x"])
    assert not torch.equal(first["x"], other["x"])
    assert not torch.equal(first["x"], from_specs(specs, 2)(0)["x"])
    assert first["y"].dtype is torch.int64
    assert set(first["y"].tolist()) <= {5, 6, 7, 8}


@pytest.mark.parametrize("seed", [2**64 - 1, -(2**63), 10**14])
def test_every_seed_of_64_bits_gives_batches(seed: int) -> None:
    specs = {"x": TensorSpec(shape=[3])}
    assert torch.equal(from_specs(specs, seed)(1)["x"], from_specs(specs, seed)(1)["x"])
    assert not torch.equal(from_specs(specs, seed)(1)["x"], from_specs(specs, seed)(2)["x"])


def test_like_repeats_the_values_of_another_tensor_whatever_the_order() -> None:
    specs = {"labels": TensorSpec(like="ids"), "ids": TensorSpec(shape=[8], dtype="int64", low=0, high=100)}
    batch = from_specs(specs, 0)(0)
    assert list(batch) == ["labels", "ids"]
    assert torch.equal(batch["labels"], batch["ids"])
    assert batch["labels"] is not batch["ids"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64", "bool", "uint8", "int32"])
def test_every_dtype_of_a_check_can_be_made(dtype: str) -> None:
    batch = from_specs({"x": TensorSpec(shape=[3], dtype=dtype)}, 0)(0)  # type: ignore[arg-type]
    assert batch["x"].dtype is getattr(torch, dtype)


def test_half_precision_is_the_float32_batch_rounded() -> None:
    whole = from_specs({"x": TensorSpec(shape=[5])}, 0)(0)["x"]
    half = from_specs({"x": TensorSpec(shape=[5], dtype="bfloat16")}, 0)(0)["x"]
    assert torch.equal(half, whole.to(torch.bfloat16))


def test_tensors_move_wherever_they_sit_and_numbers_stay() -> None:
    t = torch.ones(2)
    batch = {
        "list": [t, 3],
        "tuple": (t, "text"),
        "named": Pair(t, None),
        "ordered": OrderedDict(a=t),
        "defaults": defaultdict(list, a=[t]),
        "graph": Graph(t, 7),
        "deep": [{"x": ([Graph(t, 1)],)}],
    }
    moved = move(batch, "meta")
    found = list(tensors_in(moved))
    assert len(found) == 7
    assert all(one.is_meta for one in found)
    assert len({id(one) for one in found}) == 1, "one tensor stays one tensor"
    assert moved["list"][1] == 3
    assert moved["graph"].count == 7
    assert type(moved["named"]) is Pair
    assert type(moved["ordered"]) is OrderedDict
    assert moved["defaults"].default_factory is list
    assert not t.is_meta
    assert batch["graph"].nodes is t, "the user's own batch is not changed"


def test_an_object_that_moves_itself_is_asked_to() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert move([packed], "meta")[0].data.is_meta
    assert len(list(tensors_in([packed]))) > 0


def test_requires_grad_survives_the_move() -> None:
    moved = move(torch.ones(2, requires_grad=True), "meta")
    assert moved.requires_grad
    assert moved.is_leaf


@pytest.mark.parametrize(
    ("batch", "args", "kwargs"),
    [
        (((1,), {"b": 2}), (1,), {"b": 2}),
        (((1, 2), {}), (1, 2), {}),
        ((1, 2), (1, 2), {}),
        ([1, 2], (1, 2), {}),
        ({"a": 1, "b": 2}, (), {"a": 1, "b": 2}),
        ({"image": 1}, (1,), {}),
        (5, (5,), {}),
        (Pair(1, 2), (Pair(1, 2),), {}),
    ],
)
def test_a_batch_becomes_the_call_one_would_write(batch: Any, args: Any, kwargs: Any) -> None:
    call = call_for(batch, None, TwoInputs())
    assert (call.args, call.kwargs) == (args, kwargs)


def test_forward_chooses_what_the_model_is_called_with() -> None:
    spec = Batch(tensors={"a": TensorSpec(shape=[1]), "y": TensorSpec(shape=[1])}, forward=["a"])
    call = call_for({"a": 1, "y": 2}, spec, TwoInputs())
    assert (call.args, call.kwargs) == ((), {"a": 1})


def test_forward_names_what_is_in_the_batch() -> None:
    with pytest.raises(UserCodeError) as caught:
        call_for({"a": 1}, Batch(forward=["x"]), TwoInputs())
    assert str(caught.value) == "batch.forward names 'x', which the batch does not have\n  hint: it has a"


def test_a_batch_without_tensors_is_an_error() -> None:
    with pytest.raises(UserCodeError) as caught:
        from_function(lambda step: ([1.0], {}), "make_batch")(3)
    assert str(caught.value) == (
        "make_batch(3) gave no tensor: it returned a tuple of 2\n"
        "  hint: return (args, kwargs) as the model is called: (tensor,), {} for one input"
    )


def test_a_batch_maker_that_raises_names_its_line() -> None:
    def make_batch(step: int) -> Any:
        raise ValueError("no such file")

    with pytest.raises(UserCodeError) as caught:
        from_function(make_batch, "make_batch")(0)
    assert caught.value.message == "make_batch(0) raised ValueError: no such file"
    assert caught.value.place is not None
    assert caught.value.place.file.endswith("test_batches.py")


def test_a_batch_is_made_once_for_the_same_step() -> None:
    made: list[int] = []
    make = remembering(lambda step: made.append(step) or torch.ones(1))  # type: ignore[func-returns-value]
    make(0)
    make(0)
    make(1)
    assert made == [0, 1]


def test_a_batch_of_args_and_kwargs_gives_the_model_the_chosen_names_only() -> None:
    call = call_for(((1,), {"b": 2, "labels": 3}), Batch(forward=["b"]), TwoInputs())
    assert (call.args, call.kwargs) == ((1,), {"b": 2})


def test_names_cannot_be_chosen_from_a_batch_without_names() -> None:
    with pytest.raises(UserCodeError, match="chooses by name, and the batch has no names"):
        call_for((1, 2), Batch(forward=["a"]), TwoInputs())


class Masked(nn.Module):
    def forward(self, x: Any, mask: Any) -> Any:
        return x, mask


@pytest.mark.parametrize(
    ("batch", "spec", "message", "hint"),
    [
        (
            {"a": 1, "labels": 2}, None,
            "'labels' of the batch is no argument of TwoInputs.forward(a, b=None)",
            "leave the rest to the loss: `batch: {forward: [a]}`",
        ),
        (
            {"mask": 1, "inputs": 2}, None,
            "'inputs' of the batch is no argument of Masked.forward(x, mask)",
            "name the batch's tensors as forward does; 'x' is missing",
        ),
        (
            {"mask": 1, "inputs": 2, "y": 3}, Batch(forward=["mask", "inputs"]),
            "'inputs' of the batch is no argument of Masked.forward(x, mask)",
            "name the batch's tensors as forward does; 'x' is missing",
        ),
        (
            {"inputs": 1, "attention": 2, "labels": 3}, None,
            "'inputs', 'attention', 'labels' of the batch are no arguments of Masked.forward(x, mask)",
            "name the batch's tensors as forward does (x, mask), or choose which are passed, in that order:"
            " `batch: {forward: [inputs, attention]}`",
        ),
    ],
)  # fmt: skip
def test_names_that_do_not_fit_are_never_passed_by_position_beside_ones_that_do(
    batch: Any, spec: Batch | None, message: str, hint: str
) -> None:
    with pytest.raises(UserCodeError) as caught:
        call_for(batch, spec, TwoInputs() if "TwoInputs" in message else Masked())
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert caught.value.place is not None
    assert caught.value.place.file.endswith("test_batches.py")


def test_names_of_which_none_fits_are_passed_by_position_in_their_order() -> None:
    assert call_for({"inputs": 1, "attention": 2}, None, Masked()) == Call((1, 2), {})
    chosen = call_for({"y": 3, "attention": 2, "inputs": 1}, Batch(forward=["inputs", "attention"]), Masked())
    assert chosen == Call((1, 2), {})


@pytest.mark.parametrize(
    ("batch", "model", "message", "hint"),
    [
        (
            (torch.ones(2, 2), torch.ones(2)), nn.Linear(2, 2),
            "Linear.forward(input) cannot be called as forward(…, …)",
            'make_batch gave a tuple of 2, each an argument of forward. Return a dict, {"input": …, "labels": …}, and'
            " choose with `batch: {forward: [input]}`; or return (args, kwargs): ((input,), {})",
        ),
        (
            ((1, 2, 3), {}), Masked(),
            "Masked.forward(x, mask) cannot be called as forward(…, …, …)",
            "make_batch gave (args, kwargs), which is what forward is called with: change it there",
        ),
        (
            {"x": 1}, Masked(),
            "Masked.forward(x, mask) cannot be called as forward(x=…)",
            "forward is called with the batch's tensors by their names; the batch has no 'mask'",
        ),
        (
            5, Masked(),
            "Masked.forward(x, mask) cannot be called as forward(…)",
            "the batch is passed whole; let make_batch return a dict with the names x, mask",
        ),
    ],
)  # fmt: skip
def test_a_call_that_forward_does_not_take_tells_how_to_choose(
    batch: Any, model: nn.Module, message: str, hint: str
) -> None:
    wrong = explain_call(call_for(batch, None, model), batch, model)
    assert wrong is not None
    assert (wrong.message, wrong.hint) == (message, hint)


def test_a_type_error_of_the_model_itself_is_not_explained_away() -> None:
    assert explain_call(Call((1, 2), {}), (1, 2), Masked()) is None


def test_make_batch_must_take_the_step() -> None:
    def make_batch() -> Any: ...

    with pytest.raises(UserCodeError) as caught:
        from_function(make_batch, "make_batch")  # type: ignore[arg-type]
    assert caught.value.message == "make_batch() cannot be called as make_batch(step)"
    assert caught.value.hint == (
        "define it as make_batch(step): the number of the step, from 0, to make each batch another one"
    )
    assert caught.value.place is not None
    assert caught.value.place.line == make_batch.__code__.co_firstlineno


def test_a_batch_that_contains_itself_is_an_error() -> None:
    batch: dict[str, Any] = {"x": torch.ones(1)}
    batch["again"] = [batch]
    with pytest.raises(UserCodeError) as caught:
        from_function(lambda step: batch, "make_batch")(0)
    assert str(caught.value) == (
        "make_batch(0) gave a dict that contains itself, or is nested too deeply\n"
        "  hint: return lists, tuples, dicts or dataclasses of tensors that do not contain each other"
    )
