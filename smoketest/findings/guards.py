"""What a guard of Dynamo's says in words, and what to do so that it holds (rule NST205)."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Guard", "about_guard"]


@dataclass(frozen=True)
class Guard:
    """What made a function compile again.

    Attributes:
        cause: what differed from the call before, a clause.
        remedy: what to do, one sentence.
    """

    cause: str
    remedy: str


_READ = Guard(
    "a Python number read from a tensor has another value",
    "A Python number read from a tensor is compiled in as a constant: every new value compiles again until Dynamo gives"
    " up (recompile_limit, 8). Keep it a tensor: no .item(), and torch.where instead of `if`.",
)
_ATTRIBUTE = Guard(
    "an attribute has changed",
    "Set the attribute before the first call and leave it: its value is compiled in as a constant. What must change in"
    " training should be a tensor, such as a buffer.",
)
_ARGUMENT = Guard(
    "a Python value has changed",
    "A Python value is compiled in as a constant: every new value compiles again until Dynamo gives up"
    " (recompile_limit, 8). Pass a tensor, or the same value in every call.",
)
_MODE = Guard(
    "gradients are on in one call and off in another",
    "Call the compiled model in the same mode always: validate with the uncompiled model, or accept one more compile"
    " for torch.no_grad().",
)
_TRAINING = Guard(
    "a module is in training mode in one call and in eval mode in another",
    "Call the compiled model in the same mode always: validate with the uncompiled model, or accept one more compile"
    " for model.eval().",
)
_REQUIRES_GRAD = Guard(
    "a tensor requires a gradient in one call and not in another",
    "Give the tensor with the same requires_grad in every call: detach it always, or never.",
)
_AUTOCAST = Guard("autocast differs between calls", "Call the compiled model under the same autocast always.")
_GLOBAL = Guard(
    "a global setting of PyTorch has changed",
    "Set the global state that the guard names before the first call and leave it.",
)
_SHAPE = Guard(
    "a tensor has another shape",
    "Pad or bucket the batches to a fixed set of shapes; drop the partial last batch.",
)
_STRIDE = Guard("a tensor has another layout", "Give the tensor in one layout, such as after .contiguous().")
_DTYPE = Guard("a tensor has another dtype", "Give the tensor in the same dtype in every call.")
_LENGTH = Guard(
    "a list, tuple or dict has another length",
    "Give the same number of entries in every call, or stack them into one padded tensor.",
)
_OTHER = Guard(
    "what it depends on has changed",
    "Make what the guard names the same in every call: each of its values is one more compile.",
)

_NUMBER = r"-?(?:\d|inf\b|nan\b)|(?:True|False)\b"
_KINDS: tuple[tuple[str, Guard], ...] = (
    (r"tensor '.*' (?:size|rank) mismatch", _SHAPE),
    (r"tensor '.*' stride mismatch", _STRIDE),
    (r"tensor '.*' dtype mismatch", _DTYPE),
    (r"tensor '.*' requires_grad mismatch", _REQUIRES_GRAD),
    (r"GLOBAL_STATE changed: .*\bautocast", _AUTOCAST),
    (r"GLOBAL_STATE changed: .*\bgrad_mode", _MODE),
    (r"GLOBAL_STATE changed", _GLOBAL),
    (r"(?:not )?len\(", _LENGTH),
    (r"(?:not )?[\w.\[\]'\"]+\.training\b", _TRAINING),
    (r"(?:not )?___dict_contains\('\w+', .*\.__dict__\)", _ATTRIBUTE),
    # The values on Python's stack after a graph break: what .item() and the like gave.
    (rf"___stack\d+ == (?:{_NUMBER})", _READ),
    (r"(?:not )?(?:___\w+\()*\w[\w.\[\]'\"]*(?:\.\w+|\[['\"]\w+['\"]\])(?: (?:==|is)|[,)]|$)", _ATTRIBUTE),
    (r"\w+ (?:==|is) ", _ARGUMENT),
)
"""Guards as torch 2.13 writes them, in the order in which they are asked."""


def about_guard(guard: str) -> Guard:
    """What a guard means to the person whose code it is.

    Args:
        guard: as Dynamo writes it, such as ``___stack0 == 1332.4`` or ``GLOBAL_STATE changed: grad_mode``; an id of a
            compilation in front of it is skipped.
    """
    bare = re.sub(r"^\d+/\d+: ", "", guard.strip())
    # Older releases write L['x'] for a local name.
    bare = re.sub(r"\bL\['(\w+)'\]", r"\1", bare)
    return next((known for pattern, known in _KINDS if re.match(pattern, bare)), _OTHER)
