"""``smoketest init``: a first check for a model, found by trying."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from smoketest.config.draft import Draft

__all__ = ["init"]


def init(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="package.module:Model, file.py:Model, a transformers config class, or a file that has make_model.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="The check to write; NAME.yaml here by default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    timeout: Annotated[int, typer.Option("--timeout", min=1, help="Seconds to look for inputs that fit.")] = 120,
) -> None:
    """Write a first check for a model: it is built and called on plain CPU until two training steps succeed.

    A constructor's defaults are taken and forward's arguments are found by trial; what had to be guessed is marked in
    the file. Where no step succeeds a template is written, which says what to change, and the exit code is 4.
    """
    from smoketest.cli.output import printable, say
    from smoketest.config.draft import check_name, yaml_text
    from smoketest.errors import ConfigError, UserCodeError
    from smoketest.supervise.trial import try_target

    name = check_name(target)
    path = output or Path(f"{name}.yaml")
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already", hint="--force writes over it, --output FILE names another")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent}", hint="make it first")
    found, workload = _looked_up(target)
    say(f"trying {target} on plain CPU")
    draft, printed = try_target(None if workload else found, workload, float(timeout))
    if draft.problem is not None and printed.strip():
        say(printable(printed.rstrip()))
    _write(path, yaml_text(draft, name, (Path.cwd() / path).parent))
    _told(draft, path)
    if draft.problem is not None:
        raise UserCodeError(
            printable(f"no training step could be made on plain CPU: {draft.problem}"),
            hint=f"{path} is a template: change the lines marked `# ?`, then `smoketest run {path}`",
        )


def _looked_up(target: str) -> tuple[str, Path | None]:
    """The target with its file's path absolute, or the workload file that it is. Runs no code.

    Raises:
        ConfigError: there is no such thing.
    """
    from smoketest.config.targets import check_target, names_in_file, resolve_path
    from smoketest.errors import ConfigError

    if not target.endswith(".py"):
        return check_target(target, Path.cwd(), None, what="target"), None
    file = resolve_path(target, Path.cwd(), None, what="target")
    names = names_in_file(file)
    if names is None or {"make_model", "make_batch"} <= names:
        return target, file
    classes = sorted(name for name in names if name[:1].isupper())
    raise ConfigError(
        f"{target} defines no make_model and make_batch, so what makes the model must be named",
        hint=f"one of {', '.join(f'{target}:{name}' for name in classes[:8])}" if classes else f"as in {target}:Net",
    )


def _write(path: Path, text: str) -> None:
    """Write the check, and beside it the schema that its first line names."""
    import json

    from smoketest.config.draft import SCHEMA_FILE
    from smoketest.config.schema import check_schema
    from smoketest.errors import ConfigError
    from smoketest.supervise.files import write_atomically

    try:
        write_atomically(path, text)
        write_atomically(path.parent / SCHEMA_FILE, json.dumps(check_schema(), indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def _told(draft: Draft, path: Path) -> None:
    """What was written, and what to look at."""
    from smoketest.cli.output import say

    say(f"wrote {path}, and check.schema.json for editors")
    if draft.problem is not None:
        return
    size = f"{draft.parameters:,} parameters, " if draft.parameters is not None else ""
    loss = "a loss that is not finite" if draft.loss_value is None else f"loss {draft.loss_value:.4g}"
    say(f"  it runs: {size}{loss} on plain CPU")
    if draft.guessed:
        say(f"  guessed, since there is no default: {', '.join(draft.guessed)}")
    if draft.config_defaults:
        say(f"  made smaller: {', '.join(draft.config_defaults)}")
    if draft.loss_guessed:
        say("  the loss only goes with the form of the output: put yours there")
    say(f"next: smoketest run {path}")
