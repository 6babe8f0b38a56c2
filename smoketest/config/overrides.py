"""``--set training.steps=5``: values from the command line, put into a document before it is validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from smoketest.config.document import Document, Path_, describe, read_document
from smoketest.errors import ConfigError, Place

__all__ = ["Override", "apply_override"]


@dataclass(frozen=True)
class Override:
    """A value that is put into a check.

    Attributes:
        text: ``key=value``.
        typed: what a person wrote for it, such as ``--nproc 2``; ``--set`` and the text where it is None.
    """

    text: str
    typed: str | None = None


def apply_override(document: Document, override: Override) -> Path_:
    """Put one ``key=value`` into `document`, in place; the value is read as YAML.

    Returns:
        The path that was set.

    Raises:
        ConfigError: where the text is not ``key=value`` or the key leads through something that is not a mapping.
    """
    key, equals, value = override.text.partition("=")
    place = Place(override.typed or f"--set {_short(override.text)}")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError("expected key=value", place=place, hint="for example --set training.steps=5")
    given = read_document(value, str(place))
    path: Path_ = ()
    here = document.data
    for part in parts[:-1]:
        step, here = _descend(here, part, path, place)
        path = (*path, step)
    path = _assign(here, parts[-1], given.data, path, place)
    for old in [old for old in document.places if old[: len(path)] == path]:
        del document.places[old]
        document.keys.pop(old, None)
    document.places[path] = document.keys[path] = place
    return path


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:80] + "…"


def _descend(here: Any, part: str, path: Path_, place: Place) -> tuple[str | int, Any]:
    """The key or index of `part`, and what is there; a mapping is made where a key is missing or empty."""
    if isinstance(here, dict):
        if here.get(part) is None:
            here[part] = {}
        return part, here[part]
    index = _index(here, part, path, place)
    return index, here[index]


def _assign(here: Any, part: str, value: Any, path: Path_, place: Place) -> Path_:
    if isinstance(here, dict):
        here[part] = value
        return (*path, part)
    index = _index(here, part, path, place)
    here[index] = value
    return (*path, index)


def _index(here: Any, part: str, path: Path_, place: Place) -> int:
    where = ".".join(map(str, path)) or "the check"
    if not isinstance(here, list):
        raise ConfigError(f"{where} is {describe(here)}, so {part!r} cannot be set in it", place=place)
    if not (part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(here)):
        expected = f"an index from 0 to {len(here) - 1}" if here else "no index: the list is empty"
        raise ConfigError(f"{where} is a list: expected {expected}, found {part!r}", place=place)
    return int(part)
