"""Distinct signatures of a step: what an eager device compiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from smoketest.witness.signatures import OpSignature, SignatureMode, Signatures, moved

F32 = torch.float32


def seen(step: Any, *arguments: Any) -> list[OpSignature]:
    """Signatures of what `step` computes, the CPU standing for the device: nothing here is the device's own."""
    signatures = Signatures("cpu")
    with SignatureMode(signatures):
        step(*arguments)
    return signatures.compiled()


def texts(found: list[OpSignature]) -> list[str]:
    return [f"{signature.op} on {signature.text()}" for signature in found]


def test_an_op_is_compiled_once_for_each_of_its_shapes_and_dtypes() -> None:
    def step() -> None:
        for size in (2, 3, 2, 3):
            torch.ones(size).exp()
        torch.ones(2, dtype=torch.float64).exp()

    assert [text for text in texts(seen(step)) if "exp" in text] == [
        "aten::exp on f32[2]", "aten::exp on f32[3]", "aten::exp on f64[2]",
    ]  # fmt: skip


def test_views_plain_copies_and_empty_tensors_are_not_compiled_and_casts_are() -> None:
    x, empty = torch.ones(4, 6), torch.ones(0)

    def step() -> None:
        x.t()
        x.view(24).detach()[2:]
        x.clone()
        torch.empty_like(x).copy_(x)
        empty.exp()
        x.to(torch.bfloat16)

    assert texts(seen(step)) == ["aten::_to_copy on f32[4, 6]"]


def test_a_foreach_op_without_a_kernel_is_compiled_for_each_tensor_of_its_lists() -> None:
    values = [torch.ones(2), torch.ones(3), torch.ones(2)]
    assert texts(seen(torch._foreach_addcmul_, values, values, values)) == [
        "aten::_foreach_addcmul_.Scalar on f32[2], f32[2], f32[2]",
        "aten::_foreach_addcmul_.Scalar on f32[3], f32[3], f32[3]",
    ]


def test_ops_of_other_devices_are_not_compiled() -> None:
    signatures = Signatures("meta")
    with SignatureMode(signatures):
        torch.ones(3).exp()
        torch.ones(3, device="meta").sin()
    assert [signature.op for signature in signatures.compiled()] == ["aten::ones", "aten::sin"]


def test_an_op_that_fell_back_once_is_not_compiled() -> None:
    signatures, x = Signatures("cpu"), torch.ones(3)
    signatures.note(torch.ops.aten.exp.default, (x,), {}, x, ())
    signatures.note(torch.ops.aten.sin.default, (x,), {}, x, ())
    signatures.note(torch.ops.aten.exp.default, (torch.ones(4),), {}, x, ("aten::exp.out",))
    assert [signature.op for signature in signatures.compiled()] == ["aten::sin"]
    assert signatures.compiled({"aten::sin"}) == []


class Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu().sum()


@pytest.mark.parametrize(("rows", "new"), [(6, 0), (8, 7)])
def test_a_second_step_compiles_nothing_unless_shapes_move(rows: int, new: int) -> None:
    model = Padded()
    first = seen(lambda: model(torch.ones(6, 4)).backward())
    model.zero_grad()
    second = seen(lambda: model(torch.ones(rows, 4)).backward())
    fresh = [signature for signature in second if signature not in first]
    assert len(fresh) == new
    told = moved(fresh, first)
    assert len(told) == new
    if new:
        assert "aten::relu on f32[8, 4], after f32[6, 4]" in told


def test_what_moved_is_told_once_for_each_op_before_any_is_told_twice() -> None:
    def made(op: str, size: int) -> OpSignature:
        return OpSignature(op, ((F32, (size,)),))

    told = moved([made("a", size) for size in range(2, 12)] + [made("b", 7)], [made("a", 1)])
    assert told[:3] == ("a on f32[2], after f32[1]", "b on f32[7]", "a on f32[3], after f32[1]")
    assert len(told) == 8


def test_a_long_list_of_tensors_is_cut_in_words_and_whole_in_the_signature() -> None:
    signature = OpSignature("aten::cat", ((F32, (2,)),) * 7)
    assert signature.text() == "f32[2], f32[2], f32[2], f32[2], …"
