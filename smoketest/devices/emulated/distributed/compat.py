# mypy: allow-untyped-calls
"""The private PyTorch API of process groups, in one place. ``DRIFT`` lists it; a test fails when a name goes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from smoketest.devices.emulated.compat import NAME, Overload, has_kernel
from smoketest.operators.functional import overload

__all__ = [
    "DRIFT",
    "collectives",
    "give_cpu_the_same_backend",
    "group_of",
    "handle_in_dtensor",
    "has_backend",
    "move_to_the_one_device",
    "override",
    "register_backend",
    "returns_tensors",
    "send_objects_by_the_device",
    "serves_cpu_too",
    "takes_tensors",
]

DRIFT = (
    "torch.distributed.ProcessGroup._register_backend",
    "torch.distributed.distributed_c10d._get_object_coll_device",
    "torch._C._dispatch_get_all_op_names",
    "torch.distributed.ProcessGroup._get_backend",
    "torch.distributed.ProcessGroup.unbox",
    "torch.distributed.ProcessGroupGloo",
    "torch.distributed.utils._recursive_to",
    "torch.distributed.tensor.DTensor._op_dispatcher._custom_op_handlers",
)

_NAMESPACE = "c10d::"


def collectives() -> list[Overload]:
    """The c10d ops a process group carries tensors of the device with."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith(_NAMESPACE)]
    return [_overload(name) for name in sorted(names) if has_kernel(name, "PrivateUse1")]


def _overload(name: str) -> Overload:
    op: Overload = getattr(torch.ops.c10d, name.removeprefix(_NAMESPACE)).default
    return op


def takes_tensors(op: Overload) -> list[int]:
    """Positions of the arguments that are tensors, or lists of them, or lists of lists."""
    return [index for index, argument in enumerate(op._schema.arguments) if "Tensor" in str(argument.type)]


def returns_tensors(op: Overload) -> bool:
    """Whether the op returns what it was given first, beside the work."""
    return len(op._schema.returns) == 2


def group_of(op: Overload, args: tuple[Any, ...]) -> dist.ProcessGroup:
    """The process group among the arguments."""
    for argument, value in zip(op._schema.arguments, args, strict=False):
        if "ProcessGroup" in str(argument.type):
            group: dist.ProcessGroup = dist.ProcessGroup.unbox(value)
            return group
    raise TypeError(f"{op.name()} has no process group")


def has_backend(group: dist.ProcessGroup, device: str) -> bool:
    """Whether the group carries tensors of a device type."""
    try:
        group._get_backend(torch.device(device))
    except RuntimeError:
        return False
    return True


def serves_cpu_too(group: dist.ProcessGroup) -> bool:
    """Whether the group's backend for CPU tensors is the one of the device, or it has none."""
    if not has_backend(group, "cpu"):
        return True
    of_the_cpu, of_the_device = group._get_backend(torch.device("cpu")), group._get_backend(torch.device(NAME))
    return of_the_cpu is of_the_device


def give_cpu_the_same_backend(group: dist.ProcessGroup) -> None:
    """Have PyTorch's kernels for CPU tensors, which the aliases are, find gloo in a group of the device."""
    if not has_backend(group, "cpu"):
        custom = dist.ProcessGroup.BackendType.CUSTOM
        group._register_backend(torch.device("cpu"), custom, group._get_backend(torch.device(NAME)))


def send_objects_by_the_device() -> None:
    """Have collectives of Python objects make tensors of the device in its groups, as where these are all they take.

    PyTorch would take the CPU wherever the group has a backend for it.
    """
    from torch.distributed import distributed_c10d

    plain: Any = distributed_c10d._get_object_coll_device

    def device_for_objects(group: Any = None) -> Any:
        chosen = plain(group)
        group = group or dist.group.WORLD
        return NAME if chosen == "cpu" and has_backend(group, NAME) and serves_cpu_too(group) else chosen

    distributed_c10d._get_object_coll_device = device_for_objects


def override(library: torch.library.Library, op: Overload, kernel: Callable[..., Any], key: str) -> None:
    """Register a kernel, in the place of PyTorch's where it has one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        library.impl(op.name().removeprefix(_NAMESPACE), kernel, key, allow_override=True)


def handle_in_dtensor(name: str, handler: Callable[..., Any]) -> None:
    """Have DTensor compute an op by ``handler(op, args, kwargs)``, arguments and results being DTensors."""
    from torch.distributed.tensor import DTensor

    op = overload(name)
    assert op is not None, name
    DTensor._op_dispatcher._custom_op_handlers[op] = handler


def register_backend(make: Callable[..., Any]) -> None:
    """Make ``init_process_group("neuron")`` known, and the default where the device is."""
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, make, devices=[NAME])


def move_to_the_one_device() -> None:
    """Have DDP and FSDP leave inputs alone that are on the device, whatever index they were told.

    Tensors of every process say index 0 here. DDP with ``device_ids=[local_rank]`` compares that with the local rank,
    and would copy every input once more than on the device.
    """
    from torch.distributed import utils

    plain: Any = utils._recursive_to

    def recursive_to(inputs: Any, target_device: torch.device, *args: Any, **kwargs: Any) -> Any:
        here = torch.device(NAME, 0) if target_device.type == NAME else target_device
        return plain(inputs, here, *args, **kwargs)

    utils._recursive_to = recursive_to
