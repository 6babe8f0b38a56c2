"""Tensors that are printed: ops, and waits for the device, that the dispatch mode alone does not see.

PyTorch turns all modes off while it makes the text of a tensor. For one on a device of this kind it runs ops there to
find out the width of the numbers, some of which may fall back, and reads their results on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from smoketest.witness.compat import TENSOR_TEXT, tensor_printer
from smoketest.witness.dispatch import DispatchWitness, Relay

__all__ = ["Prints"]


class Prints:
    """Tells a witness of what is called while the text of a tensor is made: by ``print``, ``repr``, or in an f-string.

    What it cannot see: anything where PyTorch has its function under another name.

    Args:
        witness: told of each call.
    """

    def __init__(self, witness: DispatchWitness) -> None:
        self._witness = witness
        self._home = tensor_printer()
        self._original: Callable[..., Any] | None = None

    def __enter__(self) -> Self:
        if self._home is not None:
            original = self._original = getattr(self._home, TENSOR_TEXT)
            witness = self._witness

            def text(*args: Any, **kwargs: Any) -> Any:
                with Relay(witness):
                    return original(*args, **kwargs)

            setattr(self._home, TENSOR_TEXT, text)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._home is not None:
            setattr(self._home, TENSOR_TEXT, self._original)
