"""Dispatch modes under which PyTorch goes the way that it goes without one, where it is known to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["WatchingMode", "tensors_of"]


class WatchingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The base of all modes that watch a step of the user's, which are to change nothing in it.

    Without a mode `torch.ctc_loss` copies lengths that are tensors to the host and goes on with numbers. Under one it
    keeps the tensors, so that the two copies go unseen, and lengths that are on the CPU, as they may well be, meet the
    losses of the device and raise (torch 2.13, ATen/native/LossCTC.cpp). While a mode is entered they are made numbers
    of before the call, by the same copies.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._patched: list[ExitStack] = []

    def __enter__(self) -> Self:
        patched = ExitStack()
        patched.enter_context(_lengths_as_numbers())
        self._patched.append(patched)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._patched.pop().close()


@contextmanager
def _lengths_as_numbers() -> Iterator[None]:
    """``torch.ctc_loss`` with lengths as numbers; one imported from torch by its own name beforehand stays as it is."""
    original = torch.ctc_loss
    torch.ctc_loss = _with_numbers(original)
    try:
        yield
    finally:
        torch.ctc_loss = original


def _with_numbers(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def ctc_loss(
        log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *args: Any, **kwargs: Any
    ) -> Any:
        lengths = (input_lengths, target_lengths)
        if all(isinstance(given, Tensor) and not given.is_floating_point() for given in lengths):
            input_lengths, target_lengths = map(_numbers, lengths)
        return original(log_probs, targets, input_lengths, target_lengths, *args, **kwargs)

    return ctc_loss


def _numbers(lengths: Tensor) -> list[int]:
    on_host = lengths.to("cpu", torch.long)
    numbers: list[int] = (on_host if on_host.dim() == 1 else on_host.flatten()).tolist()
    return numbers


def tensors_of(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among what an op is given or gives, those in lists and tuples too."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_of(value)
