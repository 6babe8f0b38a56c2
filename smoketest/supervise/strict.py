"""The strict witness as a part of a run: whether to start it, and what it told.

It is a worker of its own (`smoketest.worker.strict`) and starts when the eager worker is gone: on a real device no
second process gets the core before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from smoketest.findings import Finding, NotChecked
from smoketest.findings.identity import functional_base
from smoketest.findings.report import Kind
from smoketest.findings.wordings import WHY_ON_CPU
from smoketest.supervise.outcome import Ran, Record, Seen

__all__ = ["told", "unexplained"]


def unexplained(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Ops that ran on the CPU though the device has a kernel, sorted: why, no witness of the eager part can tell."""
    return tuple(sorted({f.op for f in findings if f.rule == "NST101" and f.kind == "unknown" and f.op}))


def told(eager: Record, strict: Record | None) -> Record:
    """The eager part with what the strict part told of its findings.

    Args:
        eager: over.
        strict: over; None where it was not started.
    """
    if strict is None:
        return eager
    findings = tuple(_explained(finding, strict.seen.kinds) for finding in eager.seen.findings)
    notes = eager.seen.notes
    left = unexplained(findings)
    if left:
        notes += (NotChecked(what=f"why {', '.join(left)} ran on the CPU", why=_why_not(strict)),)
    return replace(eager, seen=replace(eager.seen, findings=findings, notes=notes))


def _explained(finding: Finding, kinds: Mapping[str, Kind]) -> Finding:
    kind = kinds.get(functional_base(finding.op)) if finding.op else None
    if kind is None or finding.rule != "NST101" or finding.kind != "unknown":
        return finding
    return finding.model_copy(
        update={
            "kind": kind,
            "witnesses": tuple(sorted({*finding.witnesses, "strict"})),
            "message": finding.message.replace(WHY_ON_CPU["unknown"], WHY_ON_CPU[kind]),
        }
    )


def _why_not(strict: Record) -> str:
    seen: Seen = strict.seen
    if not isinstance(strict.outcome, Ran):
        reason = (strict.reason or strict.status).splitlines()[0]
        return f"the strict witness could not tell: {reason}"
    if seen.problem is not None:
        return f"the strict witness could not tell: the step raised there: {seen.problem}"
    return "the strict witness saw no refusal of it"
