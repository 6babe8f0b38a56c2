"""Progress on a terminal: one line a part, kept up to date in place."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from smoketest.supervise import protocol
from smoketest.supervise.progress import loss

__all__ = ["LiveProgress"]

_MARKS = {"ran": ("✓", "green"), "skipped": ("-", "dim")}


@dataclass
class _Part:
    """What is shown of a part."""

    text: str = "starting"
    loss: str = ""
    status: str | None = None
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    spinner: Spinner = field(default_factory=lambda: Spinner("dots"))


class LiveProgress:
    """A live display of the check that runs.

    Args:
        console: on the terminal's stderr.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._parts: dict[str, _Part] = {}
        self._name = ""
        self._steps = self._done = 0

    def check_started(self, name: str, log: str, steps: int) -> None:
        """Begin the display."""
        self._name, self._steps, self._done, self._parts = name, steps, 0, {}
        self._console.print(Text(f"{name}: what your code prints goes to {log}", style="dim"))
        self._live = Live(
            console=self._console, get_renderable=self._render, transient=True, refresh_per_second=8,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._live.start()

    def part_started(self, part: str) -> None:
        """Add the part's line."""
        self._parts[part] = _Part()

    def event(self, part: str, message: protocol.Message) -> None:
        """Change the part's line."""
        shown = self._parts.setdefault(part, _Part())
        match message:
            case protocol.PhaseStarted(name=name, step=None):
                shown.text = name
            case protocol.PhaseStarted(name=name, role=role):
                shown.text = f"step {self._done + 1}/{self._steps}{f' ({role})' if role else ''} {name}"
            case protocol.StepDone(step=step):
                self._done += 1
                shown.text = f"step {self._done}/{self._steps} ({step.role}) done"
                shown.loss = loss(step.loss)
            case protocol.Progress(what=what, done=done, total=total):
                shown.text = f"{what} {done}/{total}"

    def part_ended(self, part: str, status: str, reason: str | None) -> None:
        """Say on the part's line how it ended."""
        shown = self._parts.setdefault(part, _Part())
        shown.status, shown.ended = status, time.monotonic()
        shown.text = status.replace("_", " ") + (f": {reason.splitlines()[0]}" if reason else "")

    def note(self, text: str) -> None:
        """Print a line above the display."""
        self._console.print(Text(f"{self._name}: {text}"))

    def check_ended(self) -> None:
        """Take the display away; the report follows."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        return Group(*(self._line(name, part) for name, part in list(self._parts.items())))

    def _line(self, name: str, part: _Part) -> RenderableType:
        seconds = (part.ended or time.monotonic()) - part.started
        text = Text(f"{name}: {part.text}{part.loss if part.status is None else ''}  {seconds:.0f} s")
        text.truncate(max(10, self._console.width - 4), overflow="ellipsis")
        if part.status is None:
            part.spinner.update(text=text)
            return part.spinner
        mark, style = _MARKS.get(part.status, ("✗", "red"))
        return Text.assemble((f"{mark} ", style), text)
