"""Names and ids of findings that survive edits, other witnesses and other machines."""

from __future__ import annotations

import hashlib
from collections import Counter

__all__ = ["finding_id", "functional_base", "module_patterns"]


def functional_base(op: str) -> str:
    """The functional op behind an overload name: ``aten::index_fill_.int_Scalar`` -> ``aten::index_fill``.

    The overload goes, since ``aten::sort`` (called), ``aten::sort.values_stable`` (recorded) and ``sort`` (in a log
    line) are one op to the user; a trailing underscore marks an in-place form. A name with no namespace is of aten.
    """
    namespace, _, name = op.rpartition("::")
    base = name.partition(".")[0]
    if base.endswith("_") and not base.endswith("__"):
        base = base[:-1]
    return f"{namespace or 'aten'}::{base}"


def finding_id(rule: str, op: str | None, phase: str | None, file: str | None, code: str, ordinal: int) -> str:
    """Twelve hexadecimal digits of a hash over what stays when lines move and witnesses change.

    Args:
        rule: id of the rule.
        op: an overload name in any of its forms, or None where the finding is not about an op.
        phase: forward, backward, optimizer or setup.
        file: as `Site.file`.
        code: text of the source line, stripped here.
        ordinal: 0 for the first finding with the same five values above, in order of line and op.
    """
    parts = [rule, functional_base(op) if op else "", phase or "", file or "", code.strip(), str(ordinal)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def module_patterns(calls: Counter[str]) -> list[tuple[str, int]]:
    """Join modules that differ in numbers only: ``h.0.attn`` and ``h.1.attn`` become ``h.*.attn``.

    A number is replaced only where it varies, so ``mlp.2`` alone stays ``mlp.2``.

    Args:
        calls: calls by qualified module name.

    Returns:
        (pattern, calls), most calls first.
    """
    families: dict[tuple[str, ...], list[tuple[list[str], int]]] = {}
    for module, count in calls.items():
        parts = module.split(".")
        shape = tuple("*" if part.isdigit() else part for part in parts)
        families.setdefault(shape, []).append((parts, count))
    joined: Counter[str] = Counter()
    for members in families.values():
        columns = zip(*(parts for parts, _ in members), strict=True)
        pattern = ".".join(column[0] if len(set(column)) == 1 else "*" for column in columns)
        joined[pattern] += sum(count for _, count in members)
    return sorted(joined.items(), key=lambda item: (-item[1], item[0]))
