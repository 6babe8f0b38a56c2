"""The Neuron compiler at work, seen from outside: its processes among a worker's descendants.

An eager op without a prebuilt kernel starts one, and a graph that is compiled; it can take minutes, and a run that
looks hung is mostly compiling. [USER-B4] names the processes. The worker itself may be unable to say anything
meanwhile, where native code holds on to Python's lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["CompileWatch", "compilers_of"]

_NAMES = ("neuronx-cc", "walrus_driver")
_EVERY = 0.5
"""Seconds between two looks."""
_TELL_AT = (10.0, 60.0, 300.0)
"""Seconds of one compilation after which it is told; the last one again and again."""


class CompileWatch:
    """Looks for compilers of one worker.

    Args:
        pid: of the worker.
        now: seconds of a monotonic clock; as in all methods.
    """

    def __init__(self, pid: int, now: float) -> None:
        self._pid = pid
        self._next = now
        self._since: float | None = None
        self._told = 0
        self._last_seen: float | None = None

    def look(self, now: float) -> str | None:
        """Look, unless it was done just now; what to tell a person, if anything is to be told."""
        if now < self._next:
            return None
        self._next = now + _EVERY
        names = sorted(set(compilers_of(self._pid)))
        if not names:
            self._since, self._told = None, 0
            return None
        self._last_seen = now
        if self._since is None:
            self._since = now
        return self._news(now - self._since, names)

    def at_work(self) -> bool:
        """Whether one was there at the last look."""
        return self._since is not None

    def seen_since(self, moment: float) -> bool:
        """Whether one was seen after a moment."""
        return self._last_seen is not None and self._last_seen >= moment

    def _news(self, seconds: float, names: list[str]) -> str | None:
        limit = _TELL_AT[self._told] if self._told < len(_TELL_AT) else _TELL_AT[-1] * (self._told - len(_TELL_AT) + 2)
        if seconds < limit:
            return None
        self._told += 1
        return f"compiling for {seconds:.0f} s ({', '.join(names)} is at work)"


def compilers_of(pid: int) -> Iterator[str]:
    """Names of the compiler processes among the descendants of a process; none where there is no /proc."""
    for child in _children(pid):
        name = _name(child)
        if name is not None:
            yield name
        yield from compilers_of(child)


def _children(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError):  # ended by now
            found += [int(child) for child in path.read_text().split()]
    return found


def _name(pid: int) -> str | None:
    """Which compiler a process is; it may be a script, its interpreter's first argument then."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:3]
        called = {word.rpartition(b"/")[2].decode("utf-8", "replace") for word in words}
        return next((name for name in _NAMES if name in called), None)
    return None
