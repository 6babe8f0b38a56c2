"""The process that this one depends on. Both sides of a run use it; it imports nothing of the package."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

__all__ = ["adopt_orphans", "end_with_parent", "kill_strays"]

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 20


def end_with_parent() -> bool:
    """Have the system kill this process as soon as the thread that started it is dead, however that one died.

    A pipe that closes tells a process the same, but only where it gets to look: not while native code holds the GIL.
    What this process starts is not covered, and asks for itself.

    Returns:
        Whether the system does: Linux only.
    """
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> bool:
    """Have this process become the parent of what its descendants leave behind, so that `kill_strays` finds it.

    Returns:
        Whether the system does it: Linux only.
    """
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_strays() -> None:
    """Kill the children of this process that are in another session, and what these leave behind, and reap them.

    Those of its own session end with its group. Only where there is a /proc that names children.
    """
    session = os.getsid(0)
    for _ in range(_ROUNDS):  # killing one may make its children ours
        strays = [child for child in _children() if _session_of(child) not in (session, None)]
        if not strays:
            return
        for child in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _children() -> list[int]:
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that is gone
            found += [int(child) for child in path.read_text().split()]
    return found


def _session_of(process: int) -> int | None:
    try:
        return os.getsid(process)
    except OSError:
        return None


def _prctl(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        failed: int = ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
    except (OSError, AttributeError):  # a C library without it, or none to load
        return False
    return failed == 0
