"""The private PyTorch API that the witnesses stand on, in one place."""

from __future__ import annotations

import gc
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Self

import torch
import torch.autograd.graph
import torch.optim
from torch import Tensor

__all__ = [
    "ENGINE",
    "NO_SEQUENCE",
    "TENSOR_TEXT",
    "ExecutionTrace",
    "current_node",
    "has_device_kernel",
    "has_forward_hooks",
    "is_of_an_optimizer",
    "is_transformed",
    "next_sequence_number",
    "overloads_of",
    "refuses_saved_tensors_hooks",
    "registry_is_readable",
    "storage_key",
    "tensor_printer",
]

NO_SEQUENCE = 2**64 - 1
"""The sequence number of nodes that no op made: gradient accumulation into a leaf."""

TENSOR_TEXT = "_str_intern"

ENGINE: CodeType = torch.autograd.graph._engine_run_backward.__code__
"""The Python function below which the frames of ``backward`` are those of its caller, not of the op that runs."""


def current_node() -> Any | None:
    """The autograd node whose backward runs on this thread; None outside of backward."""
    return torch._C._current_autograd_node()


def next_sequence_number() -> int:
    """The number the next autograd node made on this thread gets: the one made last has this minus one."""
    number: int = torch._C._autograd._get_sequence_nr()
    return number


def tensor_printer() -> Any | None:
    """The module whose function `TENSOR_TEXT` makes the text of a tensor, all modes off; None where there is none."""
    module = getattr(torch, "_tensor_str", None)
    return module if callable(getattr(module, TENSOR_TEXT, None)) else None


def has_forward_hooks(module: torch.nn.Module) -> bool:
    """Whether a module has forward hooks of its own."""
    return bool(module._forward_hooks)


def is_of_an_optimizer(file: str) -> bool:
    """Whether a file holds one of PyTorch's optimizers, and not what all of them share, such as the hooks of `step`."""
    return file.startswith(_OPTIMIZERS) and file != _SHARED


_OPTIMIZERS = torch.optim.__file__.removesuffix("__init__.py")
_SHARED = f"{_OPTIMIZERS}optimizer.py"


def is_transformed(tensor: Tensor) -> bool:
    """Whether a tensor stands for others within a transform of `torch.func` (vmap, grad): its values cannot be read."""
    wrapped: bool = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return wrapped


def refuses_saved_tensors_hooks(error: BaseException) -> bool:
    """Whether PyTorch raised it because a transform of `torch.func` met hooks on saved tensors."""
    text = str(error)
    return isinstance(error, RuntimeError) and "torch.func" in text and "saved tensor hooks" in text


def registry_is_readable() -> bool:
    """Whether this PyTorch lets its table of kernels be read."""
    needed = ("_dispatch_has_kernel_for_dispatch_key", "_jit_get_schemas_for_operator")
    return all(callable(getattr(torch._C, name, None)) for name in needed)


def overloads_of(op: str) -> list[str]:
    """Full names of the overloads of ``aten::sort``: ``aten::sort``, ``aten::sort.values_stable`` and so on."""
    schemas = torch._C._jit_get_schemas_for_operator(op)
    return [f"{op}.{schema.overload_name}" if schema.overload_name else op for schema in schemas]


def storage_key(tensor: Tensor) -> int | None:
    """What tells the storage of a tensor from all others that are alive; None where it has none, as sparse ones."""
    try:
        key: int = tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None
    return key


def has_device_kernel(overload: str) -> bool:
    """Whether a backend registered a kernel of its own for an overload such as ``aten::add.out``."""
    try:
        found: bool = torch._C._dispatch_has_kernel_for_dispatch_key(overload, "PrivateUse1")
    except RuntimeError:  # no such overload
        return False
    return found


class ExecutionTrace:
    """PyTorch's execution trace into a file while entered, where this PyTorch has it and nobody else records one.

    Args:
        file: to write; complete when this is left.

    Attributes:
        recording: whether it records.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._observer: Any = None
        self.recording = False

    def __enter__(self) -> Self:
        kind = getattr(torch.profiler, "ExecutionTraceObserver", None)
        # PyTorch has room for one, does not say whether it is taken, and crashes where two are stopped.
        if kind is None or any(issubclass(type(each), kind) and each.is_registered for each in gc.get_objects()):
            return self
        self._observer = kind().register_callback(str(self._file))
        self._observer.start()
        self.recording = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer.unregister_callback()
