"""A report as Markdown for a ticket: `report.md` (design, section 8)."""

from __future__ import annotations

from collections.abc import Sequence

from smoketest.findings.report import Finding, Report
from smoketest.render import words
from smoketest.render.escape import block, code, mixed, prose

__all__ = ["LIMIT", "render"]

LIMIT = 60_000
"""Characters; GitHub takes 65,536 in one comment."""

_VISIBLE_ROWS = 20
_HEADER = (
    "| # | verdict | finding | op | where | phase | how often | to and from host |",
    "| ---: | --- | --- | --- | --- | --- | --- | --- |",
)


def render(report: Report) -> str:
    """The report as Markdown of at most `LIMIT` characters, worst finding first.

    What does not fit is left out by whole rows and blocks, and counted.
    """
    findings = words.worst_first(report.findings)
    start = [
        _verdict_line(report),
        f"Check {code(report.name)}, {prose(report.created, 40)}. {prose(words.device_note(report))}",
        *([f"About the profile: {prose(report.device.profile_note)}"] if report.device.profile_note else []),
        *_section("Checked", [f"- {prose(line, 700)}" for line in words.checked(report)], 8_000),
        *_section("Not checked", [f"- {_not_checked(entry.what, entry.why)}" for entry in report.not_checked], 8_000),
    ]
    end = [*_section("Environment", _environment(report), 6_000), *_command(report)]
    room = LIMIT - len(_join([*start, *end])) - 500
    table = _table(report, findings, room * 2 // 5)
    blocks = _blocks(report, findings, room - len(_join(table)))
    return _join([*start, *table, *blocks, *end]) + "\n"


def _join(parts: Sequence[str]) -> str:
    return "\n\n".join(parts)


def _verdict_line(report: Report) -> str:
    return f"# {words.verdict(report)} on {prose(words.device(report), 200)}: {prose(report.headline, 700)}"


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
        finding.verdict or "-",
        f"{finding.rule} {prose(words.title(finding, report), 80)}",
        code(finding.op or "", 80),
        code(words.place(finding.site), 100) if finding.site else "not known",
        finding.phase or "-",
        words.amount(finding),
        words.crossing(finding) or "-",
    ]
    return f"| {' | '.join(cells)} |"


def _blocks(report: Report, findings: Sequence[Finding], room: int) -> list[str]:
    blocks, left = _fit([_block(number, finding, report) for number, finding in enumerate(findings, 1)], room - 200)
    if left:
        blocks.append(f"Details of {left:,} more findings are left out here for their length; report.json has all.")
    return blocks


def _block(number: int, finding: Finding, report: Report) -> str:
    """One finding: site, cause, numbers, remedy."""
    kind = prose(words.title(finding, report), 80)
    parts = [
        f"### {number}. {finding.verdict or 'not judged'}: {kind} {code(finding.op) if finding.op else ''}".rstrip()
    ]
    if finding.site:
        parts.append(f"At {code(words.place(finding.site))}" + (f", {finding.phase}:" if finding.phase else ":"))
        if finding.site.code:
            parts.append(block(finding.site.code, "python"))
    else:
        parts.append("Line not known" + (f", {finding.phase}." if finding.phase else "."))
    if finding.message:
        parts.append(f"Cause: {mixed(finding.message, 900)}")
    parts.append("\n".join(f"- {line}" for line in _details(finding)))
    if finding.remedy:
        parts.append(f"Instead: {mixed(finding.remedy, 900)}")
    return _join(parts)


def _details(finding: Finding) -> list[str]:
    """What else is known, one list item each; nothing is said of what is not known."""
    crossing = words.crossing(finding)
    often = words.amount(finding) + (f", {crossing} to and from the host" if crossing else "")
    where = words.modules(finding)
    lines = [often + (f", in {code(where, 200)}" if where else "")]
    if finding.called_as and finding.called_as != finding.op:
        lines.append(f"called as {code(finding.called_as)}")
    if finding.kind:
        lines.append(f"{finding.kind}: {words.KINDS[finding.kind]}")
    grounds = words.grounds(finding)
    if grounds:
        lines.append(f"grounds: {grounds}")
    if finding.stage:
        lines.append(f"last stage reached: {prose(finding.stage, 60)}")
    if finding.shapes:
        lines.append(f"shapes: {'; '.join(code(shape, 120) for shape in finding.shapes[:4])}")
    if finding.witnesses:
        lines.append(f"seen by: {prose(', '.join(finding.witnesses), 200)}")
    if finding.repro:
        lines.append(f"reproduced by {code(finding.repro)}")
    lines.append(
        f"rule: {finding.rule} ({words.rule_page(finding.rule)}), class {finding.class_}; id {code(finding.id)}"
    )
    return lines


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
    return lines + [f"- {code(f'{name}={value}')}" for name, value in sorted(environment.settings.items())]


def _command(report: Report) -> list[str]:
    return ["## Reproduce", block(report.command, "sh", 1_000)] if report.command else []
