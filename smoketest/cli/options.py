"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from smoketest.cli.choices import completing, metavar, one_of
from smoketest.cli.show import Form

__all__ = ["Debug", "Output", "PrintedForm", "Quiet"]

Output = Annotated[
    str,
    typer.Option("--output", metavar="DIR", help="Gets NAME/report.json, .md, .html and log/; - for stdout only."),
]
PrintedForm = Annotated[
    Form,
    typer.Option(
        "--format",
        parser=one_of(Form),
        metavar=metavar(Form),
        autocompletion=completing(Form),
        help="Form of what is printed; all but terminal need --output -.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show frames of smoketest itself in errors.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
