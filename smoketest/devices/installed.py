"""Is the genuine torch-neuronx installed? Answered from package metadata; nothing of it, nor torch, is imported."""

from __future__ import annotations

import importlib.util
import re
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path

from smoketest.errors import DeviceUnavailable
from smoketest.extras import NEURONX, NEURONX_INDEX

__all__ = ["BUSY", "FIRST", "LIMIT", "SHIM", "find_problem", "is_there"]

FIRST, LIMIT = (2, 13, 3), (2, 15)
"""Native releases this package drives: 2.13.3 and up to, not with, 2.15 ([PUB] release notes: 2.13.3.0, 2.14.3.0)."""

BUSY = re.compile(r"Logical Neuron Core\(s\) not available|cores busy", re.IGNORECASE)
"""What the first use of a device says while another process holds its cores. [USER-B4]"""

SHIM = "emulated by smoketest"
"""Origin of the module ``torch_neuronx`` that the emulated device brings, which is no product."""

_OLDER_PARTS = ("xla_impl", "pyhlo")
"""[INFER] from what the XLA-based product has and beta 3 has not [USER canallee]; as in smoketest/doctor/facts.py."""

_NATIVE = f"{NEURONX} from {NEURONX_INDEX}"
_INSTALL = f"{_NATIVE}, on a Trn2 or Trn3 machine, or run with --device emulated"


def is_there() -> bool:
    """Whether anything is installed that calls itself torch-neuronx, usable or not."""
    try:
        metadata.version("torch-neuronx")
    except metadata.PackageNotFoundError:
        return _module() is not None
    return True


def _module() -> ModuleSpec | None:
    """Where a module ``torch_neuronx`` would come from; None where there is none, or the emulated device's own."""
    found = importlib.util.find_spec("torch_neuronx")
    return None if found is None or found.origin == SHIM else found


def find_problem() -> DeviceUnavailable | None:
    """What keeps torch-neuronx from being used, as the error to raise; None when it looks usable.

    The distribution name is shared by three products: the native backend, the older XLA-based one (2.9 and before,
    [PUB] troubleshooting page) and a placeholder on PyPI (1.0).
    """
    try:
        version = metadata.version("torch-neuronx")
    except metadata.PackageNotFoundError:
        if _module() is not None:
            return DeviceUnavailable(
                "there is a module torch_neuronx, but no distribution torch-neuronx: it is not Amazon's",
                hint="remove it from the path, then " + _INSTALL,
            )
        return DeviceUnavailable("torch-neuronx is not installed", hint=_INSTALL)
    number = tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
    if number[:2] == (1, 0):
        return DeviceUnavailable(
            f"torch-neuronx {version} is PyPI's empty placeholder, not the backend",
            hint=_NATIVE,
        )
    if number < FIRST:
        return DeviceUnavailable(
            f"torch-neuronx {version} is not a native release this package drives: up to 2.9 it is the XLA-based "
            "product, 2.11 and 2.12 were closed betas",
            hint=f"in an environment of its own, without torch-xla: {_NATIVE}",
        )
    if number >= LIMIT:
        return DeviceUnavailable(
            f"torch-neuronx {version} is newer than this package knows (below 2.15)",
            hint=f"upgrade smoketest, or {_NATIVE}",
        )
    module = _module()
    if module is None:
        return DeviceUnavailable(
            f"torch-neuronx {version} is installed but has no module torch_neuronx",
            hint=f"{NEURONX} --force-reinstall from {NEURONX_INDEX}",
        )
    parts = _older_parts([Path(folder) for folder in module.submodule_search_locations or ()])
    if parts:
        return DeviceUnavailable(
            f"torch-neuronx {version} has parts of the older XLA-based product: {', '.join(parts)}",
            hint=f"in a fresh environment, without torch-xla: {_NATIVE}",
        )
    return None


def _older_parts(folders: list[Path]) -> list[str]:
    """Parts that the XLA-based product has; a number alone does not tell the two apart ([USER] a report of 2.9.0.2.12).

    The native one never had them ([USER] beta 3).
    """
    return [name for name in _OLDER_PARTS if any((folder / name).is_dir() for folder in folders)]
