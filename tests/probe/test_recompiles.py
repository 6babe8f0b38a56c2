"""What a function compiled more than once is told: by new batches, or by the step itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo
from torch import nn

from smoketest.probe.capture import capture
from smoketest.probe.recompiles import Recompiled, recompiled

FRAME_OF_ITS_OWN = (
    " Each call is a frame of its own only because a graph break or a skipped function lies around it: without that "
    "the calls are traced into one graph."
)
NEEDS_GRADIENT = (
    "a tensor requires a gradient in one call and not in another "
    "(guard: tensor 'x' requires_grad mismatch. expected requires_grad=0)"
)


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def part(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


class Halving(Dense):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while len(x) > 1:
            torch._dynamo.graph_break()
            x = self.part(x)[: len(x) // 2]
        return x


class Decoding(Dense):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            following = self.part(x)[-1:]
            torch._dynamo.graph_break()
            x = torch.cat((x, following))
        return x


class Pyramid(Dense):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for window in (1, 2):
            torch._dynamo.graph_break()
            total = total + self.part(nn.functional.avg_pool1d(x.t(), window).t()).sum()
        return total


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def scaled(self, x: torch.Tensor, by: int) -> torch.Tensor:
        return self.linear(x) * by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for by in range(3):
            total = total + self.scaled(x, by).sum()
            torch._dynamo.graph_break()
        return total


class Scaled(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale


class Projected(nn.Module):
    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(given, made))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class InTurn(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            torch._dynamo.graph_break()
            x = layer(x)
        return x


def found(model: nn.Module, *batches: torch.Tensor, calls: int = 1) -> tuple[Recompiled, ...]:
    """One step for each batch; the model is called with it, and `calls` times in all with ever shorter parts of it."""

    def step(call: Callable[..., Any], index: int) -> None:
        batch = batches[index]
        torch.stack([call(batch[part:]).sum() for part in range(calls)]).sum().backward()

    return recompiled(capture(model, step, steps=len(batches)).compiles)


def test_a_loop_over_shrinking_lengths_is_told_to_pad_in_the_model_and_not_in_the_loader() -> None:
    (again,) = found(Halving(), torch.ones(8, 4), torch.ones(8, 4))
    assert again.message == (
        "part() is compiled 3 times within one step: size 8, 4, 2 of tensor 'x' at index 0; "
        f"{NEEDS_GRADIENT} (guard: tensor 'x' size mismatch at index 0. expected 4, actual 2)"
    )
    assert again.remedy == (
        "The size changes within one step, so padding the batches does not help: in the model pad it to 8 and mask, "
        "which leaves 2 compiles. Otherwise accept one compile for each size: 3 compiles are left, the same in every "
        "step." + FRAME_OF_ITS_OWN
    )


def test_where_the_batches_differ_as_well_both_are_told() -> None:
    (again,) = found(Halving(), torch.ones(8, 4), torch.ones(6, 4))
    assert again.message.startswith(
        "part() is compiled 5 times, 3 of them within one step: size 8, 4, 2, 6, 3 of tensor 'x' at index 0;"
    )
    assert again.remedy.endswith(
        "Between steps it changes as well (size 8, 6 of tensor 'x' at index 0): every size of a batch is compiled for "
        "anew; give the batches one size."
    )


def test_decoder_steps_of_growing_length_are_told_to_allocate_in_full() -> None:
    (again,) = found(Decoding(), torch.ones(2, 4))
    assert "is compiled 3 times within one step: size 2, 3, 4 of tensor 'x' at index 0;" in again.message
    assert again.remedy == (
        "The size changes within one step, so padding the batches does not help: it grows from call to call. Allocate "
        "it in full, at least 4, and mask what is not filled yet, which leaves 2 compiles. Otherwise accept one "
        "compile for each size: 3 compiles are left, the same in every step." + FRAME_OF_ITS_OWN
    )


def test_a_layer_called_at_two_resolutions_keeps_two_compiles() -> None:
    (again,) = found(Pyramid(), torch.ones(8, 4))
    assert again.message == (
        "part() is compiled 2 times within one step: size 8, 4 of tensor 'x' at index 0 "
        "(guard: tensor 'x' size mismatch at index 0. expected 8, actual 4)"
    )
    assert again.remedy == (
        "The size changes within one step, so padding the batches does not help: in the model pad it to 8 and mask, "
        "which leaves one compile. Otherwise accept one compile for each size: 2 compiles are left, the same in every "
        "step." + FRAME_OF_ITS_OWN
    )


def test_layers_of_one_class_with_different_constants_are_told_apart_from_new_data() -> None:
    (again,) = found(InTurn(Scaled(1.0), Scaled(2.0), Scaled(3.0)), torch.ones(2, 4), torch.ones(2, 4))
    assert again.message == (
        "forward() is compiled 3 times within one step: the modules that it is of differ: layers.0, layers.1, layers.2 "
        f"(guard: self.scale == 2.0); {NEEDS_GRADIENT}"
    )
    assert again.remedy == (
        "What the guard names is a constant of the module, whatever the data: keep it as a tensor (register_buffer), "
        "which leaves 2 compiles for all of them. Otherwise accept one compile for each value: 3 compiles are left, "
        "the same in every step." + FRAME_OF_ITS_OWN
    )


def test_more_constants_than_dynamo_compiles_for_are_not_called_acceptable() -> None:
    (again,) = found(InTurn(*(Scaled(float(value)) for value in range(10))), torch.ones(2, 4))
    assert "layers.0, layers.1, layers.2, layers.3 and 4 more (guard: " in again.message
    assert "Otherwise each value is one compile, and after 8 Dynamo gives up and runs plain Python." in again.remedy


def test_layers_of_one_class_with_weights_of_other_sizes_are_not_told_to_pad() -> None:
    (again,) = found(InTurn(Projected(4, 8), Projected(8, 2), Projected(2, 2)), torch.ones(2, 4))
    assert "the modules that it is of differ: layers.0, layers.1, layers.2; size 4, 8, 2 of tensor 'x' at index 1;" in (
        again.message
    )
    assert again.remedy == (
        "The modules' weights are of different sizes, whatever the data. Otherwise accept one compile for each size: "
        "3 compiles are left, the same in every step." + FRAME_OF_ITS_OWN
    ).replace("Otherwise accept", "Accept")


def test_equal_layers_are_compiled_twice_since_the_batch_needs_no_gradient() -> None:
    (again,) = found(InTurn(Scaled(1.0), Scaled(1.0), Scaled(1.0)), torch.ones(2, 4))
    assert again.message == f"forward() is compiled 2 times within one step: {NEEDS_GRADIENT}"
    assert again.remedy == (
        "Within one step it is called with a tensor that needs no gradient, such as the batch, and with one that does: "
        "accept the 2 compiles, which no further batch adds to, or detach the tensor always or never."
    ) + (FRAME_OF_ITS_OWN)


def test_a_number_that_changes_with_every_call_is_told_to_be_a_tensor() -> None:
    (again,) = found(Counting(), torch.ones(2, 4))
    assert again.message == (
        "scaled() is compiled 3 times within one step: a Python value has changed (guard: by == 0, by == 1)"
    )
    assert again.remedy == (
        "The number by changes within one step and is compiled in as a constant: pass it as a tensor, which leaves one "
        "compile. Otherwise accept one compile for each value: 3 compiles are left, the same in every step."
    )


def test_a_model_called_with_two_lengths_in_a_step_is_told_to_pad_before_the_calls() -> None:
    (again,) = found(Scaled(1.0), torch.ones(4, 4), torch.ones(4, 4), calls=2)
    assert again.message == (
        "forward() is compiled 2 times within one step: size 4, 3 of tensor 'x' at index 0 "
        "(guard: tensor 'x' size mismatch at index 0. expected 4, actual 3)"
    )
    assert again.remedy == (
        "The model is called with several sizes within one step: pad them to 4 before the calls, which leaves one "
        "compile. Otherwise accept one compile for each size: 2 compiles are left, the same in every step."
    )


def test_new_batches_are_still_told_to_be_padded() -> None:
    (again,) = found(Scaled(1.0), torch.ones(3, 4), torch.ones(4, 4))
    assert again.message == (
        "forward() is compiled 2 times: size 3, 4 of tensor 'x' at index 0 "
        "(guard: tensor 'x' size mismatch at index 0. expected 3, actual 4); every other size is one more compile"
    )
    assert again.remedy == "Pad to 4: one compile is left, whatever size up to 4 comes."
