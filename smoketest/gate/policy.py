"""Verdicts of findings under a check's ``gate:``, and the one line that sums them up (design, sections 8 and 9)."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from smoketest.config.models import Allow, Gate
from smoketest.findings.identity import functional_base
from smoketest.findings.parts import LIMITS_MET, STEPS_NOT_COMPILED, part_of
from smoketest.findings.report import Baseline as BaselineInfo
from smoketest.findings.report import Finding, PartStatus, Report, Verdict
from smoketest.findings.rules import RULES
from smoketest.gate.baseline import Against, Baseline, against, baseline_of
from smoketest.gate.coverage import FALLBACKS_NOT_CHECKED, Coverage

__all__ = ["FALLBACKS_NOT_CHECKED", "Judgement", "judge", "judge_report", "new_baseline", "unused_allowances"]

_FIRM = ("measured", "reported", "cannot_lower")
_NOUNS = {
    "fallback": ("fallback", "fallbacks"),
    "hidden": ("case of hidden host work", "cases of hidden host work"),
    "host_sync": ("host sync", "host syncs"),
    "op_failed": ("failed op", "failed ops"),
    "non_finite": ("non-finite value", "non-finite values"),
    "parity": ("parity failure", "parity failures"),
    "moved": ("change by the move", "changes by the move"),
    "lowering": ("lowering failure", "lowering failures"),
    "graph_break": ("graph break", "graph breaks"),
    "recompile": ("recompile", "recompiles"),
    "dynamic_shape": ("dynamic shape", "dynamic shapes"),
    "compiler_limit": ("compiler limit", "compiler limits"),
    "environment": ("environment fault", "environment faults"),
}
_MOST_NAMED = 3
_IN_STEP = re.compile(r"in step \d+ of \d+")
Status = Literal["pass", "fail", "error"]


@dataclass(frozen=True)
class Judgement:
    """What the gate says.

    Attributes:
        findings: the findings, each with its verdict; one that an allowance or the baseline touches says so in its
            message.
        status: ``error`` where the check could not be carried out, so that neither of the others would be true.
        exit_code: 0 only for ``pass``. A crash, a broken device or failing user code has a code of its own, which is
            the supervisor's to give.
        headline: one sentence, warnings always counted. "clean" is said only where every part that was asked for ran,
            and not beside warnings, where it would be read as "nothing to do".
        fixed: ids of findings that the baseline has and nothing needs any more.
    """

    findings: tuple[Finding, ...]
    status: Status
    exit_code: Literal[0, 1]
    headline: str
    fixed: tuple[str, ...] = ()


def judge(
    findings: Iterable[Finding],
    gate: Gate,
    *,
    eager_status: PartStatus,
    compile_status: PartStatus,
    problem: str | None,
    today: dt.date,
    op_calls: int | None = None,
    unknown: Sequence[str] = (),
    gaps: Sequence[str] = (),
    can_fall_back: bool = True,
    parity_status: PartStatus = "skipped",
    graphs: bool = True,
    limits_met: bool = False,
    baseline: Baseline | None = None,
    strict: bool = False,
) -> Judgement:
    """Give every finding its verdict, and the whole its headline.

    Args:
        findings: of all parts, without verdicts.
        gate: the check's policy.
        eager_status: how the eager part ended.
        compile_status: how the compile probe ended.
        problem: why the check as a whole came to no end (a crash, a timeout, an interruption); None where it did.
        today: allowances that expire before this day do not count.
        op_calls: calls in the traced step, for the headline.
        unknown: reasons why fallbacks could not be seen; any makes the result unknown instead of clean.
        gaps: what the compile probe did not see, such as frames that Dynamo skipped; named beside "clean" and beside
            denials.
        can_fall_back: False on plain CPU, where no run can be called clean, yet one without denied findings passes.
        parity_status: how the comparison with plain CPU ended.
        graphs: whether the compile probe had a graph to lower.
        limits_met: whether the steps met a limit of the device, or need more memory than it has: never "clean".
        baseline: accepted findings: a known one that is no worse does not deny.
        strict: whether entries of the baseline that nothing needs any more fail the check.
    """
    findings = tuple(findings)
    coverage = Coverage(
        eager=eager_status == "ran",
        compile=compile_status == "ran",
        parity=parity_status == "ran",
        fallbacks=can_fall_back and not unknown,
        graphs=graphs,
    )
    judged = tuple(_judged(finding, gate, today) for finding in findings)
    compared, fixed = "", tuple[str, ...]()
    if baseline is not None:
        held = against(judged, baseline, coverage)
        judged, fixed = tuple(_held(finding, held) for finding in judged), tuple(entry.id for entry in held.fixed)
        compared = _compared(judged, fixed)
    told = problem is None and can_fall_back
    tail = _warnings(judged) + compared + _expired(gate, today)
    tail += _unused(gate, judged, coverage, today) if told else ""
    tail += ", a limit of the device is met" if limits_met else ""
    ends = _Ends(
        eager_status, compile_status, problem, op_calls, tuple(unknown), tuple(gaps), can_fall_back, limits_met
    )
    status, headline = _sum_up(judged, ends, tail)
    if strict and fixed and status == "pass":
        status, headline = "fail", _ratchet(fixed, headline)
    return Judgement(judged, status, 0 if status == "pass" else 1, headline, fixed)


@dataclass(frozen=True)
class _Ends:
    """How a check ended; as the arguments of `judge`."""

    eager: PartStatus
    compile: PartStatus
    problem: str | None
    op_calls: int | None
    unknown: tuple[str, ...]
    gaps: tuple[str, ...]
    can_fall_back: bool
    limits_met: bool


def _sum_up(judged: Sequence[Finding], ends: _Ends, tail: str) -> tuple[Status, str]:
    """Status and headline of findings that have their verdicts; `tail` counts what does not deny."""
    denied = [finding for finding in judged if finding.verdict == "deny"]
    if ends.problem is not None:
        seen = f"{_denials(denied)}, {tail}" if denied else f"no denied finding, {tail}"
        told = any(finding.class_ != "environment" for finding in judged)  # that one is the problem itself
        return "error", f"{ends.problem}; seen until then: {seen}" if told else ends.problem
    if denied:
        return "fail", f"{_denials(denied)}, {tail}{_partly(ends.eager, ends.compile, ends.gaps)}"
    if ends.eager == "skipped" and ends.compile == "ran":
        also = ["not run eagerly", *ends.gaps]
        return "pass", f"compile probe alone: no denied finding, {tail}; {'; '.join(also)}"
    if ends.eager != "ran":
        return "error", f"not clean: the eager part {_ended(ends.eager)}, {tail}"
    if ends.unknown and ends.can_fall_back:
        return "error", f"unknown: fallbacks were not checked ({'; '.join(ends.unknown)}), {tail}"
    if ends.compile not in ("ran", "skipped"):
        return "error", f"not clean: the compile probe {_ended(ends.compile)}, {tail}"
    counted = "" if ends.op_calls is None else f"{ends.op_calls:,} op calls, "
    also = ["not compiled"] if ends.compile == "skipped" else list(ends.gaps)
    if not ends.can_fall_back:
        also.insert(0, "plain CPU, so fallbacks were not checked")
        return "pass", f"{counted}no denied finding, {tail}; {'; '.join(also)}"
    if ends.limits_met or any(finding.verdict == "warn" for finding in judged):
        where = "in eager mode: " if also else ""
        calls = [] if ends.op_calls is None else [f"{ends.op_calls:,} op calls"]
        return "pass", "; ".join([f"{where}0 denied, {tail}", *calls, *also])
    if also:
        return "pass", f"clean in eager mode: {counted}no denied finding, {tail}; {'; '.join(also)}"
    return "pass", f"clean: {counted}no denied finding, {tail}"


def judge_report(
    report: Report,
    gate: Gate,
    *,
    problem: str | None,
    today: dt.date,
    baseline: Baseline | None = None,
    baseline_file: str | None = None,
    strict: bool = False,
) -> Report:
    """The report with verdicts, status, exit code and headline filled in from what it holds itself.

    Args:
        report: without verdicts.
        gate: the check's policy.
        problem: why the check came to no end; None where it did.
        today: allowances that expire before this day do not count.
        baseline: accepted findings.
        baseline_file: where they are from, for the report.
        strict: whether entries of the baseline that nothing needs any more fail the check.
    """
    result = judge(
        report.findings,
        gate,
        eager_status=report.eager.status,
        compile_status=report.compile.status,
        problem=problem,
        today=today,
        op_calls=report.eager.op_calls,
        unknown=[entry.why for entry in report.not_checked if entry.what.startswith(FALLBACKS_NOT_CHECKED)],
        gaps=_gaps(report),
        can_fall_back=report.device.kind != "cpu",
        parity_status=report.parity.status,
        graphs=bool(report.compile.graphs),
        limits_met=report.fit.fits is False or any(entry.what == LIMITS_MET for entry in report.not_checked),
        baseline=baseline,
        strict=strict,
    )
    changes = {name: getattr(result, name) for name in ("findings", "status", "exit_code", "headline")}
    if baseline is not None:
        changes["baseline"] = BaselineInfo(file=baseline_file, fixed=result.fixed, note=_other_device(report, baseline))
    return report.model_copy(update=changes)


def new_baseline(report: Report, gate: Gate, today: dt.date, before: Baseline | None = None) -> Baseline:
    """The baseline that accepts what a report found and the policy does not allow anyhow.

    Args:
        report: of a check that came to its end.
        gate: the check's policy.
        today: allowances that expire before this day do not count.
        before: the baseline up to now; what is in it of a part that did not run stays.
    """
    return baseline_of(report, [_judged(finding, gate, today) for finding in report.findings], before)


def _other_device(report: Report, baseline: Baseline) -> str | None:
    if baseline.device == report.device.kind:
        return None
    return (
        f"the baseline was made on the {baseline.device} device and this is a run on the {report.device.kind} one:"
        " what is fixed or new may be the difference between them"
    )


def _gaps(report: Report) -> list[str]:
    """What the compile probe that ran did not see."""
    gaps = []
    if not report.compile.graphs:
        gaps.append("no graph was captured for the compiler")
    for entry in report.not_checked:
        if entry.what == STEPS_NOT_COMPILED:
            where = _IN_STEP.match(entry.why)
            gaps.append(f"the compile probe stopped {where[0] if where else 'early'}")
    if report.compile.skipped_frames:
        gaps.append(f"Dynamo skipped {_count(report.compile.skipped_frames, ('frame', 'frames'))}, not probed")
    return gaps


def _judged(finding: Finding, gate: Gate, today: dt.date) -> Finding:
    verdict = _policy(finding, gate)
    notes = []
    if verdict != "allow":
        for entry in gate.allow:
            if not _matches(entry, finding):
                continue
            over = _not_met(entry, finding, today)
            if over is None:
                verdict, notes = "allow", [_allowed(entry)]
                break
            notes.append(over)
    message = finding.message
    for note in notes:
        message = _joined(message, note)
    return finding.model_copy(update={"verdict": verdict, "message": message})


def _held(finding: Finding, held: Against) -> Finding:
    """The finding with what the baseline says of it: a known one is accepted, a worse one is not."""
    if finding.verdict == "allow":
        return finding
    if finding.id in held.known:
        if finding.verdict == "warn":
            return finding.model_copy(update={"status": "known"})
        message = _joined(finding.message, "Known: it is in the baseline.")
        return finding.model_copy(update={"status": "known", "verdict": "allow", "message": message})
    if finding.id in held.worse:
        how = "; ".join(str(change) for change in held.worse[finding.id])
        message = _joined(finding.message, f"Worse than in the baseline: {how}.")
        return finding.model_copy(update={"status": "worse", "message": message})
    return finding.model_copy(update={"status": "new"})


def _joined(message: str, note: str) -> str:
    return f"{message.rstrip('.')}. {note}" if message else note


def _policy(finding: Finding, gate: Gate) -> Verdict:
    """The class's verdict in the gate, else the rule's default; a fallback at setup only never denies."""
    verdict: Verdict | None = getattr(gate, finding.class_, None)
    if verdict is None:
        default = RULES[finding.rule].default
        verdict = ("deny" if finding.grounds in _FIRM else "warn") if default == "by_grounds" else default
    once = finding.class_ == "fallback" and finding.phase == "setup"
    return "warn" if verdict == "deny" and once else verdict


def _matches(entry: Allow, finding: Finding) -> bool:
    """Whether everything the entry gives fits the finding; an entry that gives nothing fits none."""
    tests = []
    if entry.op is not None:
        names = [name for name in (finding.op, finding.called_as) if name]
        names += [functional_base(name) for name in names]
        tests.append(any(fnmatchcase(name, entry.op) for name in names))
    if entry.rule is not None:
        tests.append(entry.rule == finding.rule)
    if entry.phase is not None:
        tests.append(entry.phase == finding.phase)
    if entry.site is not None:
        tests.append(finding.site is not None and fnmatchcase(finding.site.file, entry.site))
    if entry.module is not None:
        # All of them: allowing one module must not allow the calls of another.
        modules = [calls.pattern for calls in finding.modules]
        tests.append(bool(modules) and all(fnmatchcase(module, entry.module) for module in modules))
    return bool(tests) and all(tests)


def _not_met(entry: Allow, finding: Finding, today: dt.date) -> str | None:
    """Why an entry that fits does not count, one sentence; None where it does."""
    if _is_expired(entry, today):
        return f"The allowance for it expired on {entry.expires}."
    for limit, seen, unit in (
        (entry.max_calls_per_step, finding.calls_per_step, "calls"),
        (entry.max_bytes_per_step, finding.bytes_per_step, "bytes"),
    ):
        if limit is None:
            continue
        if seen is None:
            return f"Allowed up to {limit:,} {unit} per step, but how many there are is not known."
        if seen > limit:
            least = "at least " if finding.exact is False else ""
            return f"Allowed up to {limit:,} {unit} per step, but there are {least}{seen:,}: {seen - limit:,} too many."
        if finding.exact is False:
            return f"Allowed up to {limit:,} {unit} per step, but there are at least {seen:,} and maybe more."
    return None


def _is_expired(entry: Allow, today: dt.date) -> bool:
    return entry.expires is not None and entry.expires < today


def _allowed(entry: Allow) -> str:
    details = [detail for detail in (entry.ticket, f"until {entry.expires}" if entry.expires else None) if detail]
    return f"Allowed: {entry.reason}" + (f" ({', '.join(details)})." if details else ".")


def _denials(denied: Sequence[Finding]) -> str:
    """Such as ``3 fallbacks and 1 lowering failure deny``."""
    counts = Counter(finding.class_ for finding in denied)
    parts = [_count(counts[name], _NOUNS[name]) for name in _NOUNS if counts[name]]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{listed} {'denies' if len(denied) == 1 else 'deny'}"


def _warnings(judged: Sequence[Finding]) -> str:
    count = sum(finding.verdict == "warn" for finding in judged)
    allowed = sum(finding.verdict == "allow" and finding.status != "known" for finding in judged)
    return (_count(count, ("warning", "warnings")) if count else "no warnings") + (
        f", {allowed:,} allowed" if allowed else ""
    )


def _compared(judged: Sequence[Finding], fixed: Sequence[str]) -> str:
    """What the baseline says, such as ``, against the baseline: 1 new, 12 known``."""
    counts = Counter(finding.status or "" for finding in judged) + Counter({"fixed": len(fixed)})
    parts = [f"{counts[name]:,} {name}" for name in ("new", "worse", "known", "fixed") if counts[name]]
    return f", against the baseline: {', '.join(parts) or 'nothing on either side'}"


def _ratchet(fixed: Sequence[str], headline: str) -> str:
    entries, need = ("1 entry of the baseline", "it") if len(fixed) == 1 else (f"{len(fixed):,} entries", "them")
    entries += "" if len(fixed) == 1 else " of the baseline"
    return f"{entries} must go, nothing needs {need} any more; else {headline}"


def _expired(gate: Gate, today: dt.date) -> str:
    """The allowances that no longer count, at most three by name."""
    gone = [f"{_name(entry)} on {entry.expires}" for entry in gate.allow if _is_expired(entry, today)]
    if not gone:
        return ""
    more = f" and {len(gone) - _MOST_NAMED} more" if len(gone) > _MOST_NAMED else ""
    return f", {_count(len(gone), ('allowance', 'allowances'))} expired ({', '.join(gone[:_MOST_NAMED])}{more})"


def unused_allowances(gate: Gate, findings: Iterable[Finding]) -> list[Allow]:
    """The allowances that fit no finding, whatever the limits and dates they have: a misspelt op, or one put right."""
    given = tuple(findings)
    return [entry for entry in gate.allow if not any(_matches(entry, finding) for finding in given)]


def _unused(gate: Gate, findings: Sequence[Finding], coverage: Coverage, today: dt.date) -> str:
    """The allowances that fit no finding of parts that ran to their ends, at most three of them in their own words.

    One that may belong to a part that did not run is not spoken of: an entry without a rule may be the eager part's or
    the compile probe's. Nor is one that has expired, which is told apart.
    """
    idle = []
    for entry in unused_allowances(gate, findings):
        if _is_expired(entry, today):
            continue
        needs = ("eager", "compile") if entry.rule is None else (part_of(entry.rule),)
        if all(part in coverage.parts for part in needs):
            idle.append(entry)
    if not idle:
        return ""
    more = f"; and {len(idle) - _MOST_NAMED} more" if len(idle) > _MOST_NAMED else ""
    named = "; ".join(_in_its_words(entry) for entry in idle[:_MOST_NAMED])
    return f", {_count(len(idle), ('allowance', 'allowances'))} matched nothing ({named}{more})"


def _in_its_words(entry: Allow) -> str:
    keys = ("op", "rule", "phase", "site", "module")
    return ", ".join(f"{key}={value}" for key in keys if (value := getattr(entry, key)))


def _name(entry: Allow) -> str:
    return next(
        (part for part in (entry.op, entry.rule, entry.site, entry.module, entry.phase) if part), "an unnamed one"
    )


def _partly(eager: PartStatus, compiled: PartStatus, gaps: Sequence[str]) -> str:
    """What to hold against a count of denials: what ended early, or was not seen, may hide more."""
    parts = [("eager part", eager), ("compile probe", compiled)]
    early = [f"the {name} {_ended(status)}" for name, status in parts if status not in ("ran", "skipped")]
    if compiled == "ran":
        early += gaps
    return f"; {' and '.join(early)}, so there may be more" if early else ""


def _ended(status: PartStatus) -> str:
    words = {"ran": "ran", "skipped": "was skipped", "failed": "failed", "crashed": "crashed", "timed_out": "timed out"}
    return words[status]


def _count(number: int, noun: tuple[str, str]) -> str:
    return f"{number:,} {noun[number != 1]}"
