"""How much memory this machine has, or what it lets this process have."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["machine_memory"]

_UNLIMITED = 2**60
"""cgroup v1 writes a number beyond any memory where there is no limit."""


def machine_memory(root: Path = Path("/")) -> int | None:
    """Bytes of physical memory, or of the control group's limit where that is less; None where neither is told.

    Args:
        root: of the file system.
    """
    found = [limit for limit in (_physical(), *_group_limits(root)) if limit is not None and 0 < limit < _UNLIMITED]
    return min(found, default=None)


def _physical() -> int | None:
    with contextlib.suppress(ValueError, OSError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _group_limits(root: Path) -> list[int | None]:
    """Limits of the control groups, of version 2 and 1: the one seen as the root, and this process's own path."""
    groups = root / "sys/fs/cgroup"
    places = [groups / "memory.max", groups / "memory/memory.limit_in_bytes"]
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                places += [folder / "memory.max" for folder in _upwards(groups, path)]
            elif "memory" in controllers.split(","):
                places += [folder / "memory.limit_in_bytes" for folder in _upwards(groups / "memory", path)]
    return [_number(place) for place in places]


def _upwards(top: Path, path: str) -> list[Path]:
    """The folder of a control group and those around it: the tightest limit counts."""
    parts = [part for part in path.split("/") if part]
    return [top.joinpath(*parts[:count]) for count in range(len(parts), 0, -1)]


def _number(place: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(place.read_text())
    return None
