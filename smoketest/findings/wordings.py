"""How the backend words a fallback, in warnings, log records and what it prints; and how a report says why."""

from __future__ import annotations

import re

from smoketest.findings.report import Kind

__all__ = ["OWN_LOSS", "POSSIBLE_FALLBACK", "TRIED_OP", "UNLOWERABLE_FALLBACK", "WHY_ON_CPU", "op_named_as_fallback"]

TRIED_OP = "aten::_test_optional_intlist"
"""The op that a real device's tracker is tried with, before anything of the user's runs: it is for PyTorch's own tests,
with a kernel for the CPU and no decomposition. What a loud device says of it is no news."""

WHY_ON_CPU: dict[Kind, str] = {
    "recovered": "which failed, and the CPU took over",
    "rejected": "which refused these dtypes, shapes or layouts, and the CPU took over",
    "unknown": "and ran on the CPU all the same",
}
"""The end of a sentence about an op that has a kernel on the device, by the kind of its fallback."""

_FALLBACK = re.compile(
    r"fell back to (the )?cpu|executed via cpu fallback|falling back (on|to) (the )?cpu"
    r"|starting cpu fallback|cpu fallback completed",
    re.IGNORECASE,
)
_ARGUMENTS = re.compile(r"\bArgs:")  # their dump may hold names of ops and types
_NAME = r"([A-Za-z_]\w*(?:::\w+)?(?:\.\w+)?)"
# A name neither quoted nor after an equals sign may be any word of a sentence ("the operation is falling back").
_OP = re.compile(rf"(?:\boperat(?:or|ion)(?: ?= ?['\"<]?| ?['\"<]) ?|\bhandle operation ){_NAME}", re.IGNORECASE)
_QUALIFIED = re.compile(r"(?<![\w:])(?!(?:std|c10|at|torch|caffe2)::)[A-Za-z_]\w*::\w+(?:\.\w+)?(?![\w.]*(?:::|\())")


def op_named_as_fallback(text: str) -> str | None:
    """The op that a text says fell back; None where the text says no such thing, or names no op.

    The wordings are those of a pre-release ([PRE] NeuronLogging.h, base.py, CPUFallbackExecutor.cpp), matched loosely
    since a release may word them differently. A text that names no op, such as a library's own "falling back to CPU",
    is not taken, nor is a name of C++ code for that of an op, nor `TRIED_OP`.
    """
    if TRIED_OP.rpartition("::")[2] in text:
        return None
    text = " ".join(_ARGUMENTS.split(text, maxsplit=1)[0].split())
    if not _FALLBACK.search(text):
        return None
    named = _OP.search(text)
    if named:
        return named.group(1)
    qualified = _QUALIFIED.search(text)
    return qualified.group() if qualified else None


OWN_LOSS = "the check's own loss"
"""In the message of a finding that has no line of Python: the loss is one that the YAML names."""

POSSIBLE_FALLBACK = ("possible fallback: ", "; a release may well run it on the device")
"""How the message of a fallback begins and ends where all there is to it is that no kernel is known."""

UNLOWERABLE_FALLBACK = ("predicted fallback: ", ", and the op does not lower through torch-mlir either")
"""How it does where no lowering is known either."""
