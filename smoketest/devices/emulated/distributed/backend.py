# mypy: allow-untyped-calls
"""Kernels of the c10d ops for tensors of the device, and the backend that ``init_process_group("neuron")`` makes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from smoketest.devices.emulated.compat import NAME, Overload, on_cpu_key, when_imported
from smoketest.devices.emulated.crossing import to_cpu
from smoketest.devices.emulated.distributed import compat, rules, sharding
from smoketest.devices.emulated.tracker import Tracker

__all__ = ["install"]

Kernel = Callable[..., Any]


def install(tracker: Tracker) -> None:
    """Give this process the ``neuron`` backend, where its PyTorch has process groups.

    The kernels of collectives come with the first group that has it, for looking for their ops takes milliseconds.

    Args:
        tracker: told what runs, and knows whether the device was used.
    """
    if dist.is_available() and dist.is_gloo_available():
        compat.register_backend(_maker(tracker))
        compat.move_to_the_one_device()
        compat.send_objects_by_the_device()
        when_imported("torch.distributed.tensor", sharding.install)


def _maker(tracker: Tracker) -> Callable[..., dist.ProcessGroupGloo]:
    """What PyTorch calls for each process group whose backend is ``neuron``."""
    kernels: list[torch.library.Library] = []  # as long as they are referred to, which the maker is

    def make(store: Any, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroupGloo:
        is_default = not dist.is_initialized()
        if is_default and tracker.was_used():
            raise rules.named("process_group_first").error()
        if not kernels:
            kernels.append(_install_kernels(tracker))
        return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)

    return make


def _install_kernels(tracker: Tracker) -> torch.library.Library:
    library = torch.library.Library("c10d", "IMPL")
    for op in compat.collectives():
        compat.override(library, op, _of_the_device(op, tracker), "PrivateUse1")
        # Above PyTorch's kernel for the CPU, which stays: the aliases go there.
        compat.override(library, op, _of_the_cpu(op, tracker), "AutogradCPU")
    return library


def _of_the_device(op: Overload, tracker: Tracker) -> Kernel:
    """The kernel for tensors of the device: the rules are kept, then gloo works on their CPU aliases.

    It must not keep the interpreter's lock while it is in C++: gloo's thread drops the tensors of a finished collective
    under its own lock, and needs the interpreter's for that. Redispatching gives it up, `SafeKernelFunction` does not.
    """
    name, positions, returns_tensors = op.name(), compat.takes_tensors(op), compat.returns_tensors(op)
    carry = on_cpu_key(op)

    def kernel(*args: Any) -> Any:
        group = compat.group_of(op, args)
        if not compat.has_backend(group, NAME):
            raise RuntimeError(f"No backend type associated with device type {NAME}")  # PyTorch's words
        tensors = [x for index in positions if index < len(args) for x in tree_leaves(args[index])]
        _check(op, tensors, group)
        tracker.ran(name)
        compat.give_cpu_the_same_backend(group)
        done = carry(*(tree_map(_alias, x) if index in positions else x for index, x in enumerate(args)))
        return (args[0], done[1]) if returns_tensors else done

    return kernel


def _of_the_cpu(op: Overload, tracker: Tracker) -> Kernel:
    """What precedes PyTorch's kernel for CPU tensors: a word about those that a group of the device is given.

    Not seen are those that reach the kernel below autograd, as functional collectives do.
    """
    carry, short = on_cpu_key(op), op.name().partition("::")[2].strip("_")

    def kernel(*args: Any) -> Any:
        group = compat.group_of(op, args)
        if compat.has_backend(group, NAME) and compat.serves_cpu_too(group):
            if tracker.carried_cpu(op.name()):
                warnings.warn(rules.named("cpu_tensor").message.format(op=short), UserWarning, stacklevel=2)
            compat.give_cpu_the_same_backend(group)
        return carry(*args)

    return kernel


def _check(op: Overload, tensors: list[Any], group: dist.ProcessGroup) -> None:
    dtypes = sorted({str(x.dtype).removeprefix("torch.") for x in tensors if isinstance(x, Tensor)})
    is_default = dist.group.WORLD is not None and group.group_name == dist.group.WORLD.group_name
    rules.check(op.name().partition("::")[2], dtypes, group.size(), is_default)


def _alias(x: Any) -> Any:
    """The CPU alias of a tensor.

    Raises:
        RuntimeError: its storage was freed (FSDP does that by resizing to 0): the alias would show what was there.
    """
    if isinstance(x, Tensor) and x.numel():
        last = x.storage_offset() + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
        if (last + 1) * x.element_size() > x.untyped_storage().nbytes():
            raise RuntimeError(
                f"{NAME}: a collective was given a tensor of shape {list(x.shape)} whose storage is freed"
            )
    return to_cpu(x)
