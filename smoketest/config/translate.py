"""Pydantic's errors, said at their place in the YAML and in the words of a check."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from smoketest.config.document import Document, Path_, describe
from smoketest.config.models import Check
from smoketest.config.targets import suggest
from smoketest.errors import ConfigError

__all__ = ["all_errors", "dotted", "fields_at"]

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list, as in [a, b]",
    "dict_type": "a mapping, as in {key: value}",
    "model_type": "a mapping, as in {key: value}",
    "date_type": "a date, as in 2027-03-31",
    "is_instance_of": "a path",
    "invalid-json-value": "text (in quotes), a number, a list or a mapping",
}
# The first ones are PyTorch's own (torch.long is torch.int64); the others are what people write for short.
_SHORT_DTYPES = {
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "cfloat": "complex64",
    "byte": "uint8",
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
}
_BOUNDS = {
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
}


def all_errors(error: ValidationError, document: Document) -> list[ConfigError]:
    """One error for each of pydantic's."""
    return [_one(details, document) for details in error.errors(include_url=False)]


def dotted(path: Path_) -> str:
    """``("batch", "tensors", "x")`` as ``batch.tensors.x``, an index as ``shape[1]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _one(details: Any, document: Document) -> ConfigError:
    path, rest = _walk(document.data, tuple(details["loc"]))
    kind = details["type"]
    if kind == "missing":
        return _missing(path, str(rest[-1]), document)
    if kind == "extra_forbidden":
        return _unknown(path, document)
    what, place = dotted(path) or "the check", document.place(path)
    found = describe(details["input"])
    context = details.get("ctx", {})
    if kind == "literal_error":
        value = details["input"]
        hint = _choice_hint(value, _choices(path)) if isinstance(value, str) else None
        return ConfigError(f"{what}: expected {context['expected']}, found {found}", place=place, hint=hint)
    if kind in _BOUNDS:
        return ConfigError(f"{what}: expected {_BOUNDS[kind].format(**context)}, found {found}", place=place)
    if kind == "string_too_short":
        return ConfigError(f"{what}: expected some text, found nothing", place=place)
    if kind in _EXPECTED:
        hint = _text_hint(details["input"]) if kind == "string_type" else None
        return ConfigError(f"{what}: expected {_EXPECTED[kind]}, found {found}", place=place, hint=hint)
    return ConfigError(f"{what}: {details['msg']}, found {found}", place=place)


def _walk(data: Any, loc: tuple[str | int, ...]) -> tuple[Path_, tuple[str | int, ...]]:
    """Split pydantic's location into what is in the document and the rest: branches of a union, a missing key."""
    path: Path_ = ()
    rest: tuple[str | int, ...] = ()
    for part in loc:
        inside = isinstance(data, dict) and part in data
        if inside or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            data, path = data[part], (*path, part)
        else:
            rest = (*rest, part)
    return path, rest


def _missing(path: Path_, key: str, document: Document) -> ConfigError:
    return ConfigError(f"{dotted((*path, key))} is missing", place=document.key_place(path))


def _unknown(path: Path_, document: Document) -> ConfigError:
    key, parent = str(path[-1]), path[:-1]
    known = fields_at(parent)
    hint = suggest(key, known) or _elsewhere(key) or f"known here: {', '.join(known)}"
    where = f" in {dotted(parent)}" if parent else ""
    return ConfigError(f"unknown key {key!r}{where}", place=document.key_place(path), hint=hint)


def _choice_hint(value: str, choices: list[str]) -> str | None:
    """The choice meant; PyTorch has short names for dtypes, such as ``torch.long``."""
    plain = value.lower().removeprefix("torch.")
    same = next((name for name in (plain, _SHORT_DTYPES.get(plain)) if name in choices), None)
    return f"did you mean {same!r}?" if same else suggest(value, choices)


def _text_hint(value: Any) -> str | None:
    return "put quotes around it" if isinstance(value, bool | int | float) else None


def fields_at(path: Path_) -> tuple[str, ...]:
    """The keys a check may have at a place."""
    for model in _models_at(path):
        return tuple(model.model_fields)
    return ()


def _elsewhere(key: str) -> str | None:
    homes = [f"{name}.{key}" for name in Check.model_fields for m in _models_at((name,)) if key in m.model_fields]
    if key in Check.model_fields:
        homes.append(f"{key}, at the top level")
    return f"did you mean {homes[0]}?" if homes else None


def _choices(path: Path_) -> list[str]:
    for model in _models_at(path[:-1]):
        if path and path[-1] in model.model_fields:
            annotation = model.model_fields[str(path[-1])].annotation
            return [value for kind in _flatten(annotation) for value in typing.get_args(kind) if isinstance(value, str)]
    return []


def _models_at(path: Path_) -> list[type[BaseModel]]:
    """The models that describe what is at `path`: follows fields, list elements and mapping values."""
    here: list[Any] = [Check]
    for part in path:
        after: list[Any] = []
        for kind in here:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                if part in kind.model_fields:
                    after += _flatten(kind.model_fields[str(part)].annotation)
            elif typing.get_origin(kind) in (list, dict):
                after += _flatten(typing.get_args(kind)[-1])
        here = after
    return [kind for kind in here if isinstance(kind, type) and issubclass(kind, BaseModel)]


def _flatten(annotation: Any) -> Iterator[Any]:
    """The alternatives of a type: unions and annotations taken apart."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from _flatten(typing.get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for alternative in typing.get_args(annotation):
            yield from _flatten(alternative)
    else:
        yield annotation
