"""The process that this one depends on. Both sides of a run use it; it imports nothing of the package."""

from __future__ import annotations

import ctypes
import signal
import sys

__all__ = ["end_with_parent"]

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def end_with_parent() -> bool:
    """Have the system kill this process as soon as the thread that started it is dead, however that one died.

    A pipe that closes tells a process the same, but only where it gets to look: not while native code holds the GIL.
    What this process starts is not covered, and asks for itself.

    Returns:
        Whether the system does: Linux only.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        failed: int = ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    except (OSError, AttributeError):  # a C library without it, or none to load
        return False
    return failed == 0
