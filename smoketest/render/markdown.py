"""A report as Markdown for a ticket: `report.md` (design, section 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from smoketest.findings.modules import module_of
from smoketest.findings.report import Finding, Report
from smoketest.findings.rules import RULES
from smoketest.render import allow, estimates, related, words
from smoketest.render.escape import block, code, lines_block, mixed, prose
from smoketest.render.glossary import LONGEST, terms_in

__all__ = ["LIMIT", "render"]

LIMIT = 60_000
"""Characters; GitHub takes 65,536 in one comment."""

_ROOM_FOR_WORDS = 30_000
"""With less the words are not explained: the findings come first."""

_VISIBLE_ROWS = 20
_MOST_PLACES = 12
_CLASSES = frozenset(rule.class_ for rule in RULES.values())
_Group = list[tuple[int, Finding]]
"""Findings that are alike, each with its number in the table."""

_HEADER = (
    "| # | verdict | finding | op | where | phase | how often | to and from host |",
    "| ---: | --- | --- | --- | --- | --- | --- | --- |",
)


def render(report: Report, limit: int = LIMIT) -> str:
    """The report as Markdown of at most `limit` characters, worst finding first.

    What does not fit is left out by whole rows and blocks, and counted. Less than 30,000 characters may be too few for
    what is always told.
    """
    findings, note = words.worst_first(report.findings), words.profile_note(report)
    start = [
        _verdict_line(report),
        *[f"**Warning**: {mixed(line, 700)}" for line in words.met_limits(report)],
        f"Check {code(report.name)}, {prose(report.created, 40)}. {prose(words.device_note(report))}",
        *([f"About the profile: {prose(note)}"] if note else []),
        *_problems(report),
        *_section("Checked", [f"- {prose(line, 700)}" for line in words.checked(report)], 8_000),
        *_section("Fit and cost", [f"- {prose(line, 1_500)}" for line in _estimates(report)], 6_000),
        *_section("Not checked", [f"- {_not_checked(entry.what, entry.why)}" for entry in report.not_checked], 8_000),
    ]
    end = [*_section("Environment", _environment(report), 6_000), *_command(report)]
    explained = limit >= _ROOM_FOR_WORDS
    room = limit - len(_join([*start, *end])) - 500 - (LONGEST if explained else 0)
    table = _table(report, findings, room * 2 // 5)
    blocks = _blocks(report, findings, room - len(_join(table)))
    told = [*start, *table, *blocks, *end]
    return _join([*told, *(_glossary(_join(told)) if explained else [])]) + "\n"


def _glossary(text: str) -> list[str]:
    """What the words of this report mean to somebody who knows only PyTorch."""
    lines = [f"- **{prose(term.name)}**: {mixed(term.meaning)}." for term in terms_in(text)]
    return ["## Words", "\n".join(lines)] if lines else []


def _join(parts: Sequence[str]) -> str:
    return "\n\n".join(parts)


def _verdict_line(report: Report) -> str:
    return f"# {words.verdict(report)} on {prose(words.device(report), 200)}: {prose(report.headline, 700)}"


def _problems(report: Report) -> list[str]:
    """Why parts came to no end, each as one block with its line breaks."""
    parts = words.problems(report)
    shown = [part for name, lines in parts for part in (f"{name}:", lines_block(lines, 6_000))]
    return ["## What went wrong", *shown] if shown else []


def _estimates(report: Report) -> list[str]:
    """Whether the job fits and what it costs, and what the estimate assumes."""
    assumed = estimates.assumptions(report)
    return [*estimates.lines(report), *([assumed] if assumed else [])]


def _not_checked(what: str, why: str) -> str:
    return f"**{prose(what, 200)}**: {prose(why, 500)}"


def _section(heading: str, lines: Sequence[str], room: int) -> list[str]:
    """A heading and a list, cut to `room` characters."""
    if not lines:
        return []
    kept, left = _fit(lines, room)
    more = [f"- … and {left:,} more in report.json"] if left else []
    return [f"## {heading}", "\n".join([*kept, *more])]


def _fit(parts: Sequence[str], room: int) -> tuple[list[str], int]:
    """The first parts that fit in `room` characters, and how many do not."""
    kept: list[str] = []
    for part in parts:
        room -= len(part) + 2
        if room < 0:
            break
        kept.append(part)
    return kept, len(parts) - len(kept)


def _table(report: Report, findings: Sequence[Finding], room: int) -> list[str]:
    if not findings:
        return ["## Findings", "None."]
    rows, left = _fit([_row(number, finding, report) for number, finding in enumerate(findings, 1)], room - 500)
    visible, folded = rows[:_VISIBLE_ROWS], rows[_VISIBLE_ROWS:]
    parts = ["## Findings", "\n".join([*_HEADER, *visible])]
    if folded:
        summary = f"<summary>{len(folded):,} more findings</summary>"
        parts += [f"<details>{summary}", "\n".join([*_HEADER, *folded]), "</details>"]
    if left:
        parts.append(f"{left:,} more findings are left out of this table for its length; report.json has all.")
    return parts


def _row(number: int, finding: Finding, report: Report) -> str:
    cells = [
        str(number),
        words.judged(finding),
        f"{prose(finding.rule, 20)} {prose(words.title(finding, report), 80)}",
        code(finding.op or "", 80),
        code(words.place(finding.site), 100) if finding.site else mixed(words.no_place(finding).removeprefix("line ")),
        finding.phase or "-",
        words.amount(finding),
        words.crossing(finding) or "-",
    ]
    return f"| {' | '.join(cells)} |"


def _blocks(report: Report, findings: Sequence[Finding], room: int) -> list[str]:
    """One block for all findings of the same op and cause, in the place of the first; each remedy is told once."""
    groups: dict[tuple[object, ...], _Group] = {}
    for number, finding in enumerate(findings, 1):
        groups.setdefault(_alike(finding, report), []).append((number, finding))
    told: dict[str, int] = {}
    numbers = {finding.id: number for number, finding in enumerate(findings, 1)}
    tied_to = {finding: numbers[lead.id] for finding, lead in related.leads(findings).items()}
    blocks, left = _fit([_block(group, report, told, tied_to) for group in groups.values()], room - 200)
    if left:
        count = sum(len(group) for group in list(groups.values())[-left:])
        blocks.append(f"Details of {count:,} more findings are left out here for their length; report.json has all.")
    return blocks


def _alike(finding: Finding, report: Report) -> tuple[object, ...]:
    """What findings have in common that are told in one block: all but their places and numbers."""
    return (
        finding.verdict,
        words.title(finding, report),
        finding.op,
        finding.called_as,
        finding.kind,
        finding.grounds,
        finding.stage,
        finding.message,
        finding.remedy,
    )


def _block(group: _Group, report: Report, told: dict[str, int], tied_to: Mapping[str, int]) -> str:
    """Findings that are alike: where they are, cause, numbers, remedy.

    `told`: in which finding a remedy stands; `tied_to`: by id, the number of the finding to mend first.
    """
    numbers, first = [number for number, _ in group], group[0][1]
    shown = [f"{number:,}" for number in numbers[:_MOST_PLACES]]
    more = f" and {len(numbers) - _MOST_PLACES:,} more" if len(numbers) > _MOST_PLACES else ""
    kind = prose(words.title(first, report), 80)
    heading = f"### {', '.join(shown)}{more}. {first.verdict or 'not judged'}: {kind}"
    parts = [f"{heading} {code(first.op) if first.op else ''}".rstrip()]
    if len(group) == 1:
        parts += _site(first)
    if first.message:
        parts.append(f"Cause: {mixed(words.cause(first), 900)}")
    places = [_numbers(first)] if len(group) == 1 else [_place(finding) for _, finding in group[:_MOST_PLACES]]
    if more:
        places.append(f"…{more}, in report.json")
    parts.append("\n".join(f"- {line}" for line in [*places, *_details(group)]))
    if before := [tied_to[finding.id] for _, finding in group if finding.id in tied_to]:
        said = related.tied(before)
        parts.append(f"{said[0].upper()}{said[1:]}.")
    if first.remedy and first.remedy in told:
        parts.append(f"Instead: as in {told[first.remedy]:,}.")
    elif first.remedy:
        told[first.remedy] = numbers[0]
        parts += [f"Instead: {mixed(first.remedy, 1_500)}", *_module(first), *_tested(first)]
    if accepting := allow.entries(finding for _, finding in group):
        parts += ["To accept it, in the check:", lines_block(accepting, 2_000, "yaml")]
    return _join(parts)


def _site(finding: Finding) -> list[str]:
    if not finding.site and finding.class_ == "environment":
        return []
    if not finding.site:
        where = mixed(words.no_place(finding))
        return [where[0].upper() + where[1:] + (f", {finding.phase}." if finding.phase else ".")]
    phase = words.phase(finding)
    where = f"At {code(words.place(finding.site))}" + (f", {phase}:" if phase else ":")
    return [where, *([block(finding.site.code, "python")] if finding.site.code else [])]


def _place(finding: Finding) -> str:
    """One of several findings that are alike, as a list item."""
    where = code(words.place(finding.site)) if finding.site else mixed(words.no_place(finding))
    phase = f", {words.phase(finding)}" if finding.phase else ""
    line = f" {code(finding.site.code, 120)}" if finding.site and finding.site.code else ""
    shapes = f"; shapes: {_shapes(finding)}" if finding.shapes else ""
    repro = f"; reproduced by {code(finding.repro)}" if finding.repro else ""
    return f"{where}{phase}:{line} {_numbers(finding)}{shapes}{repro}; id {code(finding.id)}"


def _numbers(finding: Finding) -> str:
    crossing, where = words.crossing(finding), words.modules(finding)
    often = words.amount(finding) + (f", {crossing} to and from the host" if crossing else "")
    return often + (f", in {code(where, 200)}" if where else "")


def _shapes(finding: Finding) -> str:
    return "; ".join(code(shape, 120) for shape in finding.shapes[:4])


def _module(finding: Finding) -> list[str]:
    """Source of a whole module or function that does without the op, or without the op it was called as."""
    source = module_of(finding)
    return [f"As whole code:\n\n```python\n{source.rstrip()}\n```"] if source else []


def _tested(finding: Finding) -> list[str]:
    """What the tests hold of the code of a remedy."""
    told = words.tested(finding)
    return [mixed(told)] if told else []


def _details(group: _Group) -> list[str]:
    """What else is known, one list item each; nothing is said of what is not known."""
    finding = group[0][1]
    lines = []
    if finding.called_as and finding.called_as != finding.op:
        lines.append(f"called as {code(finding.called_as)}")
    if finding.kind:
        lines.append(f"{finding.kind}: {words.KINDS[finding.kind]}")
    grounds, reached = words.grounds(finding), words.reached(finding)
    if grounds:
        lines.append(f"how it is known: {grounds}")
    if reached:
        lines.append(f"lowering got as far as {prose(reached, 120)}")
    if finding.shapes and len(group) == 1:
        lines.append(f"shapes: {_shapes(finding)}")
    if seen := words.witnesses(name for _, each in group for name in each.witnesses):
        lines.append(f"seen in: {mixed(seen, 400)}")
    if finding.repro and len(group) == 1:
        lines.append(f"reproduced by {code(finding.repro)}")
    own = f"; id {code(finding.id)}" if len(group) == 1 else ""
    explained = code(f"smoketest explain {finding.rule}", 40)
    class_ = finding.class_ if finding.class_ in _CLASSES else prose(finding.class_, 20)
    return [*lines, f"rule: {prose(finding.rule, 20)}, class {class_} ({explained}){own}"]


def _environment(report: Report) -> list[str]:
    environment = report.environment
    versions = [
        ("Python", environment.python),
        ("torch", environment.torch),
        ("torch-neuronx", environment.torch_neuronx),
        ("torch-mlir", environment.torch_mlir),
        ("neuronx-cc", environment.neuronx_cc),
        ("platform", environment.platform),
    ]
    lines = [f"- {name}: {prose(value, 120)}" for name, value in versions if value]
    workload = report.workload
    if workload.model:
        count = f", {workload.parameters:,} parameters" if workload.parameters is not None else ""
        lines.append(f"- model: {code(workload.model)}{count}")
    if workload.optimizer:
        lines.append(f"- optimizer: {code(workload.optimizer)}")
    lines += [f"- {code(f'{name}={value}')}" for name, value in sorted(environment.settings.items())]
    lines += [f"- set by the run: {code(f'{name}={value}')}" for name, value in sorted(environment.set_by_run.items())]
    return lines + [f"- {prose(text, 400)}" for text in words.surroundings(report)]


def _command(report: Report) -> list[str]:
    return ["## Reproduce", block(report.command, "sh", 1_000)] if report.command else []
