# mypy: allow-untyped-calls
"""``torch.autocast("neuron")``: kernels for the stock op lists, read from the header of the installed torch.

[PRE] ``csrc/amp/autocast_mode.cpp``: the real backend registers PyTorch's own macro lists, as CUDA does, and bans
``binary_cross_entropy``. Whether a release deviates from them is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoketest.devices.emulated.compat import NAME, Overload, after_clearing_autocast_cache, without_autocast
from smoketest.operators.functional import overload

__all__ = ["install", "lists"]

_MACRO = re.compile(r"#define AT_FORALL_(LOWER_PRECISION_FP|FP32|FP32_SET_OPT_DTYPE|PROMOTE)\(_\)((?:.*\\\n)*.*\n)")
_ENTRY = re.compile(r"_\((\w+)(?:,\s*(\w+))?\)")
_casts: dict[int, tuple[Tensor, Tensor]] = {}
"""One cast of a leaf weight per autocast region, by the weight's id: (weight, cast)."""


def lists() -> dict[str, str]:
    """Overload name without namespace (``addmm``, ``pow.Tensor_Scalar``) to the policy autocast has for it."""
    text = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()
    found = {
        base + (f".{which}" if which else ""): policy
        for policy, body in _MACRO.findall(text)
        for base, which in _ENTRY.findall(body)
    }
    # Outside the macros, in autocast_mode.cpp: norm changes its overload, binary_cross_entropy is banned.
    return found | {"norm.Scalar": "NORM", "norm.ScalarOpt_dim": "NORM", "binary_cross_entropy": "BANNED"}


def install(library: torch.library.Library, every: torch.library.Library) -> None:
    """Register the autocast kernels of the device.

    Args:
        library: where ATen kernels are registered.
        every: where fallbacks for all ops are registered.
    """
    every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for name, policy in lists().items():
        op = overload(f"aten::{name}")
        if op is not None:
            library.impl(name, _kernel(op, policy), "AutocastPrivateUse1")
    after_clearing_autocast_cache(_casts.clear)


def _kernel(op: Overload, policy: str) -> Callable[..., Any]:
    if policy == "BANNED":
        return _banned(op)
    if policy in ("NORM", "FP32_SET_OPT_DTYPE"):
        return _setting_dtype(op)
    fixed = torch.float32 if policy == "FP32" else None
    promote = policy == "PROMOTE"

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with without_autocast():
            dtype = fixed or (_widest(args) if promote else torch.get_autocast_dtype(NAME))
            return op(*(_cast(a, dtype) for a in args), **{k: _cast(v, dtype) for k, v in kwargs.items()})

    return kernel


def _banned(op: Overload) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"{op.name()} is unsafe to autocast: combine the sigmoid with the loss, "
            "torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss"
        )

    return kernel


def _setting_dtype(op: Overload) -> Callable[..., Any]:
    """Reductions that accumulate in float32: their ``dtype`` argument is set where the caller left it."""
    names = [a.name for a in op._schema.arguments]
    with_dtype = {"aten::norm.Scalar": "ScalarOpt_dtype", "aten::norm.ScalarOpt_dim": "ScalarOpt_dim_dtype"}
    is_norm = op.name() in with_dtype
    run: Any = overload(f"aten::norm.{with_dtype[op.name()]}") if is_norm else op

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        with without_autocast():
            if not _eligible(args[0]) or given.get("dtype") is not None:
                return op(*args, **kwargs)
            given["dtype"] = torch.float32
            if is_norm:
                given.setdefault("p", 2)
            if op.name() == "aten::norm.ScalarOpt_dim":
                given.setdefault("keepdim", False)
            return run(**given)

    return kernel


def _eligible(x: Any) -> bool:
    return isinstance(x, Tensor) and x.device.type == NAME and x.is_floating_point() and x.dtype != torch.float64


def _widest(args: tuple[Any, ...]) -> torch.dtype:
    """float32 if a tensor among the arguments has it, else the low-precision dtype."""
    flat = [t for x in args for t in (x if isinstance(x, (list, tuple)) else [x]) if _eligible(t)]
    return torch.float32 if any(t.dtype == torch.float32 for t in flat) else torch.get_autocast_dtype(NAME)


def _cast(x: Any, dtype: torch.dtype) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(_cast(item, dtype) for item in x)
    if not _eligible(x) or x.dtype == dtype:
        return x
    is_weight = x.dtype == torch.float32 and x.requires_grad and x.is_leaf and x._base is None
    if dtype == torch.float32 or not is_weight or not torch.is_autocast_cache_enabled():
        return x.to(dtype)
    if id(x) not in _casts:
        _casts[id(x)] = (x, x.to(dtype))
    return _casts[id(x)][1]
