"""Tensors to the device, wherever in a batch they sit."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["change_tensors", "move", "tensors_in"]

Change = Callable[[Tensor], Tensor]


def move(value: Any, device: str) -> Any:
    """A copy of `value` with its tensors on `device`.

    Lists, tuples, named tuples, mappings and dataclasses are searched, nested as they may be; so is an object with a
    ``to`` method of its own, which is asked to move itself. Everything else stays as it is. A tensor that occurs twice
    is one tensor afterwards too, and keeps whether it requires grad.
    """
    there = torch.device(device)

    def moved(tensor: Tensor) -> Tensor:
        return tensor.detach().to(there).requires_grad_(tensor.requires_grad)

    return _changed(value, moved, lambda own: own.to(there), {})


def change_tensors(value: Any, change: Change) -> Any:
    """A copy of `value` with each tensor changed that `move` would move; an object that moves itself stays as it is."""
    return _changed(value, change, lambda own: own, {})


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


def _changed(value: Any, change: Change, own: Callable[[Any], Any], done: dict[int, tuple[Any, Any]]) -> Any:
    """`value` with `change` applied to its tensors and `own` to objects that move themselves."""
    if id(value) not in done:
        # The original is kept, so that its id is not given away.
        done[id(value)] = (value, _once(value, change, own, done))
    return done[id(value)][1]


def _once(value: Any, change: Change, own: Callable[[Any], Any], done: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if _is_own_collection(value) and _moves_itself(value):
        return own(value)

    def inside(item: Any) -> Any:
        return _changed(item, change, own, done)

    if isinstance(value, tuple):
        items = [inside(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [inside(item) for item in value]
    if isinstance(value, dict):
        changed = copy.copy(value)
        changed.update({key: inside(item) for key, item in value.items()})
        return changed
    if isinstance(value, Mapping):
        return {key: inside(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _changed_dataclass(value, inside)
    return own(value) if _moves_itself(value) else value


def _changed_dataclass(value: Any, inside: Callable[[Any], Any]) -> Any:
    changed = copy.copy(value)
    for field in dataclasses.fields(value):
        if hasattr(value, field.name):
            object.__setattr__(changed, field.name, inside(getattr(value, field.name)))  # frozen ones too
    return changed


def _is_own_collection(value: Any) -> bool:
    """Whether it is a collection with a class of its own (PackedSequence, BatchEncoding), not a built-in one."""
    return isinstance(value, (tuple, list, Mapping)) and type(value) not in (tuple, list, dict)


def _moves_itself(value: Any) -> bool:
    return callable(getattr(value, "to", None)) and not isinstance(value, (type, nn.Module, torch.device, torch.dtype))
