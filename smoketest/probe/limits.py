"""What the Neuron compiler is documented to refuse, looked for in the StableHLO that graphs lower to.

The limits are data (``data/compiler_limits.yaml``): each says what holds of a StableHLO operation that it refuses. The
StableHLO is public torch-mlir's; the backend's own compiler may make another one of the same op.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from pydantic import BaseModel, ConfigDict

__all__ = ["DATA", "Hit", "Limit", "StableOp", "hits", "limits", "operations"]

DATA = Path(str(resources.files("smoketest.probe") / "data" / "compiler_limits.yaml"))


@dataclass(frozen=True)
class StableOp:
    """One operation of a lowered graph.

    Attributes:
        name: such as ``stablehlo.scatter``.
        operands: types, such as ``tensor<3x4xi64>``.
        results: types.
        regions: names of the operations its regions hold.
        attributes: those that limits ask for, by name, as MLIR prints them.
        node: name of the node of the captured graph that it comes from, where its location says so.
    """

    name: str
    operands: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    regions: frozenset[str] = frozenset()
    attributes: tuple[tuple[str, str], ...] = ()
    node: str | None = None


class Limit(BaseModel):
    """One entry of the data; its conditions are described there.

    Attributes:
        code: of the Neuron compiler's error.
        meaning: what is not supported, one clause.
        remedy: the documented one.
        source: where it is documented, or who met it.
        grade: evidence grade of the source.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    ops: tuple[str, ...]
    first: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    dynamic: bool = False
    regions: tuple[str, ...] = ()
    spread: tuple[str, ...] = ()
    other: dict[str, str] = {}
    called_as: tuple[str, ...] = ()
    meaning: str
    remedy: str
    source: str
    grade: Literal["PUB-2.32", "USER-B3", "USER-B4"]

    def meets(self, op: StableOp) -> bool:
        """Whether all conditions but `called_as` hold of `op`."""
        given = dict(op.attributes)
        return (
            _any_like((op.name,), self.ops)
            and (not self.first or _any_like(map(_element, op.operands[:1]), self.first))
            and (not self.types or _any_like(map(_element, (*op.operands, *op.results)), self.types))
            and (not self.dynamic or any("?" in type_ for type_ in (*op.operands, *op.results)))
            and (not self.regions or not op.regions.isdisjoint(self.regions))
            and all(_is_spread(given.get(name, "")) for name in self.spread)
            and all(name in given and value not in given[name] for name, value in self.other.items())
        )

    def is_of(self, called_as: str) -> bool:
        """Whether the limit is one of the PyTorch operator `called_as`."""
        return not self.called_as or _any_like((called_as,), self.called_as)

    def is_of_type(self, dtype: torch.dtype) -> bool:
        """Whether the limit is one of tensors of `dtype`."""
        return _any_like((_in_mlir(dtype),), self.types)


@dataclass(frozen=True)
class Hit:
    """A limit that an operation meets: the limit's code, the operation, and the node it comes from."""

    code: str
    op: str
    node: str | None = None


@cache
def limits() -> dict[str, Limit]:
    """All limits by code."""
    entries = [Limit.model_validate(entry) for entry in yaml.safe_load(DATA.read_text(encoding="utf-8"))]
    return {entry.code: entry for entry in entries}


def hits(module: Any) -> tuple[Hit, ...]:
    """The limits that operations of an MLIR module meet, each once for a node and operation.

    Args:
        module: of torch-mlir's Python bindings, in the StableHLO dialect.
    """
    found = {
        Hit(limit.code, op.name, op.node): None
        for op in operations(module.operation)
        for limit in limits().values()
        if limit.meets(op)
    }
    return tuple(found)


def operations(operation: Any) -> Iterator[StableOp]:
    """All operations within one of MLIR's, those of regions too."""
    for inner in _within(operation):
        yield StableOp(
            inner.name,
            tuple(str(value.type) for value in inner.operands),
            tuple(str(value.type) for value in inner.results),
            frozenset(part.name for part in _within(inner)),
            tuple((name, str(inner.attributes[name])) for name in _wanted() if name in inner.attributes),
            _node(str(inner.location)),
        )
        yield from operations(inner)


def _within(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region:
            for inner in block.operations:
                yield inner.operation


@cache
def _wanted() -> frozenset[str]:
    """The attributes that limits ask for: printing all of them would print constants whole."""
    return frozenset(name for limit in limits().values() for name in (*limit.spread, *limit.other))


_NODE = re.compile(r'"node:([^"]+)"')


def _node(location: str) -> str | None:
    found = _NODE.search(location)
    return found[1] if found else None


def _any_like(names: Iterable[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _element(type_: str) -> str:
    """``tensor<3x?xi64>`` is of ``i64``; what is no tensor is itself."""
    inner = re.fullmatch(r"tensor<(?:[\d?]+x)*(.+)>", type_)
    return inner[1] if inner else type_


def _in_mlir(dtype: torch.dtype) -> str:
    """``f8E4M3FN`` for float8_e4m3fn, ``complex<f32>`` for complex64."""
    name = str(dtype).removeprefix("torch.")
    if dtype.is_complex:
        return f"complex<f{int(name.removeprefix('complex')) // 2}>"
    return re.sub(r"^float(\d)", r"f\1", name).replace("_", "").upper().replace("F", "f", 1)


def _is_spread(attribute: str) -> bool:
    """Whether a list of strides or dilations (``array<i64: 1, 2>``) has one that is not 1."""
    return any(number != "1" for number in re.findall(r"-?\d+", attribute.partition(":")[2]))
