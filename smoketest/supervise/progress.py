"""What a person sees while a check runs: an interface, and its form for anything that is not a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from smoketest.supervise import protocol

__all__ = ["LineProgress", "NoProgress", "Progress"]


class Progress(Protocol):
    """Told what happens; shows it or not."""

    def check_started(self, name: str, log: str, steps: int) -> None:
        """A check began; what its workers print goes to the folder `log`; the eager part has `steps` steps."""

    def part_started(self, part: str) -> None:
        """A worker was started."""

    def event(self, part: str, message: protocol.Message) -> None:
        """A worker sent a message."""

    def part_ended(self, part: str, status: str, reason: str | None) -> None:
        """A part is over, in the words of the report."""

    def note(self, text: str) -> None:
        """Something else to know, one line."""

    def check_ended(self) -> None:
        """The check is over."""


class NoProgress:
    """Shows nothing."""

    def check_started(self, name: str, log: str, steps: int) -> None:
        """Show nothing."""

    def part_started(self, part: str) -> None:
        """Show nothing."""

    def event(self, part: str, message: protocol.Message) -> None:
        """Show nothing."""

    def part_ended(self, part: str, status: str, reason: str | None) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""

    def check_ended(self) -> None:
        """Show nothing."""


class LineProgress:
    """One line for what is worth one: steps, phases outside of steps, every quarter of a count, ends of parts.

    Args:
        write: takes a line without its newline.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._name = ""
        self._steps = self._done = 0
        self._started = 0.0
        self._shown: dict[tuple[str, str], int] = {}

    def check_started(self, name: str, log: str, steps: int) -> None:
        """Say which check runs and where its output goes."""
        self._name, self._steps, self._done, self._started = name, steps, 0, time.monotonic()
        self._shown.clear()
        self._line(f"started; what your code prints goes to {log}")

    def part_started(self, part: str) -> None:
        """Say that a worker starts."""
        self._line(f"{part}: starting")

    def event(self, part: str, message: protocol.Message) -> None:
        """Say what is worth a line."""
        match message:
            case protocol.PhaseStarted(name=name, step=None):
                self._line(f"{part}: {name}")
            case protocol.StepDone(step=step):
                self._done += 1
                self._line(f"{part}: step {self._done}/{self._steps} ({step.role}) done{loss(step.loss)}")
            case protocol.Progress(what=what, done=done, total=total) if total > 0:
                quarter = 4 * done // total
                if quarter > self._shown.get((part, what), 0):
                    self._shown[part, what] = quarter
                    self._line(f"{part}: {what} {done}/{total}")

    def part_ended(self, part: str, status: str, reason: str | None) -> None:
        """Say how a part ended."""
        self._line(f"{part}: {status.replace('_', ' ')}" + (f": {reason.splitlines()[0]}" if reason else ""))

    def note(self, text: str) -> None:
        """Say it."""
        self._line(text)

    def check_ended(self) -> None:
        """Say how long it took."""
        self._line(f"done in {time.monotonic() - self._started:.1f} s")

    def _line(self, text: str) -> None:
        self._write(f"{self._name}: {text}")


def loss(value: float | None) -> str:
    """``, loss 5.54``; empty where there is none."""
    return "" if value is None else f", loss {value:.4g}"
