"""A check from a YAML file: read, overridden, validated, its paths made absolute, its targets looked up."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from smoketest.config.document import Document, Path_, describe, read_document
from smoketest.config.models import Check
from smoketest.config.overrides import apply_override
from smoketest.config.rules import Mistake, mistakes
from smoketest.config.targets import check_target, names_in_file, resolve_path
from smoketest.config.translate import dotted, first_error
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


def load_check(path: Path, overrides: Sequence[str] = ()) -> Check:
    """Read a check.

    Args:
        path: the YAML file. Paths in it are relative to its folder.
        overrides: ``key=value`` texts, as after ``--set``; paths in them are relative to the current folder.

    Returns:
        The check, valid, with absolute paths.

    Raises:
        ConfigError: for every mistake that can be found without running user code, at file:line:column.
    """
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
    overridden = [apply_override(document, text) for text in overrides]

    def base(at: Path_) -> Path:
        return Path.cwd() if any(at[: len(o)] == o for o in overridden) else folder

    document.data.setdefault("name", _name_of(path))
    _resolve_paths(document, base)
    try:
        check = Check.model_validate(document.data, strict=True)
    except ValidationError as error:
        raise first_error(error, document) from None
    names = names_in_file(check.workload) if check.workload else None
    _raise_first(list(mistakes(check, names)), document)
    return _check_targets(check, document, base)


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
    from smoketest.config.targets import suggest

    try:
        known = [f.name for f in path.parent.iterdir() if f.suffix in (".yaml", ".yml")]
    except OSError:
        return None
    return suggest(path.name, known)


_FILES: tuple[Path_, ...] = (("workload",), ("profile",))


def _resolve_paths(document: Document, base: Callable[[Path_], Path]) -> None:
    """Make the paths of the check absolute, before validation: only text is a path here."""
    for path in _FILES:
        text = document.data.get(path[0])
        if isinstance(text, str):
            document.data[path[0]] = resolve_path(text, base(path), document.place(path), what=dotted(path))
    gate = document.data.get("gate")
    if isinstance(gate, dict) and isinstance(gate.get("baseline"), str):
        gate["baseline"] = base(("gate", "baseline")) / gate["baseline"]


def _raise_first(found: list[Mistake], document: Document) -> None:
    if not found:
        return
    first = found[0]
    more = len(found) - 1
    message = first.message + (f" (and {more} more mistake{'s' if more > 1 else ''})" if more else "")
    raise ConfigError(message, place=document.place(first.path), hint=first.hint)


def _check_targets(check: Check, document: Document, base: Callable[[Path_], Path]) -> Check:
    """The check with every target looked up, and files in targets made absolute."""
    data: dict[str, Any] = document.data
    targets: list[tuple[dict[str, Any], str, Path_]] = [
        (part, "target", (name, "target")) for name in ("model", "batch", "optimizer") if (part := data.get(name))
    ]
    if (config := (data.get("model") or {}).get("config")) is not None:
        targets.append((config, "class", ("model", "config", "class")))
    if isinstance(check.loss, str) and ":" in check.loss:
        targets.append((data, "loss", ("loss",)))
    targets.append((data, "train_step", ("train_step",)))
    for holder, key, path in targets:
        if isinstance(text := holder.get(key), str):
            holder[key] = check_target(text, base(path), document.place(path), what=dotted(path))
    return Check.model_validate(data, strict=True)
