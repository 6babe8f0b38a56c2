"""Ctrl-C and its kin outside of a run, which has its own way to end: the command ends with 130 and no traceback."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

from smoketest.supervise.signals import INTERRUPTED

__all__ = ["Interrupted", "end_quietly", "ignore", "raise_interrupt"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """One of these signals came. No KeyboardInterrupt, of which the command line parser makes an ending of its own."""


def end_quietly() -> None:
    """Have these signals end the process at once: for a time in which there is nothing to clear up."""
    _handle(_end)


def raise_interrupt() -> None:
    """Have them raise `Interrupted`, so that what was begun is cleared up."""
    _handle(_raise)


def ignore() -> None:
    """The command is over, and its exit code is settled."""
    _handle(signal.SIG_IGN)


def _handle(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Set the handler of each that is not ignored: with nohup, SIGHUP stays so."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted
