"""A check from a YAML file: read, overridden, validated, its paths made absolute, its targets looked up."""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from smoketest.config.document import Document, Path_, describe, read_document
from smoketest.config.models import Check
from smoketest.config.overrides import Override, apply_override
from smoketest.config.paths import refuse_other_than_utf8
from smoketest.config.rules import mistakes
from smoketest.config.targets import check_target, names_in_file, resolve_path, uncalled_functions
from smoketest.config.translate import all_errors, dotted
from smoketest.errors import ConfigError, Place

__all__ = ["MAX_SIZE", "find_checks", "load_check"]

MAX_SIZE = 2**20
"""Bytes a check may have."""


def find_checks(paths: Iterable[Path]) -> list[Path]:
    """The YAML files meant by `paths`: each file itself, and of each folder those directly in it, sorted.

    Raises:
        ConfigError: where a path is not there, or a folder holds no YAML.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(f for f in path.iterdir() if f.suffix in (".yaml", ".yml") and not f.name.startswith("."))
            if not inside:
                raise ConfigError(
                    "no check in this folder: expected *.yaml files directly in it", place=Place(str(path))
                )
            found |= dict.fromkeys(inside)
        else:
            found[path] = None
    return list(found)


def load_check(path: Path, overrides: Sequence[str | Override] = ()) -> Check:
    """Read a check.

    Args:
        path: the YAML file. Paths in it are relative to its folder.
        overrides: ``key=value`` texts, as after ``--set``, or such with what was typed for them, which messages name;
            paths in them are relative to the current folder.

    Returns:
        The check, valid, with absolute paths.

    Raises:
        ConfigError: where there are mistakes that can be found without running user code, at file:line:column: the
            first one in the check, and the others with it.
    """
    refuse_other_than_utf8(_absolute(path), shown=_shown(path))
    document = read_document(_read_text(path), _shown(path))
    if document.data is None:
        document.data, document.places[()] = {}, Place(_shown(path), 1, 1)
        if not overrides:
            raise ConfigError("the file is empty", place=Place(_shown(path)), hint="copy one of configs/ to begin with")
    if not isinstance(document.data, dict):
        raise ConfigError(
            f"a check is a mapping of keys to values, found {describe(document.data)}", place=document.place(())
        )
    folder = _absolute(path).parent
    _write_out_parallel(document)
    overridden = []
    for given in overrides:
        overridden.append(apply_override(document, Override(given) if isinstance(given, str) else given))
        _write_out_parallel(document)

    def base(at: Path_) -> Path:
        return Path.cwd() if any(at[: len(o)] == o for o in overridden) else folder

    document.data.setdefault("name", _name_of(path))
    wrong = list(_resolve_paths(document, base))
    there = {key: value for key, value in document.data.items() if not ((key,) in _FILES and isinstance(value, str))}
    check, refused = _validated(there)
    if refused is not None:
        wrong += all_errors(refused, document)
        there = {key: there[key] for key in there.keys() - {error["loc"][0] for error in refused.errors()}}
        check, _ = _validated(there)
    if check is not None and ("workload" in there or "workload" not in document.data):
        wrong += _broken_rules(check, document, whole=there == document.data)
    wrong += _resolve_targets(document, base)
    if wrong:
        raise _together(wrong)
    return Check.model_validate(document.data, strict=True)


def _write_out_parallel(document: Document) -> None:
    """``parallel: ddp`` is short for ``parallel: {kind: ddp}``, which more can be set in."""
    kind = document.data.get("parallel")
    if isinstance(kind, str):
        document.data["parallel"] = {"kind": kind}
        if (place := document.places.get(("parallel",))) is not None:
            document.places["parallel", "kind"] = place


def _validated(data: dict[str, Any]) -> tuple[Check | None, ValidationError | None]:
    try:
        return Check.model_validate(data, strict=True), None
    except ValidationError as error:
        return None, error


def _absolute(path: Path) -> Path:
    return Path.cwd() / path


def _shown(path: Path) -> str:
    """The path as it was typed; a long absolute one below the current folder is shown relative to it."""
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else str(path)


def _name_of(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._")[:100] or "check"


def _read_text(path: Path) -> str:
    place = Place(_shown(path))
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # reading a pipe would wait for a writer
            raise ConfigError("this is a pipe or a device, expected a file", place=place)
        with path.open("rb") as file:
            data = file.read(MAX_SIZE + 1)
    except FileNotFoundError:
        raise ConfigError("no such file", place=place, hint=_near_file(path)) from None
    except IsADirectoryError:
        raise ConfigError("this is a folder, expected a file", place=place) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot be read: {reason}", place=place) from None
    if len(data) > MAX_SIZE:
        raise ConfigError(f"larger than {MAX_SIZE // 2**20} MiB, which no check is", place=place)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        raise ConfigError(
            f"not UTF-8 text: byte 0x{data[error.start]:02x}",
            place=Place(place.file, line, column),
            hint="save it as UTF-8",
        ) from None


def _near_file(path: Path) -> str | None:
    """The check whose name is near, its ending aside: all of them share that."""
    try:
        known = {f.stem: f.name for f in path.parent.iterdir() if f.suffix in (".yaml", ".yml")}
    except OSError:
        return None
    near = difflib.get_close_matches(path.stem, known, n=1, cutoff=0.7)
    return f"did you mean {known[near[0]]!r}?" if near else None


_FILES: tuple[Path_, ...] = (("workload",), ("profile",))


def _resolve_paths(document: Document, base: Callable[[Path_], Path]) -> Iterator[ConfigError]:
    """Make the paths of the check absolute, before validation: only text is a path here. Gives what is not there."""
    for path in _FILES:
        text = document.data.get(path[0])
        if isinstance(text, str):
            try:
                document.data[path[0]] = resolve_path(text, base(path), document.place(path), what=dotted(path))
            except ConfigError as error:
                yield error
    gate = document.data.get("gate")
    if isinstance(gate, dict) and isinstance(gate.get("baseline"), str):
        gate["baseline"] = base(("gate", "baseline")) / gate["baseline"]


def _broken_rules(check: Check, document: Document, *, whole: bool) -> list[ConfigError]:
    """What the parts of a check of the right types owe one another and do not give.

    Where it is not `whole`, since some parts are wrong in themselves, no part is said to be missing.
    """
    try:
        names = names_in_file(check.workload) if check.workload else None
        unused = uncalled_functions(check.workload) if check.workload else {}
    except ConfigError as error:  # the workload file is not valid Python
        return [error]
    return [
        ConfigError(mistake.message, place=mistake.place or document.place(mistake.path), hint=mistake.hint)
        for mistake in mistakes(check, names, unused)
        if whole or mistake.path[:1] not in ((), ("workload",))
    ]


def _resolve_targets(document: Document, base: Callable[[Path_], Path]) -> Iterator[ConfigError]:
    """Look up every target, and make the files in them absolute. Gives what cannot be found."""
    data: dict[str, Any] = document.data
    targets: list[tuple[dict[str, Any], str, Path_]] = [
        (part, "target", (name, "target"))
        for name in ("model", "batch", "optimizer")
        if isinstance(part := data.get(name), dict)
    ]
    if isinstance(batch := data.get("batch"), dict):
        targets.append((batch, "loader", ("batch", "loader")))
    model = data.get("model")
    if isinstance(model, dict) and isinstance(config := model.get("config"), dict):
        targets.append((config, "class", ("model", "config", "class")))
    if isinstance(loss := data.get("loss"), str) and ":" in loss:
        targets.append((data, "loss", ("loss",)))
    targets.append((data, "train_step", ("train_step",)))
    for holder, key, path in targets:
        if isinstance(text := holder.get(key), str):
            try:
                holder[key] = check_target(text, base(path), document.place(path), what=dotted(path))
            except ConfigError as error:
                yield error


def _together(wrong: list[ConfigError]) -> ConfigError:
    """The mistake that stands first in the check, and the others with it."""
    unique = {(str(error.place), error.message): error for error in wrong}
    first, *others = sorted(unique.values(), key=_position)
    more = f" (and {len(others)} more mistake{'s' if len(others) > 1 else ''})" if others else ""
    raised = ConfigError(first.message + more, place=first.place, hint=first.hint)
    raised.others = tuple(others)
    return raised


def _position(error: ConfigError) -> tuple[bool, int, int]:
    """Mistakes in the check itself come before those in a Python file it names."""
    place = error.place
    return (False, 0, 0) if place is None else (place.file.endswith(".py"), place.line or 0, place.column or 0)
