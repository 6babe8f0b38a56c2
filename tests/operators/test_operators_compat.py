"""What this room uses of PyTorch's private API is there."""

from __future__ import annotations

import functools

import pytest
import torch

from smoketest.operators import compat


@pytest.mark.parametrize("name", compat.DRIFT)
def test_private_api_is_there(name: str) -> None:
    first, *rest = name.split(".")
    assert first == "torch"
    assert functools.reduce(getattr, rest, torch) is not None, f"{name}: see where operators/compat.py uses it"


def test_they_answer_what_is_asked() -> None:
    assert {"aten::add.out", "aten::mm"} <= set(compat.aten_overloads())
    assert compat.aten_overloads() == sorted(compat.aten_overloads())
    assert compat.has_kernel("aten::add.out", "PrivateUse1", "CPU")
    assert not compat.has_kernel("aten::reshape", "CPU")
    assert torch.ops.aten.silu_backward.default in compat.stock_decompositions()
    written = [compat.writes(argument) for argument in torch.ops.aten.add.out._schema.arguments]
    assert written == [False, False, False, True]
