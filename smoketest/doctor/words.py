"""Words the lines share."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

from smoketest.doctor.limited import Ended, Ending, NotStarted, TimedOut
from smoketest.doctor.observed import Step


def ending_words(ending: Ending, well: str = "ended") -> str:
    """How a process ended, as the end of a sentence."""
    if isinstance(ending, NotStarted):
        return f"does not start ({ending.reason})"
    if isinstance(ending, TimedOut):
        return f"did not answer within {ending.seconds:.0f} s" if ending.seconds else "was not run: the time was over"
    if ending.code < 0:
        return f"was killed by {signal_name(-ending.code)}"
    return f"ended with status {ending.code}" if ending.code else well


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGSEGV."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def failure(step: Step, ending: Ending) -> str:
    """Why a step did not end well."""
    return short(step.error) if step.state == "raised" else f"the process {ending_words(ending)}"


def last_line(ending: Ended) -> str:
    """The last thing a command said."""
    lines = [line.strip() for line in f"{ending.out}\n{ending.err}".splitlines() if line.strip()]
    return short(lines[-1]) if lines else "it said nothing"


def short(text: str, limit: int = 240) -> str:
    """One line of at most `limit` characters."""
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def parse_json(text: str) -> Any:
    """The value; None where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def count(number: int, one: str, many: str | None = None) -> str:
    """A number and its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(count: int) -> str:
    """Bytes for a person."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def dotted(number: tuple[int, ...]) -> str:
    """A release number."""
    return ".".join(map(str, number))
