"""Copies between device and host that no call of the user's asks for: on a real device only.

A pre-release moved tensors through two functions of its extension module, also inside kernels that count as native
([PRE] internals 2.9: its own tests replace them to count). They are looked for, not assumed.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any, Self

__all__ = ["FUNCTIONS", "Copies", "extension"]

FUNCTIONS = ("_nrt_copy_neuron_to_cpu_tensor", "_nrt_copy_cpu_to_neuron_tensor")


def extension() -> ModuleType | None:
    """The backend's extension module, where it is loaded and has the functions."""
    try:
        module = importlib.import_module("torch_neuronx._C")
    except Exception:  # absent, or another product's, which may raise what it likes
        return None
    return module if all(callable(getattr(module, name, None)) for name in FUNCTIONS) else None


class Copies:
    """Counts the backend's copies while entered, by thread.

    It sees copies that go through Python; those that C++ makes itself it does not.

    Args:
        module: the extension module, as `extension` found it.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._originals: dict[str, Callable[..., Any]] = {}
        self._counts: dict[int, int] = {}

    def __enter__(self) -> Self:
        for name in FUNCTIONS:
            self._originals[name] = getattr(self._module, name)
            setattr(self._module, name, self._counting(self._originals[name]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, original in self._originals.items():
            setattr(self._module, name, original)

    def take(self) -> int:
        """Copies on this thread since it last asked."""
        return self._counts.pop(threading.get_ident(), 0)

    def _counting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def copy(*args: Any, **kwargs: Any) -> Any:
            thread = threading.get_ident()
            self._counts[thread] = self._counts.get(thread, 0) + 1
            return original(*args, **kwargs)

        return copy
