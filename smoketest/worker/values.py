"""Values that user code keeps as attributes or in an optimizer's state: what of them can be kept and given back.

Numbers, texts, tensors, generators of random numbers (PyTorch's, NumPy's, Python's) and lists, dicts, sets and the like
of these. An object of another class is not: nobody knows what it holds.
"""

from __future__ import annotations

import collections
import enum
import os
import random
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["CannotKeep", "Keeper", "give_back", "size_of", "storage_of", "tensors_of"]

_DEPTH = 6
_MOST_ITEMS = 200_000
_PLAIN = (int, float, bool, complex, str, bytes, type(None))
_FIXED = (
    torch.dtype, torch.device, torch.layout, torch.Size, enum.Enum, type, types.ModuleType, types.FunctionType,
    types.BuiltinFunctionType, types.MethodType,
)  # fmt: skip
"""What a step does not change."""
_CONTAINERS = (list, tuple, set, frozenset, collections.deque)
_DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


class CannotKeep(Exception):
    """A value that cannot be kept or given back; the text names its class."""


@dataclass(frozen=True)
class _Left:
    """Something to leave as it is: it does not change, or it is the model's own memory, which is kept elsewhere."""


@dataclass(frozen=True)
class _Tensor:
    """A tensor: its values on the CPU, whether it was on the CPU, whether autograd gives it a gradient, and its memory:
    the process, and the address there.
    """

    values: Tensor
    on_cpu: bool
    is_leaf: bool
    memory: tuple[int, int]


@dataclass(frozen=True)
class _Generator:
    cls: type
    state: Any


@dataclass(frozen=True)
class _Items:
    cls: type
    items: list[Any]


@dataclass(frozen=True)
class _Dict:
    cls: type
    items: dict[Any, Any]


class Keeper:
    """Makes copies of values.

    Args:
        own: tensors that are kept elsewhere, the model's parameters and buffers. What shares memory with one is left.
    """

    def __init__(self, own: Iterator[Tensor]) -> None:
        self._own = {storage_of(tensor) for tensor in own} - {0}
        self._items = 0

    def keep(self, value: Any, depth: int = 0) -> Any:
        """A copy of `value` that can be written to a file. Raises `CannotKeep`."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, _FIXED):
            return _Left()
        numpy = sys.modules.get("numpy")
        if numpy is not None and type(value) is numpy.ndarray and value.dtype != object:
            return value.copy()
        if numpy is not None and isinstance(value, numpy.generic):
            return value
        state = _state_of(value)
        if state is not None:
            return _Generator(type(value), state)
        self._count(value, depth)
        if type(value) in _CONTAINERS:
            return _Items(type(value), [self.keep(item, depth + 1) for item in value])
        if type(value) in _DICTS and all(_is_key(key) for key in value):
            return _Dict(type(value), {key: self.keep(item, depth + 1) for key, item in value.items()})
        raise CannotKeep(f"a {type(value).__name__}")

    def _tensor(self, tensor: Tensor) -> _Tensor | _Left:
        memory = storage_of(tensor)
        if memory in self._own:
            return _Left()
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.grad_fn is not None:
            raise CannotKeep(f"a {type(tensor).__name__} that autograd made")
        values = tensor.detach().to("cpu", copy=True)
        return _Tensor(values, tensor.device.type == "cpu", tensor.requires_grad, (os.getpid(), memory))

    def _count(self, value: Any, depth: int) -> None:
        if type(value) in (*_CONTAINERS, *_DICTS):
            self._items += len(value)
            if depth >= _DEPTH or self._items > _MOST_ITEMS:
                raise CannotKeep(f"a {type(value).__name__} with too much in it")


def give_back(now: Any, kept: Any, device: str, *, in_place: bool = False) -> Any:
    """What to put in the place of `now`: often itself, with what was kept put into it.

    Args:
        now: what is there; None where nothing is.
        kept: what a `Keeper` made.
        device: where tensors go that were not on the CPU.
        in_place: write into a tensor of the same shape whatever memory it has. Else only into the very one that was
            kept: the one that is there now can be a view of the batch.

    Raises:
        CannotKeep: there is nothing now that this could be put into.
    """
    if isinstance(kept, _Left):
        return now
    if isinstance(kept, _Tensor):
        return _tensor_back(now, kept, device, in_place)
    if isinstance(kept, _Generator):
        if type(now) is not kept.cls:
            raise CannotKeep(f"a {kept.cls.__name__}")
        _set_state(now, kept.state)
        return now
    if isinstance(kept, _Items):
        return _items_back(now, kept, device, in_place)
    if isinstance(kept, _Dict):
        return _dict_back(now, kept, device, in_place)
    return kept


def _tensor_back(now: Any, kept: _Tensor, device: str, in_place: bool) -> Tensor:
    values = kept.values
    fits = isinstance(now, Tensor) and now.shape == values.shape and now.dtype == values.dtype and now.grad_fn is None
    the_same = fits and kept.memory == (os.getpid(), storage_of(now))
    if fits and (in_place or the_same or now.requires_grad):
        given: Tensor = now.copy_(values)
        return given
    if kept.is_leaf:
        raise CannotKeep("a tensor with a gradient of its own")
    return values.clone().to("cpu" if kept.on_cpu else device)


def _items_back(now: Any, kept: _Items, device: str, in_place: bool) -> Any:
    same = type(now) is kept.cls
    ordered = same and kept.cls not in (set, frozenset)
    before = list(now) if ordered else []
    items = []
    for place, item in enumerate(kept.items):
        if isinstance(item, _Left) and place >= len(before):
            raise CannotKeep(f"a {kept.cls.__name__}")
        there = before[place] if place < len(before) else None
        items.append(give_back(there, item, device, in_place=in_place))
    if same and len(before) == len(items) and all(a is b for a, b in zip(before, items, strict=True)):
        return now
    if not same or kept.cls in (tuple, frozenset):
        return kept.cls(items)
    now.clear()
    (now.update if kept.cls is set else now.extend)(items)
    return now


def _dict_back(now: Any, kept: _Dict, device: str, in_place: bool) -> Any:
    same = type(now) is kept.cls
    before = dict(now) if same else {}
    if any(isinstance(item, _Left) and key not in before for key, item in kept.items.items()):
        raise CannotKeep(f"a {kept.cls.__name__}")
    items = {key: give_back(before.get(key), item, device, in_place=in_place) for key, item in kept.items.items()}
    if not same:
        if kept.cls is collections.defaultdict:
            raise CannotKeep("a defaultdict")
        return kept.cls(items)
    now.clear()
    now.update(items)
    return now


def tensors_of(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """The tensors in a value and in the containers in it, as deep as a `Keeper` looks."""
    if isinstance(value, Tensor):
        yield value
    elif depth <= _DEPTH and isinstance(value, (*_CONTAINERS, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(item, depth + 1)


def size_of(tensor: Tensor) -> int:
    """Bytes of a copy of a tensor."""
    if tensor.layout is not torch.strided:
        return int(tensor.element_size() * (tensor._nnz() if tensor.layout is torch.sparse_coo else 0))
    return tensor.nbytes


def storage_of(tensor: Tensor) -> int:
    """Address of a tensor's memory; 0 where it has none."""
    try:
        return tensor.untyped_storage().data_ptr() if tensor.numel() else 0
    except (RuntimeError, NotImplementedError):  # a sparse one, or a subclass without storage
        return 0


def _is_key(key: Any) -> bool:
    return isinstance(key, (*_PLAIN, *_FIXED)) or (type(key) is tuple and all(_is_key(part) for part in key))


def _state_of(value: Any) -> Any:
    """The state of a generator of random numbers; None for anything else."""
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return value.getstate()
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(value) is numpy.random.Generator:
        return value.bit_generator.state
    if numpy is not None and type(value) is numpy.random.RandomState:
        return value.get_state()
    return None


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)
