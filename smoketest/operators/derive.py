"""A profile from what is registered in this process: the dispatcher tells the rest. This module imports torch."""

from __future__ import annotations

import torch

from smoketest.operators.functional import forms, overload

__all__ = ["reaches", "registered", "unimplemented"]

_STRUCTURED = "CompositeExplicitAutogradNonFunctional"
_COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", _STRUCTURED)


def _aten() -> list[str]:
    return sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))


def _has(name: str, *keys: str) -> bool:
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)


def registered(key: str = "PrivateUse1") -> list[str]:
    """ATen overloads with a kernel under a dispatch key; names that belong to no overload are left out."""
    return [name for name in _aten() if _has(name, key)]


def reaches() -> dict[str, str]:
    """Structured overloads, functional and in-place, and the ``.out`` overload they end in on any backend."""
    found = {}
    for name in _aten():
        if _has(name, _STRUCTURED):
            out = _out_form(name)
            if out is not None and (_has(out, "CPU") or not _has(out, *_COMPOSITES)):
                found[name] = out
    return found


def unimplemented(native: frozenset[str]) -> list[str]:
    """Overloads that have neither a kernel among ``native`` nor a composite: they run on the CPU."""
    return [name for name in _aten() if name not in native and not _has(name, *_COMPOSITES)]


def _out_form(name: str) -> str | None:
    op = overload(name)
    if op is not None and torch.Tag.view_copy in op.tags:
        return None
    out = None if op is None else next(filter(_writes_results, forms(op)), None)
    return None if out is None else out.name()  # type: ignore[no-untyped-call]


def _writes_results(op: torch._ops.OpOverload) -> bool:
    return any(a.kwarg_only and a.alias_info is not None and a.alias_info.is_write for a in op._schema.arguments)
