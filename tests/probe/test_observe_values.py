"""Tensors that a device of 32 bits and contiguous tensors has only by a copy or a cast are told at their lines."""

from __future__ import annotations

from collections import UserDict

import torch
import torch._dynamo
from torch import nn

from smoketest.findings import Finding, merge
from smoketest.probe.probe import ProbeResult

from .conftest import Probe


class Holds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 3).t())

    def forward(self, x: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        y = x * self.weight
        y = y + batch["returns"]
        z = y.sin().float().double() + 1
        return z.sum() * batch["ids"].sum()


class Hashes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        ids = ids[:, 1:] * 31
        ids = ids * 2654435761 % 8
        return self.table(ids)


def test_an_integer_that_needs_more_than_32_bits_is_told_at_its_line_and_the_end_of_a_slice_is_none(
    probed: Probe,
) -> None:
    result = probed(Hashes(), torch.arange(12).reshape(3, 4))
    first = Hashes.forward.__code__.co_firstlineno
    (found,) = [f for f in merge(result.observations) if f.rule == "NST207" and "32 bits" in f.message]
    assert found.site is not None
    assert (found.op, found.site.line - first) == ("aten::mul.Tensor", 2)
    assert found.message == (
        "aten::mul.Tensor computes with 2654435761, which needs more than 32 bits: a pre-release of April 2026 "
        "computed 64-bit integers as 32-bit ones, so that it possibly wraps, and nothing fails"
    )
    assert found.remedy == "Keep it below 2**31, or compute what needs it on the CPU, as part of the batch."


def probed_with(probed: Probe, x: torch.Tensor, returns: torch.Tensor) -> ProbeResult:
    batch = {"returns": returns, "ids": torch.arange(3)}
    return probed(Holds(), run_step=lambda call, _: call(x, batch).backward())


def told(result: ProbeResult) -> dict[tuple[str, int, str], Finding]:
    first = Holds.forward.__code__.co_firstlineno
    found = [f for f in merge(result.observations) if f.rule in ("NST102", "NST207") and f.site]
    return {(f.rule, f.site.line - first, f.op or ""): f for f in found if f.site}


def test_strided_inputs_and_64_bit_floats_are_told_where_they_come_in(probed: Probe) -> None:
    strided, double = torch.rand(3, 8)[:, ::2], torch.rand(3, 4, dtype=torch.float64)
    result = probed_with(probed, strided, double)
    found = told(result)
    assert found.keys() == {
        ("NST102", 1, "graph input"),
        ("NST207", 2, "graph input"),
        ("NST207", 3, "aten::_to_copy"),
    }
    assert found["NST102", 1, "graph input"].message in {
        f"{name} is not contiguous: the device's kernels take contiguous tensors only, so it is possibly copied in "
        "every call"
        for name in ("x", "self.weight")
    }
    assert found["NST102", 1, "graph input"].calls_per_step == 2
    assert found["NST102", 1, "graph input"].shapes == ("f32[3, 4]",)
    assert found["NST207", 2, "graph input"].message == (
        "batch['returns'] is of float64: the device has no 64-bit floats: under torch.compile a pre-release of April "
        "2026 computed such a graph in float32 and gave its results back as float64"
    )
    assert found["NST207", 3, "aten::_to_copy"].message.startswith("aten::_to_copy gives float64: the device has no")
    (note,) = [note for note in result.not_checked if note.what == "integers that need more than 32 bits"]
    assert note.why == (
        "no values are looked at but those that the source has, and 3 nodes and inputs of graphs are of int64, which a "
        "pre-release of April 2026 computed as 32-bit integers"
    )


class Breaking(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = x.t().sin()
        torch._dynamo.graph_break()
        return turned * 2


class Looping(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for _ in range(2):
            torch._dynamo.graph_break()
            y = self.part(x.t().sin())
        return y

    def part(self, y: torch.Tensor) -> torch.Tensor:
        return y + 1


COPIED = "is not contiguous: the device's kernels take contiguous tensors only, so it is possibly copied in every call"


def strided(probed: Probe, model: nn.Module) -> Finding:
    result = probed(model, torch.ones(2, 3, requires_grad=True))
    (found,) = (f for f in merge(result.observations) if f.rule == "NST102")
    return found


def test_what_a_step_hands_over_a_graph_break_is_told_at_the_break_and_not_of_the_batch(probed: Probe) -> None:
    found, line = strided(probed, Breaking()), Breaking.forward.__code__.co_firstlineno + 2
    assert found.site is not None
    assert found.site.line == line + 1
    assert (
        found.message == f"turned, made before the graph break of line {line} (Dynamo's source: L['turned']), {COPIED}"
    )
    assert found.remedy == (
        f"Make it contiguous before the graph break of line {line}, with `.contiguous()`, or remove that break: one "
        "graph hands nothing over."
    )


def test_what_a_step_hands_to_a_function_compiled_by_itself_is_told_so(probed: Probe) -> None:
    found = strided(probed, Looping())
    assert found.message == f"y, made earlier in the step (Dynamo's source: L['y']), {COPIED}"
    assert found.remedy == (
        "Make it contiguous where it is made, with `.contiguous()`, or remove the graph break or skipped function that "
        "lies between: one graph hands nothing over."
    )


def test_an_argument_of_the_model_that_comes_after_a_break_is_told_of_the_batch(probed: Probe) -> None:
    class Late(nn.Module):
        def forward(self, x: torch.Tensor, batch: UserDict[str, torch.Tensor]) -> torch.Tensor:
            y = x + 1
            torch._dynamo.graph_break()
            z = batch["late"]
            torch._dynamo.graph_break()
            return y * z

    late, x = torch.ones(3, 2).t(), torch.ones(2, 3, requires_grad=True)
    result = probed(Late(), run_step=lambda call, _: call(x, UserDict(late=late)).sum().backward())
    (found,) = (f for f in merge(result.observations) if f.rule == "NST102")
    assert found.message.startswith("z is not contiguous: ")
    assert found.remedy == "Make it contiguous once, before the first call, with `.contiguous()`."


def test_dense_inputs_on_a_cpu_are_not_told_of(probed: Probe) -> None:
    found = told(probed_with(probed, torch.rand(3, 4), torch.rand(3, 4)))
    assert found.keys() == {("NST102", 1, "graph input"), ("NST207", 3, "aten::_to_copy")}
    assert found["NST102", 1, "graph input"].message.startswith("self.weight is not contiguous: ")
