"""A report as one HTML file that needs nothing else: no network, no JavaScript for reading, light and dark, printable.

Texts of the report reach the template through `words.clean` and jinja2's escaping; the page's own policy
(Content-Security-Policy, by hashes) lets no script or style but the page's run, whatever got past them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any, get_args

from smoketest.findings.modules import module_of
from smoketest.findings.report import Finding, OperatorRow, Phase, Report
from smoketest.render import allow, estimates, related, words
from smoketest.render.glossary import terms_in

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["page", "render"]

_OPEN = 10
"""So many denied findings show their cause and remedy at once; the others on demand."""

_NOT_SHOWN = re.compile(r"<(style|script)>.*?</\1>|<[^>]+>", re.DOTALL)

_MODULES = 50
_SHAPES = 20
_ON_THE_HOST = ("NST101", "NST102")
_FAILED = "NST104"
_EAGER_TROUBLE = ("failed", "cpu", "mixed")
_COMPILE_TROUBLE = ("fails", "unknown")


def render(report: Report) -> str:
    """The report as HTML, worst finding first, ending in a newline."""
    findings = words.worst_first(report.findings)
    numbers, tied_to = {finding.id: number for number, finding in enumerate(findings, 1)}, related.leads(findings)
    entries = [
        _entry(numbers[finding.id], finding, report, numbers[tied_to[finding.id].id] if finding.id in tied_to else None)
        for finding in findings
    ]
    given: dict[str, Any] = {
        "report": report,
        "verdict": words.verdict(report),
        "entries": entries,
        "counts": _counts(report),
        "choices": _choices(entries),
        "phases": _phases(report, entries),
        "bars": _bars(report, entries),
        "cross": _cross(report.operators),
        "operators": sorted(report.operators, key=_trouble),
        "problems": words.problems(report),
        "environment": _environment(report),
        "estimated": estimates.lines(report),
        "assumed": estimates.assumptions(report),
    }
    shown = _NOT_SHOWN.sub(" ", page("report.html.j2", **given, terms=()))
    terms = terms_in(shown)
    return page("report.html.j2", **given, terms=terms)


def page(template: str, **given: Any) -> str:
    """A template filled in, with the page's style and script and the policy that admits only these."""
    environment = _environment_of_templates()
    style = environment.get_template("style.css.j2").render()
    script = environment.get_template("script.js.j2").render()
    text = environment.get_template(template).render(
        given, style=style, script=script, style_hash=_hash(style), script_hash=_hash(script)
    )
    return text.rstrip("\n") + "\n"


@cache
def _environment_of_templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("smoketest.render", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clean"] = words.clean
    environment.filters["folders"] = _folders
    environment.filters["pieces"] = words.pieces
    environment.globals["words"] = words
    return environment


def _folders(place: str) -> list[str]:
    """The parts of a file's name between which a line may be broken, so that no number is."""
    return re.split(r"(?<=[/_])(?=.)|(?=:\d+$)", place)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@dataclass(frozen=True)
class _Entry:
    """A finding as the page shows it.

    Attributes:
        number: its place, worst first, from 1.
        finding: the finding.
        lead: the number of the finding of the same op and line that is to be mended first; None where that is itself.
        title: what kind of finding it is.
        verdict: deny, warn or allow; ``not judged`` where no gate judged it.
        phase: where in the step; ``not known`` where no witness could tell.
        details: what else is known, as (label, values, whether they are code).
        open: whether cause and remedy are seen at once.
        module: source of a module or function that does without the op; empty where there is none.
        tested: what the tests hold of the remedy's code.
        accepting: YAML that accepts it.
    """

    number: int
    finding: Finding
    lead: int | None
    title: str
    verdict: str
    phase: str
    details: list[tuple[str, list[str], bool]]
    open: bool
    module: str
    tested: str
    accepting: list[str]


def _entry(number: int, finding: Finding, report: Report, lead: int | None) -> _Entry:
    return _Entry(
        number=number,
        finding=finding,
        lead=lead,
        title=words.title(finding, report),
        verdict=finding.verdict or "not judged",
        phase=finding.phase or "not known",
        details=[(label, values, code) for label, values, code in _details(finding) if values],
        open=finding.verdict == "deny" and number <= _OPEN,
        module=module_of(finding) or "",
        tested=words.tested(finding) or "",
        accepting=allow.entries([finding]),
    )


def _details(finding: Finding) -> Iterable[tuple[str, list[str], bool]]:
    """What is known of a finding besides its row; a label without values is not shown."""
    called = finding.called_as if finding.called_as != finding.op else None
    calls = [f"{words.module_name(entry.pattern)} ({words.counted(entry.calls, 'call')})" for entry in finding.modules]
    more = [f"and {len(calls) - _MODULES:,} more"] if len(calls) > _MODULES else []
    yield "in", calls[:_MODULES] + more, True
    yield "called as", _given(called), True
    yield "kind", [f"{finding.kind}: {words.KINDS[finding.kind]}"] if finding.kind else [], False
    yield "how it is known", _given(words.grounds(finding)), False
    yield "time", [f"{finding.ms_per_step:,.1f} ms per step"] if finding.ms_per_step is not None else [], False
    yield "lowering got as far as", _given(words.reached(finding)), False
    yield "shapes", list(finding.shapes[:_SHAPES]), True
    yield "seen in", _given(words.witnesses(finding.witnesses)), False
    yield "reproduced by", _given(finding.repro), True
    yield "against the baseline", _given(finding.status), False
    yield "rule", [f"{finding.rule}, class {finding.class_}; smoketest explain {finding.rule}"], False
    yield "id", [finding.id], True


def _given(text: str | None) -> list[str]:
    return [text] if text else []


def _counts(report: Report) -> list[tuple[str, str, int]]:
    """(verdict, label, how many)."""
    groups = words.by_verdict(report.findings)
    labels = {"deny": "denied", "warn": "warning" if len(groups["warn"]) == 1 else "warnings", "allow": "allowed"}
    return [(verdict, labels[verdict], len(found)) for verdict, found in groups.items()]


def _choices(entries: Sequence[_Entry]) -> dict[str, list[str]]:
    """What there is to filter by, in the order of the table."""
    return {
        "verdict": list(dict.fromkeys(entry.verdict for entry in entries)),
        "rule": sorted({entry.finding.rule for entry in entries}),
        "phase": list(dict.fromkeys(entry.phase for entry in entries)),
    }


# The step


@dataclass(frozen=True)
class _PhaseRow:
    """One phase of the step.

    Attributes:
        name: setup, forward, backward, optimizer, or ``not known``.
        time: median of the timed steps, as text; a dash where it is not known.
        entries: what ran on the host or failed in it, most calls first.
        calls: how many calls ran on the host, as text.
        bytes: what crossed between device and host, as text.
    """

    name: str
    time: str
    entries: list[_Entry]
    calls: str
    bytes: str


def _phases(report: Report, entries: Sequence[_Entry]) -> list[_PhaseRow]:
    """The step by phase; setup and unknown only where something is said of them."""
    rows = []
    for name in ("setup", "forward", "backward", "optimizer", "not known"):
        own = _on_the_host(entries, name)
        failed = [entry for entry in entries if entry.phase == name and entry.finding.rule == _FAILED]
        if own or failed or name in ("forward", "backward", "optimizer"):
            time = _median(report, name)
            rows.append(
                _PhaseRow(
                    name=name,
                    time="-" if time is None else f"{time:,.1f} ms",
                    entries=own + failed,
                    calls=_total([(entry.finding.calls_per_step, entry.finding.exact) for entry in own], "{:,}".format),
                    bytes=_total([(entry.finding.bytes_per_step, entry.finding.exact) for entry in own], words.size),
                )
            )
    return rows


def _on_the_host(entries: Sequence[_Entry], phase: str) -> list[_Entry]:
    own = [entry for entry in entries if entry.phase == phase and entry.finding.rule in _ON_THE_HOST]
    return sorted(own, key=lambda entry: -(entry.finding.calls_per_step or 0))


def _total(counts: Sequence[tuple[int | None, bool | None]], write: Any) -> str:
    """A sum as text; ``at least`` where a count is a lower bound or missing, a dash where none is known."""
    known = [count for count, _ in counts if count is not None]
    if not known:
        return "not known" if counts else "-"
    least = len(known) < len(counts) or any(exact is False for _, exact in counts)
    return ("at least " if least else "") + str(write(sum(known)))


def _median(report: Report, phase: str) -> float | None:
    """Milliseconds of a phase in the timed steps; None where the step is not split or did not get there."""
    values = [getattr(step, f"{phase}_ms", None) for step in report.eager.steady()]
    known = [value for value in values if value is not None]
    return median(known) if known else None


@dataclass(frozen=True)
class _Bar:
    """A bar cut into phases.

    Attributes:
        label: what it measures.
        parts: (phase, start in percent, width in percent, text).
        total: as text.
    """

    label: str
    parts: list[tuple[str, float, float, str]]
    total: str


def _bars(report: Report, entries: Sequence[_Entry]) -> list[_Bar]:
    """Time, calls on the CPU and bytes crossing, each by phase of the step; only those of which anything is known."""
    where = "" if report.device.kind == "neuron" else ", on this machine's CPU"
    times = {phase: _median(report, phase) or 0 for phase in _in_step()}
    calls = {phase: sum(e.finding.calls_per_step or 0 for e in _on_the_host(entries, phase)) for phase in _in_step()}
    size = {phase: sum(e.finding.bytes_per_step or 0 for e in _on_the_host(entries, phase)) for phase in _in_step()}
    return [
        bar
        for bar in (
            _bar(f"time of a step{where}", times, "{:,.1f} ms".format),
            _bar("calls that run on the host", calls, "{:,}".format),
            _bar("bytes to and from the host", size, lambda count: words.size(int(count))),
        )
        if bar
    ]


def _in_step() -> list[str]:
    return [phase for phase in get_args(Phase) if phase != "setup"]


def _bar(label: str, values: dict[str, Any], write: Any) -> _Bar | None:
    total = sum(values.values())
    if not total:
        return None
    parts, start = [], 0.0
    for phase, value in values.items():
        width = 100 * value / total
        if value:
            parts.append((phase, round(start, 2), round(width, 2), str(write(value))))
        start += width
    return _Bar(label, parts, str(write(total)))


# Operators


@dataclass(frozen=True)
class _Cross:
    """How many ops eager did this with and the compiler that.

    Attributes:
        columns: the compiler's states that occur.
        rows: (eager's state, number per column, sum).
        totals: number per column.
    """

    columns: list[str]
    rows: list[tuple[str, list[int], int]]
    totals: list[int]


def _cross(operators: Sequence[OperatorRow]) -> _Cross:
    counts: Counter[tuple[str, str]] = Counter((row.eager, row.compile) for row in operators)
    eager, compiled = {row.eager for row in operators}, {row.compile for row in operators}
    columns: list[str] = [state for state in words.COMPILED if state in compiled]
    states = [state for state in words.EAGER if state in eager]
    rows: list[tuple[str, list[int], int]] = [
        (state, [counts[state, column] for column in columns], sum(row.eager == state for row in operators))
        for state in states
    ]
    return _Cross(columns, rows, [sum(row.compile == column for row in operators) for column in columns])


def _trouble(row: OperatorRow) -> tuple[bool, bool, int, str]:
    """Ops in trouble first, those called most first among them."""
    return (row.eager not in _EAGER_TROUBLE, row.compile not in _COMPILE_TROUBLE, -(row.calls_per_step or 0), row.op)


# The rest


def _environment(report: Report) -> list[tuple[str, str]]:
    """(name, value) of what a result depends on."""
    environment, workload = report.environment, report.workload
    count = f", {workload.parameters:,} parameters" if workload.parameters is not None else ""
    batch = [f"{name}: {value}" for name, value in (workload.batch or {}).items()]
    training = [f"{name}: {value}" for name, value in (workload.training or {}).items() if value is not None]
    values = [
        ("model", workload.model + count if workload.model else None),
        ("batch", ", ".join(batch)),
        ("optimizer", workload.optimizer),
        ("training", ", ".join(training)),
        ("Python", environment.python),
        ("torch", environment.torch),
        ("torch-neuronx", environment.torch_neuronx),
        ("torch-mlir", environment.torch_mlir),
        ("neuronx-cc", environment.neuronx_cc),
        ("platform", environment.platform),
    ]
    set_by_run = [(f"{name} (set by the run)", value) for name, value in sorted(environment.set_by_run.items())]
    lines = [
        (line.topic, f"{line.verdict}: {line.found}" + (f"; expected: {line.expected}" if line.verdict != "ok" else ""))
        for line in environment.lines
    ]
    known = [(name, value) for name, value in values if value]
    return known + sorted(environment.settings.items()) + set_by_run + lines
