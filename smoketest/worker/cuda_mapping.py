"""``"cuda"`` in a script that is not to be changed, taken as the device (``--map-cuda``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

__all__ = ["MapCuda"]

_ASKS_THE_DEVICE = (
    "current_stream", "empty_cache", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_reserved",
    "memory_allocated", "memory_reserved", "reset_peak_memory_stats", "set_device", "synchronize", "get_device_name",
    "get_rng_state", "set_rng_state",
)  # fmt: skip
"""Functions of ``torch.cuda`` that ``torch.<device>`` has under the same name, as far as this one does."""


class MapCuda:
    """While entered, CUDA is the device: as an argument of PyTorch's functions, and as ``torch.cuda``.

    A function mode replaces the argument, of ``torch.device("cuda")`` too; a script that compares a device's type with
    "cuda" sees another one. It costs a call of Python per function of PyTorch's, in timed steps too.

    Args:
        torch_device: type of the device.

    Attributes:
        mapped: how often what was mapped, such as ``Tensor.to``.
    """

    def __init__(self, torch_device: str) -> None:
        self.mapped: Counter[str] = Counter()
        self._device = torch_device
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        self._entered.enter_context(_Mode(self._device, self.mapped))
        own = getattr(torch, self._device, None)
        answers: dict[str, Callable[..., Any]] = {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "is_bf16_supported": lambda including_emulation=True: True,
        }
        answers |= {name: found for name in _ASKS_THE_DEVICE if (found := getattr(own, name, None)) is not None}
        for name, answer in answers.items():
            self._replace(torch.cuda, name, self._counting(f"torch.cuda.{name}", answer))
        self._replace(Tensor, "cuda", self._moving("Tensor.cuda"))
        self._replace(nn.Module, "cuda", self._moving("Module.cuda"))
        self._take_device_type(torch.amp.autocast_mode.autocast, "device_type")
        self._take_device_type(torch.amp.GradScaler, "device")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.close()

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        before = getattr(owner, name)
        setattr(owner, name, value)
        self._entered.callback(setattr, owner, name, before)

    def _counting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any, **kwargs: Any) -> Any:
            self.mapped[name] += 1
            args, kwargs = _mapped((args, kwargs), self._device)
            return function(*args, **kwargs)

        return asked

    def _moving(self, name: str) -> Callable[..., Any]:
        def cuda(owner: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
            del device, kwargs
            self.mapped[name] += 1
            return owner.to(self._device, non_blocking=non_blocking)

        return cuda

    def _take_device_type(self, owner: Any, argument: str) -> None:
        """Have a class that is told a type of device by its name, first or named, take the mapped one."""
        make = owner.__init__

        def __init__(made: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            told = args[0] if args else kwargs.get(argument, "cuda" if argument == "device" else None)
            if isinstance(told, str) and _is_cuda(told):
                self.mapped[owner.__name__] += 1
                args, kwargs = (self._device, *args[1:]), {k: v for k, v in kwargs.items() if k != argument}
            make(made, *args, **kwargs)

        self._replace(owner, "__init__", __init__)


class _Mode(TorchFunctionMode):
    def __init__(self, device: str, counts: Counter[str]) -> None:
        super().__init__()
        self._device, self._counts = device, counts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(_names_cuda(value) for value in (*args, *kwargs.values())):
            self._counts[_called(func)] += 1
            args, kwargs = _mapped((args, kwargs), self._device)
        return func(*args, **kwargs)


def _called(func: Any) -> str:
    owner = getattr(func, "__objclass__", None)
    name = getattr(func, "__name__", str(func))
    return f"Tensor.{name}" if owner is not None else f"torch.{name}"


def _is_cuda(text: str) -> bool:
    return text == "cuda" or (text.startswith("cuda:") and text[5:].isdigit())


def _names_cuda(value: Any) -> bool:
    return value.type == "cuda" if isinstance(value, torch.device) else isinstance(value, str) and _is_cuda(value)


def _mapped(call: tuple[Any, Any], device: str) -> tuple[Any, Any]:
    args, kwargs = call
    return tuple(_there(value, device) for value in args), {name: _there(v, device) for name, v in kwargs.items()}


def _there(value: Any, device: str) -> Any:
    if not _names_cuda(value):
        return value
    return device if isinstance(value, str) else torch.device(device)
