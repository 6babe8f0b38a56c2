"""YAML text to plain data, with the place of every key and value kept.

PyYAML reads the nodes; turning them into data is done here, so that every mistake has a line and a column: duplicate
keys, tags, keys that are not text, documents beyond the first, aliases that expand without end.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from smoketest.errors import ConfigError, Place

__all__ = ["Document", "Path_", "read_document"]

Path_ = tuple[str | int, ...]
"""Where in a document a value is: keys and indices from the top."""

MAX_DEPTH = 40
MAX_VALUES = 50_000
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """The safe loader with the numbers people mean: ``1e-4`` is a number, ``1:30`` is text."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"^(yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$", "yYnNtTfFoO"),
    ("float", r"^[-+]?((\d[\d_]*)?\.\d+([eE][-+]?\d+)?|\d[\d_]*(\.([eE][-+]?\d+)?|[eE][-+]?\d+))$", "-+0123456789."),
    ("float", r"^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$", "-+."),
    ("int", r"^[-+]?(0|[1-9][\d_]*|0x[\da-fA-F_]+|0o[0-7_]+|0b[01_]+)$", "-+0123456789"),
    ("null", r"^(~|null|Null|NULL|)$", "~nN\0"),
    ("timestamp", r"^\d\d\d\d-\d\d-\d\d$", "0123456789"),
):
    for _letter in _first:
        _Loader.yaml_implicit_resolvers.setdefault("" if _letter == "\0" else _letter, []).append(
            (_TAG + _tag, re.compile(_pattern))
        )


@dataclass
class Document:
    """What a YAML text holds.

    Attributes:
        data: mappings as dict, sequences as list, scalars as str, int, float, bool, date or None.
        places: where each value starts.
        keys: where the key of each value of a mapping starts.
    """

    data: Any
    places: dict[Path_, Place] = field(default_factory=dict)
    keys: dict[Path_, Place] = field(default_factory=dict)

    def place(self, path: Path_) -> Place | None:
        """Where `path` is, or the nearest thing above it that is there."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return None

    def key_place(self, path: Path_) -> Place | None:
        """Where the key at the end of `path` is written."""
        return self.keys.get(path) or self.place(path)


def read_document(text: str, name: str) -> Document:
    """Read one YAML document.

    Args:
        text: the YAML.
        name: what to call it in errors; a file name.

    Raises:
        ConfigError: for anything that is not one plain YAML document.
    """
    document = Document(None)
    node = _compose(text, name)
    if node is not None:
        document.data = _Builder(name, document).value(node, ())
    return document


def _compose(text: str, name: str) -> yaml.Node | None:
    try:
        loader = _Loader(text)
        if not loader.check_node():
            return None
        node = loader.get_node()
        if loader.check_node():
            raise ConfigError(
                "a second YAML document starts here; a check is one document",
                place=_place(name, getattr(loader.get_node(), "start_mark", None)),
                hint="put each check in a file of its own and remove the line '---'",
            )
    except yaml.reader.ReaderError as error:
        raise _unprintable(text, name, error) from None
    except yaml.MarkedYAMLError as error:
        raise _syntax(name, error) from None
    except RecursionError:
        raise ConfigError("nested too deeply", place=Place(name)) from None
    except (yaml.YAMLError, ValueError, OverflowError, TypeError, IndexError, AttributeError) as error:
        # PyYAML lets some of these out for malformed text, such as an escape beyond the last code point.
        raise ConfigError(f"not valid YAML: {error}", place=Place(name)) from None
    return node


def _place(name: str, mark: yaml.Mark | None) -> Place:
    return Place(name) if mark is None else Place(name, mark.line + 1, mark.column + 1)


def _unprintable(text: str, name: str, error: yaml.reader.ReaderError) -> ConfigError:
    at = int(error.position)
    before = text[:at]
    place = Place(name, before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1)
    return ConfigError(
        f"the character U+{ord(text[at]):04X} is not allowed in YAML" if at < len(text) else "not readable as YAML",
        place=place,
        hint="remove it",
    )


_SYNTAX_HINTS = (
    ("'\\t'", "YAML does not allow tabs for indentation: use spaces"),
    ("mapping values are not allowed here", "write a space after ':', and quote text that itself holds ': '"),
    ("could not find expected ':'", "write 'key: value', with a space after the ':'"),
    ("expected ',' or ']'", "close the list with ']'"),
    ("expected ',' or '}'", "close the mapping with '}'"),
    ("expected <block end>", "indent keys of one mapping alike"),
    ("unexpected end of stream", "close the quotes"),
    ("cannot start any token", "put quotes around the text"),
    ("undefined alias", "define it first, as in `&name value`"),
)


def _syntax(name: str, error: yaml.MarkedYAMLError) -> ConfigError:
    problem = str(error.problem or error.context or "malformed")
    hint = next((hint for part, hint in _SYNTAX_HINTS if part in problem), None)
    if error.problem and error.context:
        problem = f"{error.context}, {problem}"
        if error.context_mark is not None and error.problem_mark is not None:
            start = error.context_mark.line
            problem += f" (it began in line {start + 1})" if start != error.problem_mark.line else ""
    return ConfigError(
        f"not valid YAML: {problem}", place=_place(name, error.problem_mark or error.context_mark), hint=hint
    )


class _Builder:
    """Turns nodes into data; bounded in depth and in number, since aliases can repeat without end."""

    def __init__(self, name: str, document: Document) -> None:
        self.name = name
        self.document = document
        self.count = 0

    def value(self, node: yaml.Node, path: Path_) -> Any:
        self.count += 1
        place = _place(self.name, node.start_mark)
        if len(path) > MAX_DEPTH:
            raise ConfigError(f"nested more than {MAX_DEPTH} levels deep", place=place)
        if self.count > MAX_VALUES:
            raise ConfigError(f"more than {MAX_VALUES:,} values once its aliases are expanded", place=place)
        self.document.places[path] = place
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return dict(self.items(node, path))
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(child, (*path, index)) for index, child in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node, place)
        raise _tag_error(node, place)

    def items(self, node: yaml.MappingNode, path: Path_) -> Iterator[tuple[str, Any]]:
        first: dict[str, Place] = {}
        for key_node, value_node in node.value:
            place = _place(self.name, key_node.start_mark)
            key = self.key(key_node, place)
            if key in first:
                raise ConfigError(
                    f"the key {key!r} is given twice; first in line {first[key].line}", place=place, hint="remove one"
                )
            first[key] = place
            self.document.keys[(*path, key)] = place
            yield key, self.value(value_node, (*path, key))

    def key(self, node: yaml.Node, place: Place) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise ConfigError("a key must be text", place=place, hint="quote it if it holds brackets or braces")
        if node.value == "<<" and node.style is None:
            raise ConfigError("merge keys (<<) are not supported", place=place, hint="write the keys out")
        key = _scalar(node, place)
        if not isinstance(key, str):
            raise ConfigError(
                f"a key must be text, and {node.value!r} reads as {describe(key)}",
                place=place,
                hint=f'quote it: "{node.value}"',
            )
        return key


def _scalar(node: yaml.ScalarNode, place: Place) -> Any:
    kind, text = node.tag.removeprefix(_TAG), str(node.value)
    if kind == "str":
        return text
    plain = text.replace("_", "")
    try:
        if kind == "null":
            return None
        if kind == "bool":
            return {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}[text.lower()]
        if kind == "int":
            return int(plain, 0)
        if kind == "float":
            return _finite(plain)
        if kind == "timestamp":
            return dt.date.fromisoformat(text)
    except (ValueError, KeyError, OverflowError) as error:
        what = {"timestamp": "date", "int": "whole number", "float": "number", "bool": "true or false"}[kind]
        reason = str(error) if kind == "timestamp" else "out of range" if kind in ("int", "float") else "not one"
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise ConfigError(
            f"{shown!r} is not a {what}: {reason}", place=place, hint="quote it if it is meant as text"
        ) from None
    raise _tag_error(node, place)


def _finite(text: str) -> float:
    number = float("inf") if _NOT_FINITE.fullmatch(text) else float(text)
    if number in (float("inf"), float("-inf")):
        raise OverflowError(text)
    return number


def _tag_error(node: yaml.Node, place: Place) -> ConfigError:
    return ConfigError(
        f"the tag {node.tag.replace(_TAG, '!!')} is not supported",
        place=place,
        hint="a check holds plain mappings, lists, text and numbers",
    )


def describe(value: Any) -> str:
    """A value in the words of an error message: ``the text 'three'``, ``a list``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.date):
        return f"the date {value}"
    if isinstance(value, int | float):
        text = repr(value)
        return f"the number {text}" if len(text) <= 40 else "a very long number"
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 60 else f"the text {value[:60]!r}…"
    return "a list" if isinstance(value, list) else "a mapping"
