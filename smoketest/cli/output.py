"""Texts to people go to stderr, output for machines to stdout."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from smoketest.errors import SmoketestError

__all__ = ["emit", "error_text", "say", "use_color", "width"]


def say(text: str) -> None:
    """One message to the person, on stderr."""
    _write(sys.stderr, text.rstrip("\n") + "\n")


def emit(text: str) -> None:
    """Output asked for, on stdout."""
    _write(sys.stdout, text if text.endswith("\n") else text + "\n")


def error_text(error: SmoketestError) -> str:
    """An error as one message: the user's own frames where it was their code that raised, then what and where."""
    trace = getattr(error, "traceback", "")
    return (f"{trace.rstrip()}\n" if trace else "") + f"error: {error}"


def use_color(stream: TextIO) -> bool:
    """Whether `stream` may have colours: a terminal, and no ``NO_COLOR`` (https://no-color.org) nor ``TERM=dumb``."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width(stream: TextIO) -> int:
    """Columns to write to: the terminal's, between 40 and 120; 80 where there is none."""
    return min(120, max(40, shutil.get_terminal_size((80, 24)).columns)) if stream.isatty() else 80


def _write(stream: TextIO, text: str) -> None:
    """Write what the stream's encoding can hold; a character it has not (an ASCII locale) becomes an escape."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
