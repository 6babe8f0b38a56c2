"""Baseline files: read before a check runs, and written once it has come to its end."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path

from smoketest.config import Check
from smoketest.errors import ConfigError, InternalError, Place
from smoketest.findings import Report
from smoketest.gate import Baseline, new_baseline
from smoketest.gate.baseline import parse, render
from smoketest.supervise.files import refuse_no_file, write_atomically

__all__ = ["Held", "read_baseline", "write_baseline"]


@dataclass(frozen=True)
class Held:
    """What a check is held against.

    Attributes:
        path: the baseline's file; None where the check has none.
        accepted: what is in it; None where it is not there yet and is to be made.
        update: whether to put in it what is found now.
        strict: whether an entry that nothing needs any more fails the check.
    """

    path: Path | None = None
    accepted: Baseline | None = None
    update: bool = False
    strict: bool = False

    @property
    def shown(self) -> str | None:
        """The file as a person types it."""
        if self.path is None:
            return None
        here = Path.cwd()
        return (self.path.relative_to(here) if self.path.is_relative_to(here) else self.path).as_posix()


def read_baseline(check: Check, *, update: bool, strict: bool) -> Held:
    """The baseline of a check.

    Args:
        check: its ``gate.baseline`` is the file.
        update: whether it is to be written anew; then it need not be there.
        strict: see `Held`.

    Raises:
        ConfigError: it is not there, cannot be read or written, or is another check's; or there is none to update.
    """
    if check.gate.baseline is None:
        if update or strict:
            option = "--update-baseline" if update else "--strict-baseline"
            raise ConfigError(
                f"{option} needs a baseline, and the check {check.name!r} has none",
                hint=f"name its file with --baseline baselines/{check.name}.json, or in the check as gate.baseline",
            )
        return Held()
    held = Held(Path.cwd() / check.gate.baseline, None, update, strict)
    place = Place(held.shown or "")
    if update:
        _refuse_folder(held, place)
    try:
        refuse_no_file(check.gate.baseline)
        text = check.gate.baseline.read_bytes()
    except FileNotFoundError:
        if update:
            return held
        raise ConfigError(
            "there is no such baseline", place=place, hint="make it from what is found now with --update-baseline"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the baseline cannot be read: {getattr(error, 'strerror', None) or error}", place=place
        ) from None
    accepted = parse(text, name=place.file)
    if accepted.check != check.name:
        raise ConfigError(
            f"this is the baseline of the check {accepted.check!r}, not of {check.name!r}",
            place=place,
            hint="each check has a file of its own; after renaming a check, put its new name into the file",
        )
    return Held(held.path, accepted, update, strict)


def _refuse_folder(held: Held, place: Place) -> None:
    """See that the file can be written, before anything runs."""
    assert held.path is not None
    try:
        held.path.parent.mkdir(parents=True, exist_ok=True)
        if held.path.is_dir() or not os.access(held.path.parent, os.W_OK):
            raise PermissionError(None, "it is a folder" if held.path.is_dir() else "its folder is read-only")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the baseline cannot be written: {getattr(error, 'strerror', None) or error}", place=place
        ) from None


def write_baseline(report: Report, check: Check, held: Held, today: dt.date) -> str:
    """Put into the baseline what a report found, unless the check came to no end.

    Returns:
        What was done, one sentence.

    Raises:
        InternalError: the file cannot be written.
    """
    assert held.path is not None
    if report.status == "error":
        return f"{held.shown} is as it was: the check came to no end, so its findings are not all"
    found = new_baseline(report, check.gate, today, held.accepted)
    try:
        write_atomically(held.path, render(found))
    except OSError as error:
        raise InternalError(f"the baseline cannot be written to {held.shown}: {error.strerror}") from None
    before = {entry.id for entry in held.accepted.findings} if held.accepted is not None else set()
    now = {entry.id for entry in found.findings}
    changes = f"{len(now - before):,} new, {len(before - now):,} gone"
    return f"{held.shown} accepts {len(now):,} finding{'' if len(now) == 1 else 's'} now ({changes})"
