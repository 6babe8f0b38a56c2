"""Tensors to the device, wherever in a batch they sit."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["move", "tensors_in"]


def move(value: Any, device: str) -> Any:
    """A copy of `value` with its tensors on `device`.

    Lists, tuples, named tuples, mappings and dataclasses are searched, nested as they may be; so is an object with a
    ``to`` method of its own, which is asked to move itself. Everything else stays as it is. A tensor that occurs twice
    is one tensor afterwards too, and keeps whether it requires grad.
    """
    return _move(value, torch.device(device), {})


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in `value`, found where `move` finds them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name, None))
    elif _moves_itself(value):
        for item in vars(value).values() if hasattr(value, "__dict__") else ():
            yield from tensors_in(item)


def _move(value: Any, device: torch.device, done: dict[int, tuple[Any, Any]]) -> Any:
    if id(value) in done:
        return done[id(value)][1]
    moved = _moved(value, device, done)
    done[id(value)] = (value, moved)  # the original is kept, so that its id is not given away
    return moved


def _moved(value: Any, device: torch.device, done: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    if _is_own_collection(value) and _moves_itself(value):
        return value.to(device)
    if isinstance(value, tuple):
        items = [_move(item, device, done) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [_move(item, device, done) for item in value]
    if isinstance(value, dict):
        moved = copy.copy(value)
        moved.update({key: _move(item, device, done) for key, item in value.items()})
        return moved
    if isinstance(value, Mapping):
        return {key: _move(item, device, done) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _moved_dataclass(value, device, done)
    return value.to(device) if _moves_itself(value) else value


def _moved_dataclass(value: Any, device: torch.device, done: dict[int, tuple[Any, Any]]) -> Any:
    moved = copy.copy(value)
    for field in dataclasses.fields(value):
        if hasattr(value, field.name):
            object.__setattr__(moved, field.name, _move(getattr(value, field.name), device, done))  # frozen ones too
    return moved


def _is_own_collection(value: Any) -> bool:
    """Whether it is a collection with a class of its own (PackedSequence, BatchEncoding), not a built-in one."""
    return isinstance(value, (tuple, list, Mapping)) and type(value) not in (tuple, list, dict)


def _moves_itself(value: Any) -> bool:
    return callable(getattr(value, "to", None)) and not isinstance(value, (type, nn.Module, torch.device, torch.dtype))
