"""Texts to people go to stderr, output for machines to stdout."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from smoketest.errors import SmoketestError

__all__ = ["emit", "error_text", "open_streams", "printable", "say", "use_color", "width"]


def open_streams() -> None:
    """Make stderr of this process one that never fails, and open what of stdin, stdout and stderr is closed.

    Progress and messages are not worth a run: where their reader is gone (``2>&1 | head``) or the disk is full they
    are dropped. A closed number would be given to the next file that is opened, and workers would write into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number: this one
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    raw = _Dropping(2, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors="backslashreplace", line_buffering=True
    )


class _Dropping(io.FileIO):
    """A file that drops what it cannot write."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


_MOST = 9
"""Mistakes of one check shown after its first one."""


def say(text: str) -> None:
    """One message to the person, on stderr."""
    _write(sys.stderr, text.rstrip("\n") + "\n")


def emit(text: str) -> None:
    """Output asked for, on stdout. A reader that has seen enough and went away (``| head``) is no error.

    Raises:
        SmoketestError: stdout is closed, or cannot take it.
    """
    from smoketest.errors import SmoketestError

    if sys.stdout is None:
        raise SmoketestError("the output cannot be written: stdout is closed")
    try:
        _write(sys.stdout, text if text.endswith("\n") else text + "\n")
    except OSError as error:
        _close_stdout()
        if not isinstance(error, BrokenPipeError):
            raise SmoketestError(f"the output cannot be written: {error.strerror}") from None


def error_text(error: SmoketestError) -> str:
    """An error as one message: the user's own frames where it was their code that raised, then what and where."""
    trace = getattr(error, "traceback", "")
    others = getattr(error, "others", ())
    lines = [*([trace.rstrip()] if trace else []), f"error: {error}", *(f"error: {other}" for other in others[:_MOST])]
    left = len(others[_MOST:])
    return printable("\n".join([*lines, *([f"… and {left} more"] if left else [])]))


def printable(text: str) -> str:
    """The text without what steers a terminal: messages can hold bytes of files, and whatever user code raises."""
    return "".join(c if c in "\n\t" or c.isprintable() else f"\\x{_byte(c):02x}" for c in text)


def _byte(character: str) -> int:
    """Its code point; of a byte in a file's name that is not UTF-8 (PEP 383: from U+DC80 on), that byte."""
    code = ord(character)
    return code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code


def use_color(stream: TextIO | None) -> bool:
    """Whether `stream` may have colours: a terminal, and no ``NO_COLOR`` (https://no-color.org) nor ``TERM=dumb``."""
    if stream is None or not stream.isatty():
        return False
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width(stream: TextIO | None) -> int:
    """Columns to write to: the terminal's, between 40 and 120; 80 where there is none, or the stream is closed."""
    if stream is None:
        return 80
    try:
        return min(120, max(40, os.get_terminal_size(stream.fileno()).columns))
    except (OSError, ValueError):  # not a terminal, or no file at all
        return 80


def _write(stream: TextIO, text: str) -> None:
    """Write what the stream's encoding can hold; a character it has not (an ASCII locale) becomes an escape."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _close_stdout() -> None:
    """Nothing more can be written, and Python shall not try at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
