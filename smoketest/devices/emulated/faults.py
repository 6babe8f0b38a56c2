"""Kernels that compute wrongly, for tests of what finds them: a device of this package has none of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from smoketest.devices.emulated.crossing import to_cpu

__all__ = ["FAULTS", "Fault"]

Fault = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Calls a kernel with these arguments, and is wrong about it."""


def off_by_one_percent(kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give results that are 1 % too large, new ones or those that the kernel writes."""
    result = kernel(*args, **kwargs)
    for out in _results(result):
        to_cpu(out).mul_(1.01)
    return result


def ignores_strides(kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Read tensors as if they lay in memory row by row."""
    return kernel(*(_row_by_row(value) for value in args), **kwargs)


def uninitialised(kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Leave in results whatever was in memory before: any bits."""
    result = kernel(*args, **kwargs)
    generator = torch.Generator("cpu").manual_seed(0)  # the step's own random numbers stay as they are
    for out in _results(result):
        alias = to_cpu(out)
        alias.copy_(torch.randint(0, 256, (alias.nbytes,), dtype=torch.uint8, generator=generator)
                    .view(alias.dtype).view(alias.shape))  # fmt: skip
    return result


FAULTS: dict[str, Fault] = {
    "off_by_one_percent": off_by_one_percent,
    "ignores_strides": ignores_strides,
    "uninitialised": uninitialised,
}
"""Ways to be wrong, by name."""


def _results(result: Any) -> list[Tensor]:
    items = result if isinstance(result, (tuple, list)) else [result]
    return [item for item in items if isinstance(item, Tensor) and item.is_floating_point()]


def _row_by_row(value: Any) -> Any:
    if not isinstance(value, Tensor) or value.is_contiguous():
        return value
    strides: list[int] = []
    below = 1
    for length in reversed(value.shape):
        strides.insert(0, below)
        below *= max(length, 1)
    return value.as_strided(value.shape, strides, value.storage_offset())
