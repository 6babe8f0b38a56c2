"""``smoketest show``: a report again, in another form."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Form", "show"]


class Form(StrEnum):
    """Forms of a report."""

    terminal = "terminal"
    json = "json"
    markdown = "markdown"
    html = "html"


def show(
    report: Annotated[Path, typer.Argument(metavar="REPORT", help="A report.json, or the folder it is in.")],
    form: Annotated[Form, typer.Option("--format", help="How to show it.")] = Form.terminal,
) -> None:
    """Show a report.json on stdout. The exit code is 0, whatever the report says."""
    from smoketest.cli.output import emit, use_color, width
    from smoketest.render import render
    from smoketest.render.json import parse

    path = report / "report.json" if report.is_dir() else report
    text = _read(path)
    emit(render(parse(text, name=str(path)), form.value, width=width(sys.stdout), color=use_color(sys.stdout)))


def _read(path: Path) -> bytes:
    from smoketest.errors import ConfigError, Place

    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"cannot be read: {reason}",
            place=Place(str(path)),
            hint="`smoketest run` leaves one in reports/NAME/report.json",
        ) from None
