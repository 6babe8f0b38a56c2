"""``smoketest validate``: mistakes in checks, found without running user code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["validate"]


def validate(
    configs: Annotated[
        list[Path], typer.Argument(metavar="CONFIG|DIR...", help="Checks (YAML), or folders of checks.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a value, e.g. training.steps=5; repeatable."),
    ] = None,
) -> None:
    """Find mistakes in checks without running any of your code.

    Syntax, keys, types, files, and the names of functions and classes are looked at. The exit code is 2 where one is
    wrong.
    """
    from smoketest.cli.output import error_text, say
    from smoketest.config.load import find_checks, load_check
    from smoketest.errors import ConfigError

    wrong = False
    for path in find_checks(configs):
        try:
            check = load_check(path, overrides or [])
        except ConfigError as error:
            wrong = True
            say(error_text(error))
        else:
            say(f"{path}: ok ({check.name})")
    if wrong:
        raise typer.Exit(2)
