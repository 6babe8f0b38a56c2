"""Ctrl-C and its kin: the first one ends the run with a report, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["INTERRUPTED", "Interrupts"]

INTERRUPTED = 130
"""The exit code."""


class Interrupts:
    """While active, SIGINT, SIGTERM and SIGHUP set `name`; a second signal raises KeyboardInterrupt.

    Signals that are ignored (nohup) stay so. Outside the main thread nothing is done, since Python allows none of this
    there. Can be entered again while active.

    Attributes:
        name: the signal that came, such as ``SIGINT``; None where none did.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._before: dict[int, Any] = {}
        self._depth = 0

    def __enter__(self) -> Interrupts:
        self._depth += 1
        if self._depth == 1 and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._came)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before.clear()

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None:
            raise KeyboardInterrupt
        self.name = signal.Signals(number).name
