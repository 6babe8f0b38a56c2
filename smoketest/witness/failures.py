"""Ops that raise on the device while plain CPU runs the model: NST104."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from smoketest import devices
from smoketest.findings import Observation, SitePolicy
from smoketest.findings.remedies import ADVICE
from smoketest.findings.report import Phase
from smoketest.witness.dispatch import FailedOp, signature_text
from smoketest.witness.reconcile import TracedCalls
from smoketest.witness.sites import Line

__all__ = [
    "continued",
    "names_device",
    "op_in_error",
    "raised",
    "raised_by_code",
    "raised_by_device",
    "raised_by_ranks",
]

_DEVICES_MIXED = ("same device", "is on cpu", "two devices")
"""In PyTorch's message, and in the backend's own ([PRE] base rule of `can_handle`, internals 2.3)."""
_PACKING = "'lengths' argument should be a 1D CPU"
"""In PyTorch's message, where pack_padded_sequence is given lengths of the device."""
_DEVICES = Path(devices.__file__).parent
_PATCHES = _DEVICES / "emulated" / "compat.py"
_CODE = (
    "Code of the model's or of a library's raises here on the device only: look at the condition around the line, such"
    " as a check of the device's type."
)
_OF_RANKS = ("Expected to have finished reduction in the prior iteration", "mixed torch.Tensor and DTensor")
"""In messages of PyTorch's DDP and DTensor, which come out of C++, or while an op runs."""
_OP = re.compile(r"\b[A-Za-z_]\w*::\w+(?:\.\w+)?")


def raised(
    error: str,
    failed: FailedOp | None,
    is_code: bool,
    line: Line | None,
    phase: Phase | None,
    policy: SitePolicy,
    device: str = "the device",
) -> Observation:
    """The observation for an exception that ended a step on the device.

    Args:
        error: type and text of the exception, as it was.
        failed: the op it came out of, where a witness saw that very exception; no other op is blamed.
        is_code: whether a line of Python raised it (see `raised_by_code`). Its text names no op that failed then.
        line: the user's line in the exception's traceback.
        phase: of the runner.
        policy: makes a site out of a line.
        device: what it ran on: what the emulated one raises is a prediction, and its title says so.
    """
    op = None if is_code and failed is None else op_in_error(error) or (failed.op if failed is not None else None)
    place = failed.line if failed is not None and failed.line is not None else line
    what = op or ("this line" if place is not None else "the step")
    return Observation(
        rule="NST104",
        op=op,
        called_as=failed.op if failed is not None else None,
        phase=failed.phase or phase if failed is not None else phase,
        site=policy.site(*place) if place is not None else None,
        module=failed.module if failed is not None else None,
        calls=1,
        exact=False,
        witnesses=frozenset({"exception"}),
        message=f"{what} raised on {device}, and plain CPU runs it: {error}",
        remedy=_CODE if op is None and is_code else _remedy(error),
    )


def raised_by_code(error: BaseException) -> bool:
    """Whether a ``raise`` or ``assert`` of Python code raised `error`, other than one in a device's own code.

    The emulated device's kernels are Python, and so are many of torch-neuronx's ([PRE] python_ops).

    Told by the instruction that the innermost frame of the traceback stands at.
    """
    *_, trace = [None, *_traces(error)]
    return trace is not None and _raises(trace) and not _is_of_device(trace)


def raised_by_device(error: BaseException) -> bool:
    """Whether a ``raise`` in a device's own code raised `error`: it refuses what it was asked for.

    An exception of PyTorch's C++ that only passes a kernel of the emulated device is none: plain CPU may raise it too.
    """
    *_, trace = [None, *_traces(error)]
    return trace is not None and _raises(trace) and _is_of_device(trace)


def names_device(error: BaseException, torch_device: str) -> bool:
    """Whether PyTorch's own code says in `error` that a tensor is on the device: plain CPU says no such thing.

    Args:
        error: what ended the step.
        torch_device: type of the device, such as ``neuron``; of ``cpu`` nothing follows.
    """
    return (
        torch_device != "cpu"
        and not raised_by_code(error)
        and re.search(rf"\b{re.escape(torch_device)}:\d", str(error)) is not None
    )


def raised_by_ranks(error: BaseException, failed: FailedOp | None) -> bool:
    """Whether `error` is of one of several ranks, or of how they share the work, and not of an op of the device.

    So is what a line of Python raises, PyTorch's own for DDP and DTensor included, and what the interpreter raises. An
    exception of PyTorch's C++ may be the device's refusal; DDP's word on unused parameters is not.

    Args:
        error: what ended the step, which one process on plain CPU makes.
        failed: the op it came out of, where a witness saw that very exception.
    """
    if any(sign in str(error) for sign in _OF_RANKS):
        return True
    traces = list(_traces(error))
    passed = [trace for trace in traces[:-1] if not _is_a_patch(trace)] + traces[-1:]
    if failed is not None or any(map(_is_of_device, passed)):
        return False
    return raised_by_code(error) or not isinstance(error, RuntimeError)


def _traces(error: BaseException) -> Iterator[TracebackType]:
    """The frames of the traceback, the innermost last."""
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _raises(trace: TracebackType) -> bool:
    """Whether the frame stands at a ``raise`` or ``assert``."""
    at = trace.tb_lasti
    return at >= 0 and dis.opname[trace.tb_frame.f_code.co_code[at]] in ("RAISE_VARARGS", "RERAISE")


def _is_a_patch(trace: TracebackType) -> bool:
    """Whether the frame is of what stands in for a part of PyTorch's, such as autograd's engine: all backwards pass."""
    return Path(trace.tb_frame.f_code.co_filename) == _PATCHES


def _is_of_device(trace: TracebackType) -> bool:
    file = Path(trace.tb_frame.f_code.co_filename)
    return file.is_relative_to(_DEVICES) or "torch_neuronx" in file.parts


def continued(ops: Iterable[str], traced: TracedCalls, policy: SitePolicy) -> list[Observation]:
    """Observations for ops that the emulated device went on past: the real one raises there.

    Args:
        ops: overload names, as the device gives them.
        traced: calls of the traced step, which say where; an op that is not among them has no site.
        policy: makes sites out of lines.
    """
    found = []
    for op in sorted(set(ops)):
        calls = [(key, seen) for key, seen in traced.items() if key.op == op]
        message = f"{op} has a kernel neither on the device nor on the CPU: the device raises here"
        for key, seen in calls:
            found.append(
                Observation(
                    rule="NST104",
                    op=op,
                    called_as=key.op,
                    phase=key.phase,
                    site=policy.site(*key.line) if key.line is not None else None,
                    module=key.module,
                    shapes=tuple(signature_text(signature) for signature in seen.signatures),
                    calls=seen.count,
                    exact=True,
                    witnesses=frozenset({"dispatch", "exception"}),
                    message=message,
                )
            )
        if not calls:
            found.append(
                Observation(rule="NST104", op=op, exact=False, witnesses=frozenset({"exception"}), message=message)
            )
    return found


def _remedy(error: str) -> str | None:
    """What to do about an exception; None where no kernel exists at all, which is what the rule's own remedy is for."""
    if any(sign in error for sign in _DEVICES_MIXED):
        return (
            "Move the tensor with the model: register it as a buffer (`register_buffer`), or its module in an"
            " nn.ModuleList or nn.ModuleDict, or make it on the input's device."
        )
    if _PACKING in error:
        return ADVICE["_pack_padded_sequence"]
    if error.startswith("NotImplementedError") or "Could not run" in error:
        return None
    return "The device refuses what plain CPU takes: change what this line gives to the op, or replace the op."


def op_in_error(text: str) -> str | None:
    """The op that an error message names, such as ``aten::_thnn_fused_gru_cell``."""
    found = re.search(r"'\s*([A-Za-z_]\w*::\w+(?:\.\w+)?)\s*'", text) or _OP.search(text)
    if found is None:
        return None
    name = found.group(found.lastindex or 0)
    return name if name.startswith("aten::") or "'" in found.group(0) else None
