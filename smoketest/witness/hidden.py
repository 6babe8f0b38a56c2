"""Host work inside ops that count as native: what the facts know, and what of it is a finding (NST102).

Most of it meets every healthy model (int64 token ids, dropout, a slice in a forward), and is known from a pre-release's
source only. As findings it would cry wolf on GPT-2, so it is summed up in one line of what was not measured. A finding
is what a user can and should change: 64-bit floats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch

from smoketest.findings import Observation, SitePolicy
from smoketest.operators.functional import overload
from smoketest.witness.dispatch import Calls, OpKey, Signature, signature_text

__all__ = ["HIDDEN", "HiddenWork", "computes_on_device", "copies", "doubles", "is_view", "summary"]


@dataclass(frozen=True)
class HiddenWork:
    """Ops whose kernel is known to work on the host in part.

    Attributes:
        what: in a few words.
        ops: base names of the ops.
        source: where that is known from.
        grade: evidence grade of the source.
    """

    what: str
    ops: frozenset[str]
    source: str
    grade: str


HIDDEN = (
    HiddenWork(
        "the gradient of a selection is made on the CPU",
        frozenset({"aten::select_backward"}),
        "source of a pre-release, April 2026",
        "PRE",
    ),
    HiddenWork(
        "a stable argsort runs on the CPU",
        frozenset({"aten::argsort"}),
        "source of a pre-release, April 2026",
        "PRE",
    ),
    HiddenWork(
        "dropout masks and random numbers are sampled on the CPU",
        frozenset({"aten::native_dropout", "aten::rand", "aten::randn", "aten::bernoulli", "aten::bernoulli_"}),
        "source of a pre-release, April 2026",
        "PRE",
    ),
)
_COPIES = frozenset({"aten::_to_copy", "aten::copy_", "aten::clone", "aten::empty_like"})
_DOUBLE = (
    "possible hidden host work: 64-bit floats are cast to 32 bits and back through the CPU in each call of a kernel, as"
    " in a pre-release of April 2026"
)
_LEFT_BEHIND = "Move the tensor once: register it as a buffer (`register_buffer`), or make it on the input's device."
_INT64 = "64-bit integers are cast to 32 bits and back through the CPU in each call"


def summary(traced: Mapping[OpKey, Calls]) -> str | None:
    """One line with the calls of a step that may work on the host unseen; None where there is none."""
    counts: Counter[str] = Counter()
    for key, calls in traced.items():
        if not computes_on_device(key):
            continue
        base = key.op.partition(".")[0]
        for work in HIDDEN:
            if base in work.ops:
                counts[work.what] += calls.count
        if any(_has(signature, torch.int64) for signature in calls.signatures):
            counts[_INT64] += calls.count
    if not counts:
        return None
    return "; ".join(
        f"{what} ({count:,} call{'' if count == 1 else 's'} in the traced step)"
        for what, count in sorted(counts.items())
    )


def doubles(traced: Mapping[OpKey, Calls], policy: SitePolicy) -> list[Observation]:
    """NST102 for every line of forward that computes with 64-bit floats; backward follows from it.

    Source: [PRE] dtype autocast of the eager kernels, April 2026: tensors of one or more dimensions are cast to 32 bits
    for the kernel, and the result back, by way of the CPU.

    Args:
        traced: calls of the traced step.
        policy: makes sites out of lines.
    """
    found = []
    for key, calls in traced.items():
        shapes = [signature for signature in calls.signatures if _has(signature, torch.float64)]
        if shapes and key.phase == "forward" and computes_on_device(key):
            found.append(
                Observation(
                    rule="NST102",
                    phase=key.phase,
                    site=policy.site(*key.line) if key.line is not None else None,
                    module=key.module,
                    shapes=tuple(signature_text(signature) for signature in shapes),
                    calls=calls.count,
                    exact=len(shapes) == len(calls.signatures),
                    witnesses=frozenset({"dispatch"}),
                    message=_DOUBLE,
                    remedy="Use float32 here: the device has no 64-bit floats, and the digits are lost in any case.",
                )
            )
    return found


def copies(traced: Mapping[OpKey, Calls], policy: SitePolicy) -> list[Observation]:
    """NST102, measured: calls that copied between device and host though nothing in them asks for it.

    Not copies themselves, nor calls that fell back or in which the host waits, which are findings of their own.

    Args:
        traced: calls of a step with copies counted.
        policy: makes sites out of lines.
    """
    return [
        Observation(
            rule="NST102",
            op=key.op,
            called_as=key.op,
            grounds="measured",
            phase=key.phase,
            site=policy.site(*key.line) if key.line is not None else None,
            module=key.module,
            shapes=tuple(signature_text(signature) for signature in calls.signatures),
            calls=calls.count,
            exact=True,
            bytes=calls.copied_bytes or None,
            witnesses=frozenset({"copies", "dispatch"}),
            message=f"{key.op} counts as native and copied between device and host {calls.copies} times",
        )
        for key, calls in traced.items()
        if calls.copies and key.sync is None and computes_on_device(key)
    ]


def host_arguments(traced: Mapping[OpKey, Calls], policy: SitePolicy) -> list[Observation]:
    """NST102: calls of an op of the device that take a CPU tensor as well, such as an index that was left behind.

    PyTorch lets some ops do so, and the tensor crosses to the device within the op: no copy is to be seen in the code.

    Args:
        traced: calls of the traced step.
        policy: makes sites out of lines.
    """
    return [
        Observation(
            rule="NST102",
            op=key.op,
            called_as=key.op,
            phase=key.phase,
            site=policy.site(*key.line) if key.line is not None else None,
            module=key.module,
            shapes=tuple(signature_text(signature) for signature in calls.signatures),
            calls=calls.count,
            exact=True,
            bytes=calls.host_bytes,
            witnesses=frozenset({"dispatch"}),
            message=f"{key.op} takes a CPU tensor beside those of the device: it is copied there in each call",
            remedy=_LEFT_BEHIND,
        )
        for key, calls in traced.items()
        if calls.host_bytes and key.sync is None and computes_on_device(key)
    ]


def computes_on_device(key: OpKey) -> bool:
    """Whether a kernel of the device computed something: not in views and copies, nor in a call that fell back."""
    return key.on_device and not key.fell_back and key.op not in _COPIES and not is_view(key.op)


@cache
def is_view(name: str) -> bool:
    """Whether an op only looks at its argument in another way."""
    op = overload(name)
    if op is None:
        return False
    return not op._schema.is_mutable and any(result.alias_info is not None for result in op._schema.returns)


def _has(signature: Signature, dtype: torch.dtype) -> bool:
    return any(kind == dtype and shape for kind, shape in signature)
