"""``smoketest show``: a report again, in another form."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoketest.cli.choices import completing, metavar, one_of

if TYPE_CHECKING:
    from smoketest.findings import Report

__all__ = ["Form", "printed", "read_report", "show"]


class Form(StrEnum):
    """Forms of a report."""

    terminal = "terminal"
    json = "json"
    markdown = "markdown"
    html = "html"
    sarif = "sarif"


def show(
    report: Annotated[Path, typer.Argument(metavar="REPORT", help="A report.json, or the folder it is in.")],
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            parser=one_of(Form),
            metavar=metavar(Form),
            autocompletion=completing(Form),
            help="How to show it.",
        ),
    ] = Form.terminal,
) -> None:
    """Show a report.json on stdout. The exit code is 0, whatever the report says."""
    from smoketest.cli.output import emit

    emit(printed(read_report(report), form))


def read_report(report: Path) -> Report:
    """The report in a file, or in the folder of one.

    Raises:
        ConfigError: it cannot be read, or is none.
    """
    from smoketest.render.json import parse

    path = report / "report.json" if report.is_dir() else report
    return parse(_read(path), name=str(path))


def printed(report: Report, form: Form) -> str:
    """The report as it goes to stdout."""
    from smoketest.cli.output import use_color, width
    from smoketest.render import render

    text = render(report, form.value, width=width(sys.stdout), color=use_color(sys.stdout))
    # A page says that it is UTF-8, whatever the locale writes: ASCII is both.
    return text.encode("ascii", "xmlcharrefreplace").decode() if form is Form.html else text


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
