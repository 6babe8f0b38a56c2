"""A diagnosis as text and as JSON: pure functions."""

from __future__ import annotations

import json
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from smoketest.doctor.lines import Diagnosis, Line

__all__ = ["SCHEMA_VERSION", "render_json", "render_text"]

SCHEMA_VERSION = "1.0"

_COLOURS = {"ok": "32", "warn": "33", "fail": "31", "unknown": "36"}
_VERDICT, _TOPIC = 10, 18
"""Columns of the first two."""


def render_text(diagnosis: Diagnosis, *, width: int = 80, color: bool = False) -> str:
    """The diagnosis for a person, worst news first, ending in a newline.

    Args:
        diagnosis: what was found.
        width: columns, at least 60.
        color: whether verdicts are coloured; nothing else ever is.
    """
    width = max(width, 60)
    lines = [_headline(diagnosis), *_wrap(diagnosis.advice(), width, ""), ""]
    for line in diagnosis.lines:
        lines += _line(line, width, color)
    lines += ["", "Without Trainium"]
    for line in diagnosis.emulated:
        lines += _line(line, width, color)
    return "\n".join(lines) + "\n"


def render_json(diagnosis: Diagnosis) -> str:
    """The diagnosis for a program: indented JSON, ending in a newline."""
    cause = diagnosis.cause
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "ok": diagnosis.ok,
        "exit_code": diagnosis.exit_code,
        "cause": None if cause is None else cause.topic,
        "advice": _printable(diagnosis.advice()),
        "lines": _objects(diagnosis.lines),
        "emulated": _objects(diagnosis.emulated),
    }
    return json.dumps(content, indent=2) + "\n"


def _headline(diagnosis: Diagnosis) -> str:
    return f"smoketest doctor: this machine {'looks' if diagnosis.ok else 'is not'} fit for device neuron"


def _line(line: Line, width: int, color: bool) -> Iterator[str]:
    """What was found; where that is not right, what was expected and what to do."""
    verdict = line.verdict.ljust(_VERDICT - 2)
    shown = f"\x1b[{_COLOURS[line.verdict]}m{verdict}\x1b[0m" if color else verdict
    indent = " " * (_VERDICT + _TOPIC)
    first, *rest = _wrap(line.found, width, indent)
    yield f"  {shown}{line.topic.ljust(_TOPIC)}{first[len(indent) :]}"
    yield from rest
    if line.verdict in ("warn", "fail"):
        yield from _wrap(f"expected: {line.expected}", width, indent)
    if line.advice:
        yield from _wrap(f"do: {line.advice}", width, indent)


def _wrap(text: str, width: int, indent: str) -> list[str]:
    """Printable lines of at most `width` columns; a word longer than that is broken."""
    return textwrap.wrap(
        _printable(text), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    ) or [indent]


def _objects(lines: Iterable[Line]) -> list[dict[str, str]]:
    return [
        {
            "topic": line.topic,
            "found": _printable(line.found),
            "expected": line.expected,
            "verdict": line.verdict,
            "advice": _printable(line.advice),
        }
        for line in lines
    ]


def _printable(text: str) -> str:
    """The text with control characters, which could rearrange a terminal, as escapes."""
    return "".join(
        character.encode("unicode_escape", "surrogatepass").decode("ascii")
        if unicodedata.category(character)[0] == "C"
        else character
        for character in text
    )
