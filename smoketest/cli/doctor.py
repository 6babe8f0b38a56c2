"""``smoketest doctor``: can this machine run on device ``neuron``?"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from smoketest.cli.choices import completing, metavar, one_of

__all__ = ["Form", "doctor"]


class Form(StrEnum):
    """Forms of a diagnosis."""

    text = "text"
    json = "json"


def doctor(
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            parser=one_of(Form),
            metavar=metavar(Form),
            autocompletion=completing(Form),
            help="How to show it.",
        ),
    ] = Form.text,
) -> None:
    """Say whether this machine can run on device neuron, and what to do first where it cannot.

    Takes less than a minute, asks no network and runs no op. Exits 0 where it can, 3 where it cannot.
    """
    from smoketest.cli.output import emit, use_color, width
    from smoketest.doctor import examine, render_json, render_text

    diagnosis = examine().map_texts(_without_names)
    if form is Form.json:
        emit(render_json(diagnosis))
    else:
        emit(render_text(diagnosis, width=width(sys.stdout), color=use_color(sys.stdout)))
    raise typer.Exit(diagnosis.exit_code)


def _without_names(text: str) -> str:
    """The text without the names of this person and machine, so that it can be pasted anywhere."""
    import getpass
    import platform
    from pathlib import Path

    from smoketest.render.scrub import scrub

    try:
        user, home = getpass.getuser(), str(Path.home())
    except (OSError, KeyError, RuntimeError):
        user, home = "", ""
    return scrub(text, home=home, user=user, host=platform.node())
