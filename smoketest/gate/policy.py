"""Verdicts of findings under a check's ``gate:``, and the one line that sums them up (design, sections 8 and 9)."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from smoketest.config.models import Allow, Gate
from smoketest.findings.identity import functional_base
from smoketest.findings.report import Finding, PartStatus, Report, Verdict
from smoketest.findings.rules import RULES

__all__ = ["FALLBACKS_NOT_CHECKED", "Judgement", "judge", "judge_report", "unused_allowances"]

FALLBACKS_NOT_CHECKED = "fallbacks"
"""A `NotChecked` whose ``what`` begins with this says that no witness could tell where ops ran: never "clean"."""

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


@dataclass(frozen=True)
class Judgement:
    """What the gate says.

    Attributes:
        findings: the findings, each with its verdict; one that an allowance touches says so in its message.
        status: ``error`` where the check could not be carried out, so that neither of the others would be true.
        exit_code: 0 only for ``pass``. A crash, a broken device or failing user code has a code of its own, which is
            the supervisor's to give.
        headline: one sentence, warnings always counted. "clean" is said only where every part that was asked for ran.
    """

    findings: tuple[Finding, ...]
    status: Literal["pass", "fail", "error"]
    exit_code: Literal[0, 1]
    headline: str


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
    """
    findings = tuple(findings)
    judged = tuple(_judged(finding, gate, today) for finding in findings)
    denied = [finding for finding in judged if finding.verdict == "deny"]
    ran = {"eager": eager_status == "ran", "compile": compile_status == "ran"}
    told = problem is None and can_fall_back
    tail = _warnings(judged) + _expired(gate, today) + (_unused(gate, findings, ran, today) if told else "")
    if problem is not None:
        seen = f"{_denials(denied)}, {tail}" if denied else f"no denied finding, {tail}"
        return Judgement(judged, "error", 1, f"{problem}; seen until then: {seen}" if judged else problem)
    if denied:
        return Judgement(judged, "fail", 1, f"{_denials(denied)}, {tail}{_partly(eager_status, compile_status, gaps)}")
    if eager_status != "ran":
        return Judgement(judged, "error", 1, f"not clean: the eager part {_ended(eager_status)}, {tail}")
    if unknown and can_fall_back:
        return Judgement(judged, "error", 1, f"unknown: fallbacks were not checked ({'; '.join(unknown)}), {tail}")
    if compile_status not in ("ran", "skipped"):
        return Judgement(judged, "error", 1, f"not clean: the compile probe {_ended(compile_status)}, {tail}")
    counted = "" if op_calls is None else f"{op_calls:,} op calls, "
    also = ["not compiled"] if compile_status == "skipped" else list(gaps)
    if not can_fall_back:
        also.insert(0, "plain CPU, so fallbacks were not checked")
        return Judgement(judged, "pass", 0, f"{counted}no denied finding, {tail}; {'; '.join(also)}")
    if also:
        return Judgement(
            judged, "pass", 0, f"clean in eager mode: {counted}no denied finding, {tail}; {'; '.join(also)}"
        )
    return Judgement(judged, "pass", 0, f"clean: {counted}no denied finding, {tail}")


def judge_report(report: Report, gate: Gate, *, problem: str | None, today: dt.date) -> Report:
    """The report with verdicts, status, exit code and headline filled in from what it holds itself."""
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
    )
    changes = {name: getattr(result, name) for name in ("findings", "status", "exit_code", "headline")}
    return report.model_copy(update=changes)


def _gaps(report: Report) -> list[str]:
    """What the compile probe that ran did not see."""
    gaps = []
    if not report.compile.graphs:
        gaps.append("no graph was captured for the compiler")
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
        message = f"{message.rstrip('.')}. {note}" if message else note
    return finding.model_copy(update={"verdict": verdict, "message": message})


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
    allowed = sum(finding.verdict == "allow" for finding in judged)
    return (_count(count, ("warning", "warnings")) if count else "no warnings") + (
        f", {allowed:,} allowed" if allowed else ""
    )


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


def _unused(gate: Gate, findings: Sequence[Finding], ran: Mapping[str, bool], today: dt.date) -> str:
    """The allowances that fit no finding of parts that ran to their ends, at most three of them in their own words.

    One that may belong to a part that did not run is not spoken of: a rule NST2xx is the compile probe's, NST1xx the
    eager part's, and an entry without a rule may be either's. Nor is one that has expired, which is told apart.
    """
    idle = []
    for entry in unused_allowances(gate, findings):
        if _is_expired(entry, today):
            continue
        needs = (
            ["eager", "compile"] if entry.rule is None else ["compile" if entry.rule.startswith("NST2") else "eager"]
        )
        if all(ran[part] for part in needs):
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
