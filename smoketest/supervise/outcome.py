"""How a part of a check can end, and what was seen of it on the way."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from smoketest.findings import Finding, NotChecked
from smoketest.findings.report import FitPart, Kind, PartStatus, Step
from smoketest.supervise import protocol
from smoketest.supervise.signals import INTERRUPTED

__all__ = [
    "EXIT_ORDER",
    "OTHERS",
    "Crashed",
    "EndedWithOthers",
    "Failed",
    "Interrupted",
    "Outcome",
    "Ran",
    "Record",
    "Seen",
    "Skipped",
    "TimedOut",
    "describe_death",
]

EXIT_ORDER = (0, 1, 2, 4, 3, 5, INTERRUPTED)
"""From best to worst (design, section 7)."""
OTHERS = "since another rank came to no end"
"""What is said of a rank that another one is to blame for."""


@dataclass(frozen=True)
class Ran:
    """The worker sent its result."""

    result: protocol.Result


@dataclass(frozen=True)
class Skipped:
    """The part was never started."""

    reason: str


@dataclass(frozen=True)
class Crashed:
    """The worker died without a result.

    Attributes:
        reason: what it died of and where, one sentence.
        tail: the last lines it printed.
    """

    reason: str
    tail: str = ""


@dataclass(frozen=True)
class TimedOut:
    """The worker was stopped: its time was up, or it gave no sign of life.

    Attributes:
        seconds: that it had.
        what: which time was up.
        where: what it was doing, as of `Breadcrumb.sentence`; empty where that stands in `what`.
    """

    seconds: float
    what: str
    where: str = ""

    @property
    def reason(self) -> str:
        """Both, as one sentence."""
        return f"{self.what} and was stopped {self.where}" if self.where else self.what


@dataclass(frozen=True)
class Failed:
    """The part ended with an error that has a message of its own."""

    error: protocol.Failed


@dataclass(frozen=True)
class Interrupted:
    """A person, or the system, asked for the run to end."""

    reason: str


@dataclass(frozen=True)
class EndedWithOthers:
    """One of several ranks, ended since another one came to no end; that one tells why."""

    reason: str


Outcome = Ran | Skipped | Crashed | TimedOut | Failed | Interrupted | EndedWithOthers


@dataclass(frozen=True)
class Seen:
    """What a worker sent up to its end, whatever that was.

    Attributes:
        facts: what was run where.
        steps: of the eager part.
        findings: the last that it sent.
        notes: what was not checked.
        kinds: of the strict part: why ops with a kernel ran on the CPU, by functional base name.
        problem: of the strict part: what its step raised.
        fit: of the eager part: whether the job fits, as far as it was told.
    """

    facts: protocol.Facts | None = None
    steps: tuple[Step, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[NotChecked, ...] = ()
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    problem: str | None = None
    fit: FitPart | None = None


@dataclass(frozen=True)
class Record:
    """A part of a check, over."""

    outcome: Outcome
    seen: Seen = field(default_factory=Seen)

    @property
    def status(self) -> PartStatus:
        """As in the report."""
        match self.outcome:
            case Ran(result):
                part = result.eager or result.compile or result.parity
                return part.status if part else "ran"
            case Skipped():
                return "skipped"
            case Crashed():
                return "crashed"
            case TimedOut():
                return "timed_out"
            case Failed() | Interrupted() | EndedWithOthers():
                return "failed"

    @property
    def reason(self) -> str | None:
        """Why the part did not run to its end; None where it did."""
        match self.outcome:
            case Ran(result):
                part = result.eager or result.compile or result.parity
                return part.reason if part else None
            case Skipped(reason) | Interrupted(reason) | EndedWithOthers(reason):
                return reason
            case TimedOut() as late:
                return late.reason
            case Crashed(reason, tail):
                return f"{reason}\n{tail}" if tail else reason
            case Failed(error):
                hint = f"  hint: {error.hint}" if error.hint else ""
                parts = (error.message, hint, error.traceback.rstrip(), error.debug.rstrip())
                return "\n".join(text for text in parts if text)


def describe_death(code: int, part: str, where: str) -> str:
    """What a worker died of and where: ``the eager worker crashed with SIGSEGV in step 2, backward``.

    Args:
        code: as of `subprocess.Popen.returncode`: an exit code, or minus a signal's number.
        part: which worker.
        where: as of `Breadcrumb.sentence`.
    """
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        text = f"the {part} worker crashed with {name} {where}"
        return text + (" (the system does this when memory runs out)" if name == "SIGKILL" else "")
    return f"the {part} worker exited with code {code} {where}"
