"""From the ends of the parts to one report: a pure function."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from smoketest.config import Check
from smoketest.config.models import Gate
from smoketest.findings import Finding, NotChecked, Report
from smoketest.findings.agree import agreed
from smoketest.findings.cost import Plan, cost
from smoketest.findings.ranks import ranks_text
from smoketest.findings.report import (
    CompilePart,
    DeviceInfo,
    EagerPart,
    Environment,
    FitPart,
    OperatorRow,
    ParityPart,
    WorkloadInfo,
)
from smoketest.gate import judge_report, new_baseline
from smoketest.supervise.baselines import Held
from smoketest.supervise.outcome import EXIT_ORDER, Crashed, Failed, Interrupted, Ran, Record, TimedOut
from smoketest.supervise.ranks import merge
from smoketest.supervise.signals import INTERRUPTED

__all__ = ["EXIT_ORDER", "Circumstances", "assemble", "worst"]


@dataclass(frozen=True)
class Circumstances:
    """What is known of a run besides its parts.

    Attributes:
        now: time of the report.
        environment: what the parent knows, for a worker that died before it said more.
        command: what to type to run it again.
        held: the baseline the check is held against.
        plan: the job that is to be booked, as far as it was told.
    """

    now: dt.datetime
    environment: Environment
    command: str | None = None
    held: Held = field(default_factory=Held)
    plan: Plan = field(default_factory=Plan)


def assemble(
    check: Check, eagers: Sequence[Record], compiled: Record, reference: Record, circumstances: Circumstances
) -> Report:
    """The report on a check, judged.

    Args:
        check: the check.
        eagers: the eager part of each rank, over; mostly of one.
        compiled: the compile probe, over.
        reference: the same steps on plain CPU, over.
        circumstances: when, where and how it was run.
    """
    records = (*eagers, compiled, reference)
    report = merge([_unjudged(check, eager, compiled, reference, circumstances) for eager in eagers])
    try:
        judged = _judged(report, check.gate, _problem_of(eagers, compiled, reference), circumstances)
    except Exception as error:  # a fault of ours; what the workers found is not lost for it
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        judged = report.model_copy(update={"headline": f"internal error: the findings were not judged: {what}"})
    code = worst([judged.exit_code, *map(_exit_code, records)])
    return judged.model_copy(update={"exit_code": code, "status": "error" if code > 1 else judged.status})


def _problem_of(eagers: Sequence[Record], compiled: Record, reference: Record) -> str | None:
    """Why the check came to no end, with the ranks that it is about where not all say the same."""
    problem = _problem((*eagers, compiled, reference))
    ranks = [rank for rank, eager in enumerate(eagers) if problem is not None and _first_line(eager) == problem]
    return f"{ranks_text(ranks)}: {problem}" if ranks and len(ranks) < len(eagers) else problem


def _unjudged(check: Check, eager: Record, compiled: Record, reference: Record, circumstances: Circumstances) -> Report:
    """The report of one rank, without verdicts."""
    records = (eager, compiled, reference)
    facts = eager.seen.facts or compiled.seen.facts
    device = facts.device if facts else _device(check)
    return Report(
        name=check.name,
        created=circumstances.now.astimezone(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        status="error",
        exit_code=5,
        headline="",
        device=device,
        environment=facts.environment if facts else circumstances.environment,
        workload=facts.workload if facts else _workload(check),
        eager=_eager_part(eager),
        compile=_compile_part(compiled),
        parity=_parity_part(reference),
        fit=eager.seen.fit or FitPart(reason="the model was not sized; see not_checked"),
        cost=cost(device, _eager_part(eager), eager.seen.findings, circumstances.plan),
        operators=_operators(_rows(eager), _rows(compiled)),
        findings=_sorted(agreed(eager.seen.findings + compiled.seen.findings + reference.seen.findings)),
        not_checked=tuple(_not_checked(*records)),
        command=circumstances.command,
    )


def _judged(report: Report, gate: Gate, problem: str | None, circumstances: Circumstances) -> Report:
    """The report under the check's policy and its baseline; where that is made anew, under the new one."""
    held, today = circumstances.held, circumstances.now.date()
    baseline = held.accepted
    if held.update and problem is None:
        baseline = new_baseline(report, gate, today, held.accepted)
    return judge_report(
        report, gate, problem=problem, today=today, baseline=baseline, baseline_file=held.shown, strict=held.strict
    )


def worst(codes: Iterable[int]) -> int:
    """The exit code that counts among several; 5 for one that has no place in the order."""
    return max((code if code in EXIT_ORDER else 5 for code in codes), key=EXIT_ORDER.index, default=0)


def _device(check: Check) -> DeviceInfo:
    """The device for a report whose worker never opened one; ``auto`` is settled by the worker."""
    kind = "emulated" if check.device == "auto" else check.device
    return DeviceInfo(kind=kind, profile_note="the worker ended before it opened a device")


def _workload(check: Check) -> WorkloadInfo:
    """What is known of a workload that no worker described."""
    several = check.parallel is not None and check.ranks > 1
    return WorkloadInfo(parallel=check.parallel.model_dump() if several and check.parallel is not None else None)


def _eager_part(record: Record) -> EagerPart:
    if isinstance(record.outcome, Ran) and record.outcome.result.eager:
        return record.outcome.result.eager
    return EagerPart(status=record.status, reason=record.reason, steps=record.seen.steps)


def _compile_part(record: Record) -> CompilePart:
    if isinstance(record.outcome, Ran) and record.outcome.result.compile:
        return record.outcome.result.compile
    return CompilePart(status=record.status, reason=record.reason)


def _parity_part(record: Record) -> ParityPart:
    if isinstance(record.outcome, Ran) and record.outcome.result.parity:
        return record.outcome.result.parity
    return ParityPart(status=record.status, reason=record.reason)


def _rows(record: Record) -> tuple[OperatorRow, ...]:
    return record.outcome.result.operators if isinstance(record.outcome, Ran) else ()


def _operators(eager: Iterable[OperatorRow], compiled: Iterable[OperatorRow]) -> tuple[OperatorRow, ...]:
    """One row per functional overload: the eager half of the one and the compile half of the other."""
    rows = {row.op: row for row in eager}
    for row in compiled:
        known = rows.get(row.op)
        rows[row.op] = row if known is None else known.model_copy(update={"compile": row.compile})
    return tuple(rows[op] for op in sorted(rows))


def _sorted(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    def order(finding: Finding) -> tuple[str, str, str, int, str]:
        site = finding.site
        return (
            finding.rule,
            finding.phase or "",
            site.file if site else "",
            site.line if site else 0,
            finding.op or "",
        )

    return tuple(sorted(findings, key=order))


def _not_checked(eager: Record, compiled: Record, reference: Record) -> Iterable[NotChecked]:
    """What the workers said, and what the ends of the parts mean; each ``what`` once."""
    records = (eager, compiled, reference)
    entries = [*_notes(eager), *compiled.seen.notes, *reference.seen.notes]
    if eager.status == "skipped":
        entries.append(NotChecked(what="eager part", why=_first_line(eager)))
    elif eager.status != "ran":
        entries.append(NotChecked(what="eager part, to its end", why=_why(eager, records)))
    if compiled.status == "skipped":
        entries.append(NotChecked(what="compile probe", why=_first_line(compiled)))
    elif compiled.status != "ran":
        entries.append(NotChecked(what="compile probe, to its end", why=_why(compiled, records)))
    if reference.status == "skipped":
        entries.append(NotChecked(what="parity", why=_first_line(reference)))
    elif reference.status != "ran":
        entries.append(NotChecked(what="parity, to its end", why=_why(reference, records)))
    seen: set[str] = set()
    for entry in entries:
        if entry.what not in seen:
            seen.add(entry.what)
            yield entry


def _notes(record: Record) -> tuple[NotChecked, ...]:
    """What a part does not tell; where nothing ran, there is nothing that it could have told more of."""
    ran = record.status == "ran" or record.seen.steps or record.seen.findings
    return record.seen.notes if ran else ()


def _why(record: Record, records: Sequence[Record]) -> str:
    """The first line of a part's reason; the headline has it already where it is the check's problem."""
    first = _first_line(record)
    return "it ended with the error in the headline" if first == _problem(records) else first


def _first_line(record: Record) -> str:
    return (record.reason or record.status).splitlines()[0]


def _problem(records: Sequence[Record]) -> str | None:
    """Why the check came to no end, one sentence; None where it did."""
    for record in sorted(records, key=lambda r: EXIT_ORDER.index(_exit_code(r)), reverse=True):
        if _exit_code(record) > 1:
            return _first_line(record)
    return None


def _exit_code(record: Record) -> int:
    match record.outcome:
        case Crashed() | TimedOut():
            return 5
        case Failed(error):
            return error.exit_code if error.exit_code in EXIT_ORDER else 5
        case Interrupted():
            return INTERRUPTED
        case _:
            return 0
