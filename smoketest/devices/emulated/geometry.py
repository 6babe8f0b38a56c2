"""Making device tensors, and changing which memory they are on: creation, copies, ``resize_``, ``set_``, ``out=``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoketest.devices.emulated.compat import NAME, on_cpu_key
from smoketest.devices.emulated.crossing import to_cpu, to_cpu_with_bits, to_neuron
from smoketest.devices.emulated.ranks import refuse_index

__all__ = [
    "copy_from",
    "copy_from_and_resize",
    "empty",
    "empty_strided",
    "new_empty",
    "rebind",
    "resize_",
    "set_to_nothing",
    "settle",
    "the_cpu_for",
    "zeros",
]

_CPU = torch.device("cpu")
_set_storage = on_cpu_key(torch.ops.aten.set_.source_Storage_storage_offset)


def empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> Tensor:
    """``aten::empty.memory_format`` on the device."""
    _check(layout, device)
    return to_neuron(torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format))


def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Tensor:
    """``aten::empty_strided`` on the device."""
    _check(layout, device)
    return to_neuron(torch.empty_strided(size, stride, dtype=dtype))


def new_empty(
    like: Tensor,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Tensor:
    """``aten::new_empty``: of the dtype and device of a tensor where these are left open."""
    return torch.empty(
        size, dtype=dtype or like.dtype, layout=layout, device=device or like.device, pin_memory=bool(pin_memory)
    )


def zeros(size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """``aten::_efficientzerotensor``: real zeros, for a zero tensor has no memory to share."""
    return to_neuron(torch.zeros(size, dtype=dtype))


def the_cpu_for(device: torch.device | None) -> torch.device:
    """The CPU, in the place of the one device there is.

    Raises:
        ValueError: another device of the name is asked for.
    """
    if device is not None and device.index and device.type == NAME:
        refuse_index(device.index, from_tensors=True)
    return _CPU


def _check(layout: torch.layout | None, device: torch.device | None) -> None:
    the_cpu_for(device)
    if layout not in (None, torch.strided):
        raise NotImplementedError(f"{NAME}: a tensor of layout {layout} has no place on the device")


def copy_from(source: Tensor, destination: Tensor, non_blocking: bool = False) -> Tensor:
    """``aten::_copy_from``: between the device and the CPU, and within the device; conjugate bits are followed."""
    to_cpu_with_bits(destination).copy_(to_cpu_with_bits(source))
    return destination


def copy_from_and_resize(source: Tensor, destination: Tensor) -> Tensor:
    """``aten::_copy_from_and_resize``: as `copy_from` into a destination that takes the source's size first."""
    if destination.shape != source.shape:
        destination.resize_(source.shape)
    return copy_from(source, destination)


def rebind(tensor: Tensor, storage: Any, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Put a device tensor on other memory, in place."""
    _set_storage(tensor, storage, offset, size, stride)
    return tensor


def set_to_nothing(tensor: Tensor) -> Tensor:
    """``aten::set_`` without source: the tensor becomes an empty one."""
    return rebind(tensor, empty((0,), dtype=tensor.dtype).untyped_storage(), 0, (0,), (1,))


def resize_(tensor: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """``aten::resize_``: what fits into the storage stays there, a larger one gets new memory with the old content."""
    stride = torch.empty(size, device="meta", memory_format=memory_format or torch.contiguous_format).stride()
    extent = 0 if 0 in size else 1 + sum((s - 1) * d for s, d in zip(size, stride, strict=True))
    needed = tensor.storage_offset() + extent
    storage = tensor.untyped_storage()
    held = storage.nbytes() // tensor.element_size()
    if needed > held:
        grown = torch.empty(needed, dtype=tensor.dtype)
        grown[:held].copy_(to_cpu(tensor.as_strided((held,), (1,), 0)))
        storage = to_neuron(grown).untyped_storage()
    return rebind(tensor, storage, int(tensor.storage_offset()), size, stride)


def settle(out: Any, alias: Any) -> None:
    """After an ``out=`` op: the caller's device tensor follows what the CPU op did to its alias.

    Args:
        out: what the caller passed, a tensor, a list of tensors or None.
        alias: what the CPU op was given for it; it may have been resized or replaced by a tensor with its own memory.
    """
    if not isinstance(out, Tensor):
        for one, one_alias in zip(out or (), alias or (), strict=True):
            settle(one, one_alias)
        return
    if out is alias:
        return
    if alias.is_conj() and not out.is_conj():  # linalg.lu_solve from the right sets the bit on its result
        to_cpu(out).copy_(alias.resolve_conj())
        return
    same_memory, same_shape = out.data_ptr() == alias.data_ptr(), out.shape == alias.shape
    if same_memory and same_shape and out.stride() == alias.stride():
        return
    if same_shape:  # the op ran on a tensor of its own and the size came out right: the caller's memory is kept
        to_cpu(out).copy_(alias)
    elif same_memory and alias.numel():
        rebind(out, out.untyped_storage(), int(out.storage_offset()), alias.shape, alias.stride())
    else:
        rebind(out, to_neuron(alias).untyped_storage(), 0, alias.shape, alias.stride())
