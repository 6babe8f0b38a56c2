"""What this room uses of PyTorch's private API. ``DRIFT`` lists it; a test fails when a release takes it away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._decomp
from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = ["DRIFT", "aten_overloads", "fake_tensors", "has_kernel", "stock_decompositions", "writes"]

DRIFT = (
    "torch._C._dispatch_get_all_op_names",
    "torch._C._dispatch_has_kernel_for_dispatch_key",
    "torch._decomp.decomposition_table",
    "torch._ops.OpOverload",
    "torch._ops.OpOverloadPacket",
    "torch._subclasses.fake_tensor.FakeTensorMode",
    "torch.ops.aten.add.out._schema",
)


def aten_overloads() -> list[str]:
    """Names of all ATen overloads this torch knows, sorted: ``aten::add.out``."""
    return sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))


def has_kernel(name: str, *keys: str) -> bool:
    """Whether an overload has a kernel registered under exactly one of these dispatch keys."""
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)


def fake_tensors() -> FakeTensorMode:
    """A mode under which tensors have shapes and dtypes and no memory; real ones may be given to it too."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def stock_decompositions() -> dict[Any, Callable[..., Any]]:
    """All decompositions that PyTorch has, by overload."""
    return dict(torch._decomp.decomposition_table)


def writes(argument: Any) -> bool:
    """Whether an op writes to an argument of its schema."""
    return argument.alias_info is not None and bool(argument.alias_info.is_write)
