"""The functional overload behind an overload name: the name a migration decision is made on.

The tracker and the dispatcher speak of ``aten::atan2.out`` or ``aten::index_fill_.int_Scalar``; a report asks about
``aten::atan2`` and ``aten::index_fill.int_Scalar``. This module imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import torch

from smoketest.operators.compat import writes

__all__ = ["forms", "functional_overload", "overload"]


def overload(name: str) -> torch._ops.OpOverload | None:
    """The overload called ``name`` (``aten::add.out``) in this torch, or None."""
    namespace, _, rest = name.partition("::")
    base, _, which = rest.partition(".")
    try:
        packet = getattr(getattr(torch.ops, namespace), base)
        return getattr(packet, which or "default")  # type: ignore[no-any-return]
    except (AttributeError, RuntimeError):
        return None


@cache
def functional_overload(name: str) -> str:
    """The overload that computes the same and writes nothing.

    Args:
        name: full overload name, ``aten::sort.values_stable``.

    Returns:
        ``aten::sort.stable``; the name itself when it is functional already, or has no functional form.
    """
    op = overload(name)
    if op is None or not op._schema.is_mutable:
        return name
    found = next((form for form in forms(op) if not form._schema.is_mutable), None)
    return name if found is None else found.name()  # type: ignore[no-untyped-call]


def forms(op: torch._ops.OpOverload) -> Iterator[torch._ops.OpOverload]:
    """All overloads that compute the same from the same inputs: functional, in-place, ``out=``."""
    wanted = _inputs(op)
    for packet in _packets(op):
        for which in packet.overloads():  # type: ignore[no-untyped-call]
            candidate = getattr(packet, which)
            if _inputs(candidate) == wanted:
                yield candidate


def _packets(op: torch._ops.OpOverload) -> list[torch._ops.OpOverloadPacket]:
    """Where the functional form may be: the op's own packet, and for ``op_`` the packet without the underscore."""
    namespace, _, base = op._schema.name.partition("::")
    own = getattr(getattr(torch.ops, namespace), base)
    if not base.endswith("_") or base.endswith("__"):
        return [own]
    functional = getattr(getattr(torch.ops, namespace), base[:-1], None)
    return [own] if functional is None else [functional, own]


def _inputs(op: torch._ops.OpOverload) -> list[tuple[str, str]]:
    """Name and type of the arguments an op reads: all but those an ``out=`` form only writes."""
    return [(a.name, str(a.type)) for a in op._schema.arguments if not (a.kwarg_only and writes(a))]
