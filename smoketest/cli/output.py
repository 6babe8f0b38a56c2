"""Texts to people go to stderr, output for machines to stdout."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from smoketest.errors import SmoketestError

__all__ = ["emit", "error_text", "printable", "say", "use_color", "width"]


_MOST = 9
"""Mistakes of one check shown after its first one."""


def say(text: str) -> None:
    """One message to the person, on stderr."""
    _write(sys.stderr, text.rstrip("\n") + "\n")


def emit(text: str) -> None:
    """Output asked for, on stdout."""
    _write(sys.stdout, text if text.endswith("\n") else text + "\n")


def error_text(error: SmoketestError) -> str:
    """An error as one message: the user's own frames where it was their code that raised, then what and where."""
    trace = getattr(error, "traceback", "")
    others = getattr(error, "others", ())
    lines = [*([trace.rstrip()] if trace else []), f"error: {error}", *(f"error: {other}" for other in others[:_MOST])]
    left = len(others[_MOST:])
    return printable("\n".join([*lines, *([f"… and {left} more"] if left else [])]))


def printable(text: str) -> str:
    """The text without what steers a terminal: messages can hold bytes of files, and whatever user code raises."""
    return "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def use_color(stream: TextIO) -> bool:
    """Whether `stream` may have colours: a terminal, and no ``NO_COLOR`` (https://no-color.org) nor ``TERM=dumb``."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width(stream: TextIO) -> int:
    """Columns to write to: the terminal's, between 40 and 120; 80 where there is none."""
    try:
        return min(120, max(40, os.get_terminal_size(stream.fileno()).columns))
    except (OSError, ValueError):  # not a terminal, or no file at all
        return 80


def _write(stream: TextIO, text: str) -> None:
    """Write what the stream's encoding can hold; a character it has not (an ASCII locale) becomes an escape."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
