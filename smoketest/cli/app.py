"""The command line: its commands, and how every ending becomes a message and an exit code.

Modules of commands import what they need inside their functions: ``--help`` is to be there at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from smoketest.cli import compare, doctor, explain, init, operators, run, schema, script, show, signals, validate
from smoketest.cli.output import error_text, open_streams, printable, say
from smoketest.errors import SmoketestError
from smoketest.supervise.signals import INTERRUPTED

__all__ = ["app", "run_app"]

app = typer.Typer(
    name="smoketest",
    help="What in a PyTorch model will not run on AWS Trainium, where in the code it is, and what to write instead.",
    epilog="Exit codes: 0 clean, 1 findings, 2 wrong check or usage, 3 device not usable, 4 your code fails, "
    "5 crash or timeout, 130 interrupted.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("script")(script.script)
app.command("init")(init.init)
app.command("validate")(validate.validate)
app.command("show")(show.show)
app.command("compare")(compare.compare)
app.command("explain")(explain.explain)
app.command("schema")(schema.schema)
app.command("doctor")(doctor.doctor)
app.add_typer(operators.app, name="operators")


def _version(wanted: bool) -> None:
    if wanted:
        from smoketest import __version__

        typer.echo(f"smoketest {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where in smoketest itself an error came from.")] = False,
) -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise SmoketestError(
            f"the current folder cannot be used: {error.strerror}", hint="change to one that is there"
        ) from None


def run_app() -> NoReturn:
    """Run the command line of this process and exit."""
    try:
        open_streams()
        signals.raise_interrupt()
        code = _exit_code()
    except signals.Interrupted:
        say("interrupted")
        code = INTERRUPTED
    signals.ignore()
    sys.exit(code)


def _exit_code() -> int | str | None:
    """Run the command line; every ending but an interruption has become a message."""
    debug = "--debug" in sys.argv
    try:
        app(prog_name="smoketest")
    except SystemExit as done:
        return done.code
    except SmoketestError as error:
        if debug:
            _show_traceback()
        say(error_text(error))
        return error.exit_code
    except Exception as error:
        if debug:
            _show_traceback()
        first = str(error).partition("\n")[0][:300]
        hint = "" if debug else "\n  hint: `smoketest --debug ...` shows where"
        say(printable(f"internal error: {type(error).__name__}: {first}{hint}"))
        return 5
    return 0


def _show_traceback() -> None:
    import traceback

    traceback.print_exc()
