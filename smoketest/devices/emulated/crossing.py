"""Crossing between the CPU and the device without a copy: the same memory under another device tag.

A tensor leaves as a DLPack capsule, the capsule's device type is rewritten, and a tensor is made from it. So a tensor
of the emulated device *is* CPU memory, and a CPU alias of it shares that memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from smoketest.devices.emulated.compat import NAME, capsule_retag, from_dlpack, to_dlpack

__all__ = [
    "CPU_TAG",
    "leave",
    "leave_plain",
    "retag",
    "same_device",
    "to_cpu",
    "to_cpu_with_bits",
    "to_neuron",
    "watchers",
]

_CPU, _EXTENSION = 1, 12  # kDLCPU, kDLExtDev
_retag = retag = capsule_retag()
CPU_TAG = _CPU
_strided = torch.strided
watchers: list[Callable[[Tensor], None]] = []
"""Called with every tensor that comes onto the device; empty unless memory is counted."""


def to_neuron(tensor: Tensor) -> Tensor:
    """The device tensor on the memory of a strided CPU tensor without conjugate or negative bit."""
    capsule = to_dlpack(tensor)
    _retag(capsule, _EXTENSION)
    made = from_dlpack(capsule)
    if watchers:
        _tell(made)
    return made


def _tell(made: Tensor) -> None:
    for watch in watchers:
        watch(made)


def to_cpu(x: Any) -> Any:
    """The CPU alias of a device tensor; CPU tensors, None and numbers pass.

    Conjugate and negative bits are dropped: PyTorch's Conjugate and Negative fallbacks resolved them before a kernel
    of the device runs.
    """
    try:
        if x.is_cpu:
            return x
    except AttributeError:
        return x
    capsule = to_dlpack(x)
    _retag(capsule, _CPU)
    return from_dlpack(capsule)


def to_cpu_with_bits(x: Any) -> Any:
    """As `to_cpu`, for the few overloads those fallbacks let through (mm, dot, ``_copy_from``): the bits are kept."""
    alias = to_cpu(x)
    if alias is not x:
        if x.is_conj():
            alias = torch._conj(alias)
        if x.is_neg():
            alias = torch._neg_view(alias)
    return alias


def same_device(enter: Callable[[Any], Any], argument: str, op: str) -> Callable[[Any], Any]:
    """As ``enter``, but a CPU tensor with dimensions is refused, as a kernel of the device refuses it.

    The first sentence is PyTorch's for mixed devices, the second the backend's own ([PRE] ``Operation`` base rule,
    internals 2.3: any non-0-dim tensor argument that is not on the device raises, it does not fall back).

    Raises:
        RuntimeError: the argument is a CPU tensor of one or more dimensions.
    """

    plain = enter is to_cpu

    def checked(x: Any) -> Any:
        if plain and isinstance(x, Tensor) and not x.is_cpu:  # to_cpu written out: a call less for every argument
            capsule = to_dlpack(x)
            _retag(capsule, _CPU)
            return from_dlpack(capsule)
        alias = enter(x)
        if alias is x and isinstance(x, Tensor) and x.dim():
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 and cpu! "
                f"Non-scalar tensor {argument} is on cpu device, expected {NAME} ({op})"
            )
        return alias

    return checked


def leave(result: Any) -> Any:
    """The device's tensor for what a CPU op returned; lists are crossed item by item, numbers and None pass.

    Raises:
        NotImplementedError: a sparse or otherwise not strided result, for which the device has no layout.
    """
    if not isinstance(result, Tensor):
        return [leave(item) for item in result] if isinstance(result, list) else result
    if result.layout is not _strided:
        raise NotImplementedError(f"{NAME}: a result of layout {result.layout} has no place on the device")
    if result.is_conj() or result.is_neg():
        result = result.resolve_conj().resolve_neg()
    capsule = to_dlpack(result)
    _retag(capsule, _EXTENSION)
    made = from_dlpack(capsule)
    if watchers:
        _tell(made)
    return made


def leave_plain(result: Any) -> Any:
    """As `leave`, cheaper: for an op that got no conjugate or negative bits and returns no view, as most do."""
    if isinstance(result, Tensor) and not result.is_complex() and result.layout is _strided:
        capsule = to_dlpack(result)
        _retag(capsule, _EXTENSION)
        made = from_dlpack(capsule)
        if watchers:
            _tell(made)
        return made
    return leave(result)
