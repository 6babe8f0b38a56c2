"""What CI systems are told of a run: JUnit XML, and GitHub's annotations and step summary."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smoketest.findings import Report
    from smoketest.render.summary import Row

__all__ = ["Ended", "cannot_write", "tell_github", "write_junit"]


@dataclass(frozen=True)
class Ended:
    """A check that was run.

    Attributes:
        result: its report, or its row in the summary where it came to none.
        root: the folder that file names in the report are relative to.
    """

    result: Report | Row
    root: Path | None = None


def write_junit(ended: Sequence[Ended], file: Path) -> int:
    """Write the checks as JUnit XML; 0, or the exit code where the file cannot be written."""
    from smoketest.cli.output import say
    from smoketest.render.junit import render
    from smoketest.supervise.files import write_atomically

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, render(_without_names(ended)))
    except OSError as error:
        say(f"error: {file} cannot be written: {error.strerror}")
        return 2
    say(f"junit: {file}")
    return 0


def cannot_write(file: Path) -> str | None:
    """Why a file cannot be made or replaced, found before a run; its folder is made. None where it can."""
    import tempfile

    try:
        if file.is_dir():
            return "it is a folder"
        if file.exists() and not file.is_file():
            return "it is a pipe or a device, expected a file"
        if file.parent.exists() and not file.parent.is_dir():
            return f"{file.parent} is no folder"
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=file.parent):
            return None
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)


def tell_github(ended: Sequence[Ended], code: int, *, stdout_is_free: bool) -> None:
    """Annotate lines and write the step's summary, where this runs in GitHub Actions; else do nothing.

    A summary that cannot be written is told and no error: the run is none the worse for it.

    Args:
        ended: the checks.
        code: exit code of the run.
        stdout_is_free: whether nothing else was asked for on stdout; GitHub reads commands from stderr as well.
    """
    if os.environ.get("GITHUB_ACTIONS") == "true":
        from smoketest.cli.output import emit, say
        from smoketest.render.github import annotate

        roots = {each.result.name: each.root for each in ended if each.root is not None}
        lines = annotate(_without_names(ended), lambda name, file: _in_repository(roots.get(name), file, os.environ))
        if lines:
            (emit if stdout_is_free else say)("\n".join(lines))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        _write_step_summary(ended, code, Path(summary))


def _write_step_summary(ended: Sequence[Ended], code: int, file: Path) -> None:
    """Append to the step's summary what there is room for beside what is there already."""
    import datetime as dt

    from smoketest.cli.output import say
    from smoketest.render.github import SUMMARY_LIMIT, step_summary

    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    try:
        taken = file.stat().st_size if file.exists() else 0
        text = step_summary(_without_names(ended), code, now, SUMMARY_LIMIT - taken)
        with file.open("a", encoding="utf-8", errors="backslashreplace") as summary:
            summary.write(text)
    except OSError as error:
        say(f"the step's summary cannot be written to {file}: {error.strerror}")


def _in_repository(root: Path | None, file: str, environment: Mapping[str, str]) -> str | None:
    """A file of a report as GitHub names it: relative to the checkout, and only if it is there."""
    path = (root or Path.cwd()) / file
    top = Path(environment.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    path = path.resolve()
    return path.relative_to(top).as_posix() if path.is_file() and path.is_relative_to(top) else None


def _without_names(ended: Sequence[Ended]) -> list[Report | Row]:
    """The results; rows of checks without a report are not scrubbed yet."""
    from dataclasses import replace

    from smoketest.render.scrub import scrub
    from smoketest.render.summary import Row
    from smoketest.supervise.names import names_here

    names = names_here()
    return [
        replace(each.result, name=scrub(each.result.name, **names), headline=scrub(each.result.headline, **names))
        if isinstance(each.result, Row)
        else each.result
        for each in ended
    ]
