"""``smoketest compare``: what changed from one report to another."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from smoketest.cli.choices import completing, metavar, one_of

__all__ = ["compare"]


class ComparisonForm(StrEnum):
    """Forms of a comparison."""

    terminal = "terminal"
    json = "json"
    markdown = "markdown"


def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A report.json, or the folder it is in.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Another one.")],
    form: Annotated[
        ComparisonForm,
        typer.Option(
            "--format",
            parser=one_of(ComparisonForm),
            metavar=metavar(ComparisonForm),
            autocompletion=completing(ComparisonForm),
            help="How to show it.",
        ),
    ] = ComparisonForm.terminal,
) -> None:
    """Compare two reports: before and after an edit or a new release, two models, a prediction and a device run.

    New, worse, better and fixed findings are told, with what else is not the same. The exit code is 1 where NEW denies
    what OLD, of the same model, did not have or had less of; else 0.
    """
    from smoketest.cli.output import emit, use_color, width
    from smoketest.cli.show import read_report
    from smoketest.gate.compare import compare as compared
    from smoketest.render.comparison import render

    result = compared(read_report(old), read_report(new))
    emit(render(result, form.value, width=width(sys.stdout), color=use_color(sys.stdout)))
    raise typer.Exit(result.exit_code)
