"""Calls in which the host waits for the device: NST103."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributions
from torch import Tensor

from smoketest.findings.remedies import LINALG_UNCHECKED, remedy_for

__all__ = ["sync_cause", "sync_message", "sync_remedy", "waits_in"]

_MASKS = (torch.bool, torch.uint8)
_CAUSES = {
    **dict.fromkeys(("aten::_local_scalar_dense", "aten::equal", "aten::allclose"), "read"),
    "aten::_linalg_check_errors": "check",
    "aten::repeat_interleave.Tensor": "repeat",
    **dict.fromkeys(("aten::_to_copy", "aten::copy_"), "copy"),
    **dict.fromkeys(
        (
            "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::_unique", "aten::unique_dim",
            "aten::unique_consecutive", "aten::bincount",
        ),
        "size",
    ),
    **dict.fromkeys(
        ("aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"), "mask"
    ),
}  # fmt: skip

_MESSAGES = {
    "read": "a value of the device is read on the host (`.item()`, `float(t)`, `if t:`), which waits for the device",
    "check": "a function of torch.linalg reads its error code on the host, which waits for the device",
    "copy": 'a tensor is copied from the device to the host (`.cpu()`, `.to("cpu")`), which waits for the device',
    "size": "the size of the result depends on values on the device, so the host has to read them first",
    "repeat": "the size of the result is the sum of the repeats, so the host has to read them first",
    "mask": "indexing with a mask depends on values on the device, so the host has to read them first",
}

_SAME_SIZE = (
    "Keep the full size and let a mask decide: `torch.where(mask, x, 0.0)`, or a product with the mask, before a sum."
)
_REMEDIES = {
    "read": "Keep the number a tensor and read it once in many steps; where it decides what is computed, compute both"
    " sides and choose with `torch.where`.",
    "copy": "Keep the tensor on the device, or copy it once in many steps.",
    "check": LINALG_UNCHECKED,
    "inside": "The op itself asks for the value. Write what it computes with ops that do not (smoketest explain names"
    " a rewrite where there is one), or accept it under gate.allow with a reason.",
    "size": _SAME_SIZE,
    "repeat": "Give the size of the result where it is known: `torch.repeat_interleave(x, repeats, output_size=n)` does"
    " not wait. Where it is not, pad to a maximum in the data loader.",
    "mask": _SAME_SIZE,
}

_DISTRIBUTION = re.compile(
    rf"\bdistributions\b|\b(?:{'|'.join(torch.distributions.__all__)})\s*\(|\.(?:log_prob|cdf|icdf)\s*\("
)
_READS_ITSELF = re.compile(
    r"\.(?:item|tolist|cpu|numpy)\s*\(|\b(?:float|int|bool|print)\s*\(|^\s*(?:if|elif|while|assert)\b"
)
_READS = (
    (
        re.compile(r"\b(?:print|log\w*|debug|info|warning|add_scalar|wandb|tqdm|set_postfix|write)\s*\(|f[\"']"),
        "Log once in many steps: keep the value as a tensor (`losses.append(loss.detach())`) and read it, with"
        " `.item()`, `print` or a logger, every hundredth step or so.",
    ),
    (
        re.compile(r"^\s*(?:if|elif|while|assert)\b|\bbool\s*\(|\bif\b.+\belse\b"),
        "Do not branch on a tensor: compute both sides and choose with `torch.where(condition, a, b)`; leave checks"
        " such as isnan out of the step, or make them once in many steps.",
    ),
    (
        re.compile(r"\.tolist\s*\(|\.numpy\s*\("),
        "Keep the values a tensor; where Python needs them, make them in the data loader, on the CPU, or read them once"
        " in many steps.",
    ),
    (
        re.compile(r"\.item\s*\(|\b(?:float|int)\s*\("),
        "Leave out `.item()`, `float()` and `int()`: add up and compare as tensors (`total += loss.detach()`), and read"
        " the number once in many steps.",
    ),
)
"""How lines read a value, the first that fits first, and what to do instead of each."""

_VALIDATION = (
    "Give the distribution `validate_args=False`: what waits is its check of arguments and samples. For all of them,"
    " once at the start: `torch.distributions.Distribution.set_default_validate_args(False)`."
)
_CHECKS = (
    (
        "error_if_nonfinite",
        "error_if_nonfinite=True is what reads the norm. Leave it out, and look at the norm that the call returns once"
        " in many steps.",
    ),
    (
        "gaussian_nll_loss",
        "The loss reads whether a variance is negative. Where it cannot be (after a softplus or an exp), write it out:"
        " 0.5 * (torch.log(var) + (x - y) ** 2 / var), with var clamped from below by eps, and its mean.",
    ),
)
"""Calls of PyTorch's in which a check reads a value, by what stands in the line."""

_CTC = re.compile("ctc", re.IGNORECASE)
_LENGTHS = (
    "If it is ctc_loss that copies: it needs input_lengths and target_lengths on the host, so leave them on the CPU"
    " when the batch is moved, or give tuples of numbers."
)
_LIBRARY = (
    "see whether what you pass decides it (a mask, a flag, a size that could be a plain number), else accept it under"
    " gate.allow with a reason."
)
_OPTIMIZER = (
    "see whether an option of the optimizer decides it (a line search, a tolerance, capturable), take another"
    " optimizer, or accept it under gate.allow with a reason."
)
_MASKS_OF_TRANSFORMERS = (
    "it asks whether the attention mask hides anything. Leave attention_mask out where nothing is padded; else accept"
    " it under gate.allow with a reason."
)


def sync_cause(
    op: str, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Tensor], result: Any, device: str
) -> str | None:
    """Why the host waits for the device in a call, a key of the messages such as ``read``; None where it does not.

    It follows from what the call returns: a Python value, CPU memory, or a tensor whose size the values decide. Kernels
    that read values without need are hidden host work and no matter of the caller's.

    Args:
        op: full overload name.
        args: of the call; with `kwargs`.
        tensors: the tensors among the arguments.
        result: what the call returned.
        device: type of the device, such as ``neuron``.
    """
    cause = _CAUSES.get(op)
    if cause is None:
        return None
    if cause == "mask":
        tensors = [index for index in args[1] if isinstance(index, Tensor) and index.dtype in _MASKS]
    size_is_given = cause == "repeat" and kwargs.get("output_size") is not None
    no_wait = cause == "copy" and (kwargs.get("non_blocking") or not _is_on(result, "cpu"))
    if size_is_given or no_wait or not any(_is_on(tensor, device) for tensor in tensors):
        return None
    return cause


def waits_in(kernel: str) -> str | None:
    """Why the host waits for a kernel whatever its arguments are, such as ``read``; None where it does not.

    Args:
        kernel: full overload name.
    """
    cause = _CAUSES.get(kernel)
    return cause if cause in ("read", "size", "repeat") else None


def sync_message(cause: str) -> str:
    """One sentence on what makes the host wait."""
    return _MESSAGES[cause]


def sync_remedy(
    cause: str,
    code: str = "",
    library: str | None = None,
    module: str | None = None,
    *,
    op: str | None = None,
    in_optimizer: bool = False,
) -> str:
    """What to write instead, or what to do about a line that is not the user's own.

    Args:
        cause: as `sync_cause` gives it.
        code: the line that waits; empty where not known.
        library: the package whose line it is; None for a line of the user's own.
        module: qualified name of the module it is called in, or class of the optimizer; None where not known.
        op: overload name of what waits; where there is something to write instead of it, that is the advice.
        in_optimizer: whether it waits in the optimizer's phase.
    """
    if cause == "read" and _DISTRIBUTION.search(code) and not _READS_ITSELF.search(code):
        return _VALIDATION
    if cause == "read" and (known := next((told for call, told in _CHECKS if call in code), None)):
        return known
    if cause == "copy" and _CTC.search(code):
        return _LENGTHS
    if library is not None and in_optimizer:
        of = f", in {module}" if module else ""
        return f"The line is of {library}, not yours{of}: {_OPTIMIZER}"
    if library is not None:
        where = f", reached through your module `{module}`" if module else ""
        masks = _MASKS_OF_TRANSFORMERS if library == "transformers" and "mask" in code else ""
        return f"The line is of {library}, not yours{where}: {masks or _LIBRARY}"
    if cause == "read":
        return next((told for pattern, told in _READS if pattern.search(code)), _REMEDIES[cause])
    return (remedy_for(op) if op is not None and cause == "size" else None) or _REMEDIES[cause]


def _is_on(value: Any, device: str) -> bool:
    return isinstance(value, Tensor) and value.device.type == device
