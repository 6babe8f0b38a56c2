"""One table over several checks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from smoketest.findings.report import Report
from smoketest.render import words
from smoketest.render.escape import code, prose
from smoketest.render.terminal import console

__all__ = ["Row", "markdown", "row", "terminal"]

_STYLES = {"PASS": "green", "FAIL": "red", "ERROR": "magenta"}


@dataclass(frozen=True)
class Row:
    """One check in the table.

    Attributes:
        name: the check's name, or its file where it could not be read.
        verdict: PASS, FAIL or ERROR.
        exit_code: as this check alone would end.
        denied: number of denied findings; None where there is no report.
        warnings: number of warnings; None where there is no report.
        device: kind of the device; None where there is no report.
        headline: one sentence.
    """

    name: str
    verdict: str
    exit_code: int
    denied: int | None
    warnings: int | None
    device: str | None
    headline: str

    @classmethod
    def without_report(cls, name: str, exit_code: int, message: str) -> Row:
        """The row of a check that came to no report, such as one whose YAML cannot be read."""
        return cls(name, "ERROR", exit_code, None, None, None, message)


def row(report: Report) -> Row:
    """The row of a report."""
    groups = words.by_verdict(report.findings)
    return Row(
        name=report.name,
        verdict=words.verdict(report),
        exit_code=report.exit_code,
        denied=len(groups["deny"]),
        warnings=len(groups["warn"]),
        device=report.device.kind,
        headline=report.headline,
    )


def terminal(rows: Sequence[Row], *, width: int = 80, color: bool = False) -> str:
    """The table as text of at most `width` columns, then why each check that does not pass does not."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("check", overflow="fold")
    table.add_column("verdict")
    for heading in ("exit", "denied", "warnings"):
        table.add_column(heading, justify="right")
    table.add_column("device")
    for entry in rows:
        table.add_row(
            Text(words.clean(entry.name, 80)),
            Text(entry.verdict, style=_STYLES.get(entry.verdict, "")),
            Text(str(entry.exit_code)),
            Text(_number(entry.denied)),
            Text(_number(entry.warnings)),
            Text(entry.device or "-"),
        )
    out = io.StringIO()
    target = console(out, width=width, color=color)
    target.print(table)
    for entry in rows:
        if entry.verdict != "PASS":
            target.print(Text(f"{words.clean(entry.name, 80)}: {words.clean(entry.headline, 400)}", overflow="fold"))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n") + "\n"


def markdown(rows: Sequence[Row]) -> str:
    """The table as Markdown, ending in a newline."""
    lines = [
        "| check | verdict | exit | denied | warnings | device | what |",
        "| --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    for entry in rows:
        numbers = f"{entry.exit_code} | {_number(entry.denied)} | {_number(entry.warnings)}"
        lines.append(
            f"| {code(entry.name, 80)} | {entry.verdict} | {numbers} | {entry.device or '-'} |"
            f" {prose(entry.headline, 240)} |"
        )
    return "\n".join(lines) + "\n"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
