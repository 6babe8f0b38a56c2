"""A profile from what is registered in this process: the dispatcher tells the rest. This module imports torch."""

from __future__ import annotations

import torch

from smoketest.operators.compat import aten_overloads, has_kernel, writes
from smoketest.operators.functional import forms, overload

__all__ = ["reaches", "registered", "unimplemented"]

_STRUCTURED = "CompositeExplicitAutogradNonFunctional"
_COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", _STRUCTURED)


def registered(key: str = "PrivateUse1") -> list[str]:
    """ATen overloads with a kernel under a dispatch key; names that belong to no overload are left out."""
    return [name for name in aten_overloads() if has_kernel(name, key)]


def reaches() -> dict[str, str]:
    """Structured overloads, functional and in-place, and the ``.out`` overload they end in on any backend."""
    found = {}
    for name in aten_overloads():
        if has_kernel(name, _STRUCTURED):
            out = _out_form(name)
            if out is not None and (has_kernel(out, "CPU") or not has_kernel(out, *_COMPOSITES)):
                found[name] = out
    return found


def unimplemented(native: frozenset[str]) -> list[str]:
    """Overloads that have neither a kernel among ``native`` nor a composite: they run on the CPU."""
    return [name for name in aten_overloads() if name not in native and not has_kernel(name, *_COMPOSITES)]


def _out_form(name: str) -> str | None:
    op = overload(name)
    if op is not None and torch.Tag.view_copy in op.tags:
        return None
    out = None if op is None else next(filter(_writes_results, forms(op)), None)
    return None if out is None else out.name()  # type: ignore[no-untyped-call]


def _writes_results(op: torch._ops.OpOverload) -> bool:
    return any(a.kwarg_only and writes(a) for a in op._schema.arguments)
