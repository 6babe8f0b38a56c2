"""Several ranks as one: which of them is to blame for an end, and one report of all of theirs.

What is the same everywhere is said once; what differs is named by rank. Pure functions of what the ranks left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from smoketest.findings import Finding, NotChecked, Report
from smoketest.findings.identity import functional_base
from smoketest.findings.ranks import ranks_text
from smoketest.findings.report import (
    CompilePart,
    CostPart,
    EagerPart,
    Environment,
    OperatorRow,
    ParityPart,
    Step,
    WorkloadInfo,
)
from smoketest.supervise.outcome import (
    EXIT_ORDER,
    OTHERS,
    Crashed,
    EndedWithOthers,
    Interrupted,
    Record,
    TimedOut,
)
from smoketest.supervise.protocol import Breadcrumb

__all__ = ["RankEnd", "mean_losses", "merge", "settle", "speaker"]

_T = TypeVar("_T")
_Part = TypeVar("_Part", CompilePart, ParityPart)
_STATUSES = ("ran", "skipped", "failed", "timed_out", "crashed")
_VERDICTS = (None, "allow", "warn", "deny")
_NO_SKEW = 1.0
"""Seconds that a rank may be behind another without any meaning."""
_COLLECTIVE = ("c10d::", "_c10d_functional::", "fsdp::")
_RAISED = "NST104"


@dataclass(frozen=True)
class RankEnd:
    """How the eager part of one rank ended.

    Attributes:
        rank: its number.
        record: what it left.
        crumb: where it was last.
        at: when it said its last word, was stopped, or else was found dead, on the monotonic clock.
        opening: whether it was at the first use of a real device.
    """

    rank: int
    record: Record
    crumb: Breadcrumb
    at: float
    opening: bool = False


def settle(ends: Sequence[RankEnd]) -> tuple[Record, ...]:
    """The records, those of ranks that came to no end for another one's sake told as such.

    Ranks wait for one another. So one that dies, raises or hangs has the others raise in a collective, or wait for
    ever: of those nothing is a finding.
    """
    blamed = {end.rank: end for end in _to_blame(ends)}
    if len(blamed) == len(ends) and (together := _all_late(ends)) is not None:
        return tuple(replace(end.record, outcome=together) for end in ends)
    return tuple(end.record if end.rank in blamed or end.record.status == "ran" else _ended(end) for end in ends)


def _to_blame(ends: Sequence[RankEnd]) -> Sequence[RankEnd]:
    """The ranks that came to no end of themselves."""
    bad = [end for end in ends if end.record.status != "ran"]
    crashed = [end for end in bad if isinstance(end.record.outcome, Crashed)]
    if crashed or any(isinstance(end.record.outcome, Interrupted) for end in bad):
        return crashed or bad
    late = [end for end in bad if isinstance(end.record.outcome, TimedOut)]
    if late:
        return _behind(late) or late
    failed = [end for end in bad if not isinstance(end.record.outcome, EndedWithOthers)]
    first = min(failed, key=lambda end: end.at, default=None)
    return [end for end in failed if first is not None and end.record.reason == first.record.reason]


def _behind(late: Sequence[RankEnd]) -> Sequence[RankEnd]:
    """Of ranks that did not get on, those that the others have waited for; none where no rank is known to be behind.

    A rank that is merely slow is not: the others are ahead of it by less time than a phase takes them.
    """
    last = min(end.crumb.entered for end in late)
    there = [end for end in late if end.crumb.entered == last]
    if not all(_has_waited(end, there[0]) for end in late if end not in there):
        return ()
    held = [end for end in there if not _stands_in_a_collective(end)]
    return held if 0 < len(held) < len(late) else there if len(there) < len(late) else ()


def _has_waited(end: RankEnd, behind: RankEnd) -> bool:
    """Whether a rank that is ahead of another has long finished what that one has not."""
    a_step_ahead = (end.crumb.step or 0) - (behind.crumb.step or 0) > 1
    return a_step_ahead or _stands_still(end)


def _stands_in_a_collective(end: RankEnd) -> bool:
    return (end.crumb.op or "").startswith(_COLLECTIVE) and _stands_still(end)


def _stands_still(end: RankEnd) -> bool:
    """Whether it has been where it is for longer than any phase took it before."""
    return end.crumb.since is not None and end.at - end.crumb.since > max(_NO_SKEW, end.crumb.took)


def _all_late(ends: Sequence[RankEnd]) -> TimedOut | None:
    """What is said of ranks of which none was behind when their time was up; None where they ended otherwise."""
    outcomes = [end.record.outcome for end in ends]
    late = [outcome for outcome in outcomes if isinstance(outcome, TimedOut)]
    if len(late) < len(ends) or len({outcome.what for outcome in late}) > 1:
        return None
    places = [end.crumb.model_copy(update={"op": None, "module": None}).sentence() for end in ends]
    if len(set(places)) > 1:
        groups = _by_value(places, lambda place: place).items()
        where = "; ".join(f"{ranks_text([rank for rank, _ in group])} {place}" for place, group in groups)
    else:
        where = f"all were still {places[0]}" if places[0].startswith("in ") else f"all were still at work {places[0]}"
    return TimedOut(late[0].seconds, f"{late[0].what}, and no rank was behind the others: {where}")


def _ended(end: RankEnd) -> Record:
    seen = end.record.seen
    findings = tuple(finding for finding in seen.findings if finding.rule != _RAISED)
    reason = f"the eager worker was ended {end.crumb.sentence()}, {OTHERS}"
    return Record(EndedWithOthers(reason), replace(seen, findings=findings))


def speaker(records: Sequence[Record]) -> Record:
    """The record that says how the ranks' part of a run ended: of one that is to blame, else the first."""
    bad = [r for r in records if r.status != "ran" and not isinstance(r.outcome, EndedWithOthers)]
    return bad[0] if bad else records[0]


def mean_losses(ends: Sequence[RankEnd]) -> tuple[float | None, ...]:
    """The losses of the steps that all ranks made, each the mean over them; None where one is not finite."""
    return tuple(step.loss for step in _steps([end.record.seen.steps for end in ends]))


def merge(reports: Sequence[Report]) -> Report:
    """One report of those of all ranks, in their order.

    It stands in this room, beside the launcher that makes ranks, and needs no gate: reports may be judged or not. Where
    they are, verdicts and exit code are the worst of a rank.

    Args:
        reports: rank 0's first. A single one comes back as it is.
    """
    first = reports[0]
    if len(reports) == 1:
        return first
    worst = max(reports, key=lambda report: _order(report.exit_code))
    return first.model_copy(update={
        "ranks": len(reports),
        "status": worst.status,
        "exit_code": worst.exit_code,
        "headline": _headline(reports, worst),
        "device": next((report.device for report in reports if report.device.profile is not None), first.device),
        "environment": _environment([report.environment for report in reports]),
        "workload": _workload([report.workload for report in reports]),
        "eager": _eager([report.eager for report in reports]),
        "compile": _worst([report.compile for report in reports]),
        "parity": _worst([report.parity for report in reports]),
        "fit": next((report.fit for report in reports if report.fit.status == "ran"), first.fit),
        "cost": _cost(reports),
        "operators": tuple(_operators(reports)),
        "findings": tuple(_findings(reports)),
        "baseline": first.baseline.model_copy(update={"fixed": _fixed(reports)}),
        "not_checked": (*_not_checked(reports), *_left_out(reports)),
    })  # fmt: skip


def _order(code: int) -> int:
    return EXIT_ORDER.index(code) if code in EXIT_ORDER else EXIT_ORDER.index(5)


def _numbers_of_others(name: str, parts: Sequence[_Part]) -> Iterator[NotChecked]:
    """That some ranks have other numbers than those that are told, which are of the one with the worst end."""
    shown = max(parts, key=lambda part: _STATUSES.index(part.status))
    others = [rank for rank, part in enumerate(parts) if part != shown and part.status != "skipped"]
    if others:
        why = f"the numbers are those of rank {parts.index(shown)}; each rank's own report has its own"
        yield NotChecked(what=f"{name}, the numbers of {ranks_text(others)}", why=why)


def _known(workload: WorkloadInfo) -> int:
    return sum(value is not None for _, value in workload)


def _environment(known: Sequence[Environment]) -> Environment:
    """The first one's, with settings that are not the same everywhere told by rank."""
    by_rank = {rank: environment.settings for rank, environment in enumerate(known) if environment.settings}
    return known[0].model_copy(update={"settings": _by_name(by_rank, "not set")})


def _workload(known: Sequence[WorkloadInfo]) -> WorkloadInfo:
    """That of which most is known, with what the ranks were given told by rank where it is not the same."""
    fullest = max(known, key=_known)
    given = {rank: workload.batch for rank, workload in enumerate(known) if workload.batch}
    return fullest.model_copy(update={"batch": _by_name(given, "nothing")}) if given else fullest


def _by_name(by_rank: Mapping[int, Mapping[str, str]], missing: str) -> dict[str, str]:
    """For each name what all these ranks have, or what each of them has."""
    names = dict.fromkeys(name for values in by_rank.values() for name in values)
    return {name: _told({rank: values.get(name, missing) for rank, values in by_rank.items()}) for name in names}


def _told(values: Mapping[int, str]) -> str:
    """A value that all these ranks have, or the ranks' values."""
    groups: dict[str, list[int]] = {}
    for rank, value in values.items():
        groups.setdefault(value, []).append(rank)
    if len(groups) == 1:
        return next(iter(groups))
    return "; ".join(f"{value} on {ranks_text(ranks)}" for value, ranks in groups.items())


def _worst(parts: Sequence[_Part]) -> _Part:
    """The part that came to the worst end, with the ranks that it is of where not all have the same."""
    worst = max(parts, key=lambda part: _STATUSES.index(part.status))
    ranks = [rank for rank, part in enumerate(parts) if part == worst]
    if len(ranks) == len(parts) or worst.reason is None or worst.status == "skipped":
        return worst
    return worst.model_copy(update={"reason": f"{ranks_text(ranks)}: {worst.reason}"})


def _cost(reports: Sequence[Report]) -> CostPart:
    """The largest counts of a rank. Where one's traced step is missing, they are lower bounds, and none is no count."""
    parts = [report.cost for report in reports]
    most = max(parts, key=lambda part: part.calls_per_step or 0)
    whole = all(any(step.role == "traced" for step in report.eager.steps) for report in reports)
    names = ("calls_per_step", "bytes_per_step", "host_syncs_per_step")
    counts = {name: _most(getattr(part, name) for part in parts) for name in names}
    if whole:
        exact = None if most.exact is None else all(part.exact is not False for part in parts)
        return most.model_copy(update={**counts, "exact": exact})
    known = {name: count or None for name, count in counts.items()}
    return most.model_copy(update={**known, "exact": False if any(known.values()) else None})


def _left_out(reports: Sequence[Report]) -> Iterator[NotChecked]:
    """What some ranks have and one report has no room for."""
    made = [len(report.eager.steps) for report in reports]
    if len(set(made)) > 1:
        why = f"steps made: {_told(dict(enumerate(map(str, made))))}; losses and times are of those that all ranks made"
        yield NotChecked(what="steps that only some ranks made", why=why)
    yield from _numbers_of_others("compile probe", [report.compile for report in reports])
    yield from _numbers_of_others("comparison with CPU", [report.parity for report in reports])
    where = _told({rank: report.device.kind for rank, report in enumerate(reports)})
    if where != reports[0].device.kind:
        yield NotChecked(what="ranks on one kind of device", why=f"they ran on different ones: {where}")


def _by_value(values: Iterable[_T], key: Callable[[_T], Hashable]) -> dict[Hashable, list[tuple[int, _T]]]:
    """The values that are alike together, each with its rank."""
    groups: dict[Hashable, list[tuple[int, _T]]] = {}
    for rank, value in enumerate(values):
        groups.setdefault(key(value), []).append((rank, value))
    return groups


def _headline(reports: Sequence[Report], worst: Report) -> str:
    """The worst one's, with its ranks where others have other ones."""
    ranks = [rank for rank, report in enumerate(reports) if report.headline == worst.headline]
    return worst.headline if len(ranks) == len(reports) else f"{ranks_text(ranks)}: {worst.headline}"


def _eager(parts: Sequence[EagerPart]) -> EagerPart:
    worst = max(parts, key=lambda part: (_STATUSES.index(part.status), OTHERS not in (part.reason or "")))
    steps = tuple(_steps([part.steps for part in parts]))
    counted = parts if steps else ()  # of no step that all made, there are no numbers
    return EagerPart(
        status=worst.status,
        reason=_reasons(parts),
        steps=steps,
        op_calls=_most(part.op_calls for part in counted),
        host_calls=_most(part.host_calls for part in counted),
        distinct_ops=_most(part.distinct_ops for part in counted),
        continued_past=tuple(sorted({op for part in parts for op in part.continued_past})),
    )


def _reasons(parts: Sequence[EagerPart]) -> str | None:
    """Why ranks came to no end, each reason once, those of the ranks that are to blame first."""
    groups = [
        ([rank for rank, _ in group], reason)
        for reason, group in _by_value(parts, lambda part: part.reason).items()
        if isinstance(reason, str)
    ]
    groups.sort(key=lambda group: OTHERS in group[1])
    told = [reason if len(ranks) == len(parts) else f"{ranks_text(ranks)}: {reason}" for ranks, reason in groups]
    return "\n".join(told) or None


def _steps(by_rank: Sequence[Sequence[Step]]) -> Iterator[Step]:
    """The steps that all ranks made."""
    for made in zip(*by_rank, strict=False):
        losses = tuple(step.loss for step in made)
        known = [loss for loss in losses if loss is not None]
        yield made[0].model_copy(update={
            "loss": sum(known) / len(known) if len(known) == len(losses) else None,
            "loss_by_rank": losses if len(set(losses)) > 1 else None,
            "compiling": _any(step.compiling for step in made),
            **{name: _most(getattr(step, name) for step in made) for name in ("forward_ms", "backward_ms")},
            "optimizer_ms": _most(step.optimizer_ms for step in made),
        })  # fmt: skip


def _any(values: Iterable[bool | None]) -> bool | None:
    known = [value for value in values if value is not None]
    return any(known) if known else None


def _most(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def _findings(reports: Sequence[Report]) -> Iterator[Finding]:
    unended = [rank for rank, report in enumerate(reports) if not _traced(report)]
    order = [finding.id for report in reports for finding in report.findings]
    merged = [_finding(by_rank, len(reports), unended) for by_rank in _same(reports)]
    yield from sorted(merged, key=lambda finding: (finding.rule, finding.phase or "", order.index(finding.id)))


def _traced(report: Report) -> bool:
    """Whether a rank saw all that its step does."""
    return report.eager.status == "ran" or any(step.role == "traced" for step in report.eager.steps)


def _same(reports: Sequence[Report]) -> Iterable[dict[int, Finding]]:
    """The findings that are one and the same, by rank.

    A rank that cannot tell the line of an op, such as one whose traced step did not end, means those of the others.
    """
    places: dict[Hashable, list[str]] = {}
    for finding in (finding for report in reports for finding in report.findings if finding.site is not None):
        if finding.id not in places.setdefault(_observed(finding), []):
            places[_observed(finding)].append(finding.id)
    same: dict[str, dict[int, Finding]] = {}
    for rank, report in enumerate(reports):
        placed = {_observed(finding) for finding in report.findings if finding.site is not None}
        for finding in report.findings:
            elsewhere = finding.site is None and finding.op is not None and _observed(finding) not in placed
            for name in (places.get(_observed(finding)) if elsewhere else None) or [finding.id]:
                same.setdefault(name, {})[rank] = finding
    return same.values()


def _observed(finding: Finding) -> Hashable:
    return finding.rule, functional_base(finding.op or ""), finding.phase


def _finding(by_rank: dict[int, Finding], ranks: int, unended: Sequence[int]) -> Finding:
    """One finding of those of several ranks: the largest counts, the worst verdict, and who made it.

    Args:
        by_rank: those that are one.
        ranks: how many ran.
        unended: ranks whose traced step did not end: what they did not see, and what they counted, tells nothing.
    """
    found = sorted(by_rank.values(), key=lambda finding: finding.site is None)
    most = max(found, key=lambda finding: (finding.site is not None, finding.calls_per_step or 0))
    worst = max(found, key=lambda finding: _VERDICTS.index(finding.verdict))
    message = worst.message
    counts = {rank: finding.calls_per_step for rank, finding in by_rank.items() if rank not in unended}
    if len(set(counts.values())) > 1:
        told = [f"{'not known' if count is None else f'{count:,}'} on rank {rank}" for rank, count in counts.items()]
        message += f"; calls per step differ by rank: {', '.join(told)}"
    message += _other_messages({rank: by_rank[rank] for rank in by_rank if rank not in unended}, worst)
    return most.model_copy(update={
        "ranks": tuple(by_rank) if len(by_rank) < ranks else None,
        "ranks_unended": tuple(rank for rank in unended if rank not in by_rank) or None,
        "shapes": tuple(dict.fromkeys(shape for finding in (most, *found) for shape in finding.shapes)),
        "verdict": worst.verdict,
        "status": worst.status,
        "message": message,
        "exact": None if most.exact is None else all(finding.exact is not False for finding in found),
        "bytes_per_step": _most(finding.bytes_per_step for finding in found),
        "ms_per_step": _most(finding.ms_per_step for finding in found),
        "witnesses": tuple(sorted({name for finding in found for name in finding.witnesses})),
    })  # fmt: skip


def _other_messages(by_rank: dict[int, Finding], told: Finding) -> str:
    """What other ranks say of the very same finding, where it is not what is told."""
    others = {rank: finding.message for rank, finding in by_rank.items() if finding.id == told.id}
    groups = _by_value(others.values(), lambda message: message)
    ranks = list(others)
    texts = [
        f"; on {ranks_text([ranks[place] for place, _ in group])}: {message}"
        for message, group in groups.items()
        if message != told.message
    ]
    return "".join(texts)


def _operators(reports: Sequence[Report]) -> Iterator[OperatorRow]:
    rows: dict[str, dict[int, OperatorRow]] = {}
    for rank, report in enumerate(reports):
        for row in report.operators:
            rows.setdefault(row.op, {})[rank] = row
    for op in sorted(rows):
        reached = {rank: row for rank, row in rows[op].items() if row.eager != "not_reached"}
        states = {row.eager for row in reached.values()}
        some = next(iter(rows[op].values()))
        yield some.model_copy(update={
            "eager": _where_it_ran(states),
            "calls_per_step": _most(row.calls_per_step for row in rows[op].values()),
            "ranks": tuple(reached) if 0 < len(reached) < len(reports) else None,
        })  # fmt: skip


def _where_it_ran(states: Iterable[str]) -> str:
    met = set(states)
    if len(met) < 2:
        return next(iter(met), "not_reached")
    return next((state for state in ("failed", "unknown") if state in met), "mixed")


def _fixed(reports: Sequence[Report]) -> tuple[str, ...]:
    """Entries of the baseline that no rank needs any more."""
    return tuple(entry for entry in reports[0].baseline.fixed if all(entry in r.baseline.fixed for r in reports))


def _not_checked(reports: Sequence[Report]) -> Iterator[NotChecked]:
    """What no rank checked, or not all did; one that came to no end does not tell of all that it leaves out."""
    whole = {rank for rank, report in enumerate(reports) if report.eager.status == "ran"} or set(range(len(reports)))
    told: dict[tuple[str, str], set[int]] = {}
    for rank, report in enumerate(reports):
        for entry in report.not_checked:
            told.setdefault((entry.what, entry.why), set()).add(rank)
    for (what, why), ranks in told.items():
        everywhere = whole <= ranks
        yield NotChecked(what=what if everywhere else f"{what} ({ranks_text(sorted(ranks))})", why=why)
