"""Baselines: the findings a team has accepted for now, kept in its repository. Pure functions.

A baseline holds the findings that count, denied or warned of, and of each what the gate needs to tell whether it got
worse. What `gate.allow` accepts is not in it: an allowance that expires must not be saved by the baseline.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smoketest.errors import ConfigError, Place
from smoketest.findings.identity import functional_base
from smoketest.findings.report import Count, Finding, Phase, Report
from smoketest.gate.coverage import Coverage

__all__ = [
    "NOISE_MS",
    "NOISE_SHARE",
    "SCHEMA_VERSION",
    "Against",
    "Baseline",
    "Entry",
    "Worse",
    "against",
    "baseline_of",
    "parse",
    "render",
    "worse_than",
]

SCHEMA_VERSION = "1.0"

NOISE_SHARE = 0.25
NOISE_MS = 0.05
"""Milliseconds lost to a finding are worse only beyond both: a quarter more, and 0.05 ms, about one eager op.

[USER] an eager op on trn2 costs 55 to 65 us regardless of its work."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Entry(_Model):
    """One accepted finding: its id, what a reviewer recognises it by, and how much of it there was.

    ``exact`` is False where the counts are lower bounds; ``ms_per_step`` is there after a run on a device only.
    """

    id: str
    rule: str
    op: str | None = None
    phase: Phase | None = None
    file: str | None = None
    code: str | None = None
    verdict: Literal["deny", "warn"]
    calls_per_step: Count | None = None
    bytes_per_step: Count | None = None
    ms_per_step: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    exact: bool | None = None


class Baseline(_Model):
    """The accepted findings of one check, and the kind of device they were found on."""

    schema_version: str = SCHEMA_VERSION
    check: str
    device: Literal["emulated", "neuron", "cpu"]
    findings: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Worse:
    """In what a finding got worse.

    Attributes:
        what: ``calls``, ``bytes`` or ``ms``, each per step, or ``verdict``.
        before: as the baseline has it.
        now: as found.
        least: whether `now` is a lower bound.
    """

    what: Literal["calls", "bytes", "ms", "verdict"]
    before: float
    now: float
    least: bool = False

    def __str__(self) -> str:
        if self.what == "verdict":
            return "it was a warning and is denied now"
        least = "at least " if self.least else ""
        if self.what == "ms":
            return f"{self.before:.2f} ms per step then, {self.now:.2f} now: {self.now - self.before:.2f} more"
        return (
            f"{self.before:,.0f} {self.what} per step then, {least}{self.now:,.0f} now:"
            f" {least}{self.now - self.before:,.0f} more"
        )


@dataclass(frozen=True)
class Against:
    """Findings held against a baseline.

    Attributes:
        known: ids of findings that the baseline has, as bad as they were.
        worse: findings that it has less bad, by id.
        fixed: entries that nothing needs any more, of parts that ran to their ends.
    """

    known: frozenset[str]
    worse: dict[str, tuple[Worse, ...]]
    fixed: tuple[Entry, ...]


def baseline_of(report: Report, judged: Iterable[Finding], before: Baseline | None = None) -> Baseline:
    """The baseline that accepts what was found.

    Args:
        report: the check, its device and what was looked at.
        judged: its findings with the verdicts of the policy alone, as of a run without a baseline.
        before: the baseline up to now. What is in it of a part that did not run stays.
    """
    entries = [_entry(finding) for finding in judged if finding.verdict in ("deny", "warn")]
    if before is not None:
        coverage, have = Coverage.of(report), {entry.id for entry in entries}
        entries += [entry for entry in before.findings if not coverage.sees(entry.rule) and entry.id not in have]
    return Baseline(check=report.name, device=report.device.kind, findings=tuple(sorted(entries, key=_order)))


def _entry(finding: Finding) -> Entry:
    return Entry(
        id=finding.id,
        rule=finding.rule,
        op=finding.op,
        phase=finding.phase,
        file=finding.site.file if finding.site else None,
        code=finding.site.code if finding.site else None,
        verdict="deny" if finding.verdict == "deny" else "warn",
        calls_per_step=finding.calls_per_step,
        bytes_per_step=finding.bytes_per_step,
        ms_per_step=finding.ms_per_step,
        exact=None if finding.exact is not False else False,
    )


def _order(entry: Entry) -> tuple[str, ...]:
    """Not by line, which is not kept: two branches that add findings touch the same place seldom."""
    return (entry.rule, entry.file or "", entry.op or "", entry.phase or "", entry.code or "", entry.id)


def against(judged: Sequence[Finding], baseline: Baseline, coverage: Coverage) -> Against:
    """Hold findings against a baseline.

    Equal lines of code are told apart by their order only, so that mending the first of them renames the second.
    Findings that are alike but for this are therefore compared as a group: the worst with the worst.

    Args:
        judged: with the verdicts of the policy; what it allows is not compared.
        baseline: of the same check.
        coverage: what was looked at: an entry of anything else is not called fixed.
    """
    known: set[str] = set()
    worse: dict[str, tuple[Worse, ...]] = {}
    fixed: list[Entry] = []
    for group, entries in _groups([finding for finding in judged if finding.verdict != "allow"], baseline.findings):
        ids = {entry.id for entry in entries}
        first = sorted(group, key=lambda finding: (finding.id not in ids, finding.id))
        accepted = {finding.id for finding in first[: len(entries)]}
        for finding_id, more in worse_than(group, entries).items():
            if finding_id in accepted:
                worse[finding_id] = more
        known |= accepted
        present = {finding.id for finding in group}
        gone = sorted(entries, key=lambda entry: (entry.id in present, entry.id))[: len(entries) - len(accepted)]
        fixed += [entry for entry in gone if coverage.sees(entry.rule)]
    return Against(frozenset(known - worse.keys()), worse, tuple(sorted(fixed, key=_order)))


_Key = tuple[str, str, str, str, str]


def _groups(findings: Iterable[Finding], entries: Iterable[Entry]) -> list[tuple[list[Finding], list[Entry]]]:
    """Findings and entries that share all of an id but its ordinal."""
    found: dict[_Key, list[Finding]] = defaultdict(list)
    kept: dict[_Key, list[Entry]] = defaultdict(list)
    home: dict[str, _Key] = {}
    for entry in entries:
        key = _key(entry.rule, entry.op, entry.phase, entry.file, entry.code)
        kept[key].append(entry)
        home[entry.id] = key
    for finding in findings:
        site = finding.site
        key = _key(finding.rule, finding.op, finding.phase, site.file if site else None, site.code if site else None)
        found[key].append(finding)
    for key, group in list(found.items()):
        # A name taken out of the text of a report leaves the id as it was.
        other = next((home[finding.id] for finding in group if finding.id in home), key)
        if other != key and other not in found:
            found[other] = found.pop(key)
    return [(found.get(key, []), kept.get(key, [])) for key in sorted({*found, *kept})]


def _key(rule: str, op: str | None, phase: str | None, file: str | None, code: str | None) -> _Key:
    return (rule, functional_base(op) if op else "", phase or "", file or "", (code or "").strip())


def worse_than(now: Sequence[Finding], before: Sequence[Entry]) -> dict[str, tuple[Worse, ...]]:
    """In what findings are worse than others of the same place, by id; what no entry is left for is not among them.

    In each quantity the most of `now` is compared with the most of `before`, the second with the second, and so on:
    taking a finding away makes none of the others worse. A lower bound before is no limit, and a number that is not
    known on either side tells nothing.
    """
    result: dict[str, list[Worse]] = defaultdict(list)
    for what, value, limit in _QUANTITIES:
        limits = sorted((limit(entry) for entry in before), reverse=True)
        values = sorted(((amount, f.id, f) for f in now if (amount := value(f)) is not None), key=lambda row: row[:2])
        for most, (amount, finding_id, finding) in zip(limits, reversed(values), strict=False):
            if amount > most and not (what == "ms" and amount - most <= max(NOISE_MS, NOISE_SHARE * most)):
                result[finding_id].append(Worse(what, most, amount, what != "ms" and finding.exact is False))
    return {finding_id: tuple(changes) for finding_id, changes in result.items()}


_UNKNOWN = float("inf")


def _limit(name: str, entry: Entry) -> float:
    amount = getattr(entry, name)
    return _UNKNOWN if amount is None or (entry.exact is False and name != "ms_per_step") else float(amount)


_QUANTITIES: tuple[tuple[Literal["verdict", "calls", "bytes", "ms"], Any, Any], ...] = (
    ("verdict", lambda finding: float(finding.verdict == "deny"), lambda entry: float(entry.verdict == "deny")),
    ("calls", lambda finding: finding.calls_per_step, lambda entry: _limit("calls_per_step", entry)),
    ("bytes", lambda finding: finding.bytes_per_step, lambda entry: _limit("bytes_per_step", entry)),
    ("ms", lambda finding: finding.ms_per_step, lambda entry: _limit("ms_per_step", entry)),
)


def render(baseline: Baseline) -> str:
    """The baseline as JSON, one finding a line: changes are reviewed and merged by lines."""
    head = baseline.model_dump(exclude={"findings"})
    lines = [json.dumps(entry.model_dump(exclude_none=True), ensure_ascii=False) for entry in baseline.findings]
    rows = ",\n".join(f"    {line}" for line in lines)
    top = "".join(f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n" for key, value in head.items())
    listed = f"[\n{rows}\n  ]" if rows else "[]"
    return f'{{\n{top}  "findings": {listed}\n}}\n'


def parse(text: str | bytes, *, name: str) -> Baseline:
    """The baseline in `text`, as `render` wrote it.

    Args:
        text: the file's content.
        name: the file's name, for messages.

    Raises:
        ConfigError: it is none, or one of another major schema version.
    """
    hint = "make it anew with --update-baseline"
    try:
        baseline = Baseline.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        where = f" at {path}" if path else ""
        message = f"not a baseline of smoketest (schema {SCHEMA_VERSION}){where}: {first['msg']}"
        raise ConfigError(message, place=Place(name), hint=hint) from None
    if baseline.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise ConfigError(
            f"baseline of schema {baseline.schema_version}, this version reads {SCHEMA_VERSION}",
            place=Place(name),
            hint=hint,
        )
    counts = Counter(entry.id for entry in baseline.findings)
    if twice := next((each for each, count in counts.items() if count > 1), None):
        raise ConfigError(f"the finding {twice} is in it twice", place=Place(name), hint="a merge may have left both")
    return baseline
