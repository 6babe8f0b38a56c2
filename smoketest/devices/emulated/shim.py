"""A module ``torch_neuronx`` for scripts that import it, where that package is not installed.

Its names are those of the real package's Python module ([PRE] internals, section 5), as far as a device without
hardware can answer for them. It says what it is: ``__version__`` names smoketest, ``__smoketest_emulated__`` is True.
It exists in processes that emulate the device only, and no file of it lies on the path, so that nothing which looks for
the product on a machine can take it for that; an installed torch-neuronx always comes first.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from smoketest import __version__
from smoketest.devices.emulated import neuron_module
from smoketest.devices.installed import SHIM

if TYPE_CHECKING:
    from smoketest.devices.emulated.device import EmulatedDevice

__all__ = ["NAME", "offer"]

NAME = "torch_neuronx"
_SAME_AS_TORCH_NEURON = (
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device_count",
    "empty_cache",
    "get_dynamo_metrics",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_dynamo_metrics",
    "reset_peak_memory_stats",
    "set_device",
    "set_stream",
    "stream",
    "synchronize",
)
_TRACKER = ("clear_op_tracking", "get_executed_ops", "get_fallback_ops")


def offer(device: EmulatedDevice) -> None:
    """Have ``import torch_neuronx`` find the shim in this process, unless the package is installed."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder(device))  # last: whatever is installed wins


class _Finder(MetaPathFinder, Loader):
    """Finds the one module, and makes it."""

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's spec, which says that it is no file."""
        del path, target
        return importlib.util.spec_from_loader(name, self, origin=SHIM) if name == NAME else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """None: the import system makes it."""
        del spec
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Fill it."""
        module.__doc__ = "Emulated by smoketest: not Amazon's torch-neuronx."
        contents: dict[str, Any] = {name: getattr(neuron_module, name) for name in _SAME_AS_TORCH_NEURON}
        contents |= {name: getattr(self._device, name) for name in _TRACKER}
        contents["is_neuron_runtime_initialized"] = neuron_module.is_initialized
        contents["__version__"] = f"0.0.0+smoketest.{__version__}.emulated"
        contents["__smoketest_emulated__"] = True
        contents["__all__"] = sorted(name for name in contents if not name.startswith("_"))
        vars(module).update(contents)
