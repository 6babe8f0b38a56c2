"""Tensors that are printed: a host synchronisation that the dispatch mode alone does not see.

PyTorch turns all modes off while it makes the text of a tensor, and copies one that is on a device to the host for it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from smoketest.witness.compat import tensor_printer

__all__ = ["Prints"]


class Prints:
    """Tells of each tensor whose text is made while this is entered: by ``print``, ``repr``, an f-string or a logger.

    What it cannot see: a tensor inside code that keeps a reference of its own to PyTorch's function; nothing at all
    where PyTorch has it under another name.

    Args:
        told: called with the tensor before its text is made.
    """

    def __init__(self, told: Callable[[Tensor], None]) -> None:
        self._told = told
        self._home = tensor_printer()
        self._original: Callable[..., Any] | None = None

    def __enter__(self) -> Self:
        if self._home is not None:
            original = self._original = self._home._str
            told = self._told

            def text(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
                told(tensor)
                return original(tensor, *args, **kwargs)

            self._home._str = text
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._home is not None:
            self._home._str = self._original
