# mypy: allow-untyped-calls
"""The private PyTorch API of process groups, in one place. ``DRIFT`` lists it; a test fails when a name goes."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves

from smoketest.devices.emulated.compat import NAME, Overload, has_kernel
from smoketest.operators.functional import overload

__all__ = [
    "DRIFT",
    "collectives",
    "group_of",
    "handle_in_dtensor",
    "has_backend",
    "move_to_the_one_device",
    "override",
    "register_backend",
    "returns_tensors",
    "takes_tensors",
    "the_kernel",
]

DRIFT = (
    "torch.Tensor._use_count",
    "torch._C._storage_Use_Count",
    "torch.library.get_kernel",
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


def the_kernel(op: Overload, key: str) -> Callable[..., Any]:
    """The kernel that is registered under a dispatch key now, whatever replaces it later; called with all arguments.

    It is called with the interpreter's lock held, and waits for gloo's. Gloo's thread drops the tensors of a finished
    collective under its own lock, and needs the interpreter's for that where Python made them, or what their memory
    belongs to: each would wait for the other. So Python keeps them until gloo does not.
    """
    kernel = torch.library.get_kernel(op, key)
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.__members__[key])

    def call(*args: Any) -> Any:
        _IN_USE.hold(x for x in tree_leaves(args) if isinstance(x, torch.Tensor))
        return kernel.call_boxed(keys, *args)

    return call


class _InUse:
    """Tensors that C++ may still hold, or views of their memory, each once."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[torch.Tensor, int]] = {}
        self._lock = threading.Lock()  # a backward's collectives run in a thread of their own

    def hold(self, tensors: Iterable[torch.Tensor]) -> None:
        """Keep these, and let go of those that nobody holds beyond what held them when they came."""
        with self._lock:
            self._kept = {key: (x, own) for key, (x, own) in self._kept.items() if _owners(x) > own}
            self._kept.update((id(x), (x, _owners(x))) for x in tensors)


def _owners(tensor: Any) -> int:
    """How many refer to a tensor or to its memory."""
    count: int = tensor._use_count() + torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return count


_IN_USE = _InUse()
"""Of the process: gloo's threads are the process's as well."""


def override(library: torch.library.Library, op: Overload, kernel: Callable[..., Any], key: str) -> None:
    """Put a kernel in the place of PyTorch's."""
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
