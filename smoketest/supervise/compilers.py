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
_SLOW_AT = (60.0, 300.0)
"""The same of a phase in which no compiler is seen."""


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
        self._phase = now
        self._slow_told = 0

    def look(self, now: float, phase_began: float) -> str | None:
        """Look, unless it was done just now; what to tell a person, if anything is to be told.

        Args:
            now: this moment.
            phase_began: when what the worker is at began.
        """
        if now < self._next:
            return None
        self._next = now + _EVERY
        if phase_began != self._phase:
            self._phase, self._slow_told = phase_began, 0
        names = sorted(set(compilers_of(self._pid)))
        if not names:
            self._since, self._told = None, 0
            return self._slow(now - max(phase_began, self._last_seen or phase_began))
        self._last_seen = now
        if self._since is None:
            self._since = now
        if now - self._since < _limit(_TELL_AT, self._told):
            return None
        self._told += 1
        return f"compiling for {now - self._since:.0f} s ({', '.join(names)} is at work)"

    def at_work(self) -> bool:
        """Whether one was there at the last look."""
        return self._since is not None

    def seen_since(self, moment: float) -> bool:
        """Whether one was seen after a moment."""
        return self._last_seen is not None and self._last_seen >= moment

    def _slow(self, seconds: float) -> str | None:
        if seconds < _limit(_SLOW_AT, self._slow_told):
            return None
        self._slow_told += 1
        return f"at it for {seconds:.0f} s; what is called first is compiled, though no compiler is seen"


def _limit(limits: tuple[float, ...], told: int) -> float:
    """Seconds after which something is told that was told so often already."""
    return limits[told] if told < len(limits) else limits[-1] * (told - len(limits) + 2)


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
