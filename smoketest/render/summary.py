"""One table over several checks: on the terminal, and as summary.md, summary.html and summary.json."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from smoketest.findings.report import Report
from smoketest.render import words
from smoketest.render.escape import code, prose
from smoketest.render.terminal import console

__all__ = ["SCHEMA_VERSION", "Row", "Summary", "render", "row", "schema", "terminal"]

SCHEMA_VERSION = "1.0"
"""Of summary.json."""

LIMIT = 60_000
"""Characters of summary.md; GitHub takes 65,536 in one comment."""

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
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
        folder: name of the folder that holds its report, beside the summary; None where there is no report.
    """

    name: str
    verdict: str
    exit_code: int
    denied: int | None
    warnings: int | None
    device: str | None
    headline: str
    folder: str | None = None

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
        # Scrubbing may have changed the name, and then there is no such folder.
        folder=report.name if _FOLDER.fullmatch(report.name) else None,
    )


@dataclass(frozen=True)
class Summary:
    """The end of a run over several checks.

    Attributes:
        created: time of the summary, as in reports.
        exit_code: of the whole run.
        rows: the checks in the order in which they were run.
    """

    created: str
    exit_code: int
    rows: tuple[Row, ...]

    @property
    def status(self) -> str:
        """pass, fail or error, as of a report."""
        return {0: "pass", 1: "fail"}.get(self.exit_code, "error")

    @property
    def headline(self) -> str:
        """How many checks ended how."""
        counts = Counter(row.verdict for row in self.rows)
        parts = [
            f"{counts[verdict]:,} {one if counts[verdict] == 1 else many}"
            for verdict, one, many in (
                ("PASS", "passes", "pass"),
                ("FAIL", "fails", "fail"),
                ("ERROR", "ends in an error", "end in an error"),
            )
            if counts[verdict]
        ]
        return f"{words.counted(len(self.rows), 'check')}: {', '.join(parts) or 'none was run'}"


def render(summary: Summary, form: Literal["json", "markdown", "html"]) -> str:
    """The summary in one of the forms that are written to files, ending in a newline."""
    if form == "json":
        return _json(summary)
    if form == "markdown":
        return _markdown(summary)
    from smoketest.render.html import page

    return page("summary.html.j2", summary=summary, quote=lambda name: quote(name, safe=""))


def terminal(rows: Sequence[Row], *, width: int = 80, color: bool = False) -> str:
    """The table as text of at most `width` columns, then why each check that does not pass does not."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("check", overflow="fold")
    table.add_column("verdict")
    for heading in ("exit", "denied", "warnings"):
        table.add_column(heading, justify="right")
    table.add_column("device")
    # The other columns and the blanks between them.
    room = max(width - 50, 8)
    for entry in rows:
        table.add_row(
            Text(shortened(entry.name, room)),
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
        # A name that the table does not show in full is told here, whatever the verdict.
        if entry.verdict != "PASS" or cell_len(words.clean(entry.name, 200)) > room:
            target.print(Text(f"{words.clean(entry.name, 200)}: {words.clean(entry.headline, 400)}", overflow="fold"))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n") + "\n"


def shortened(name: str, room: int) -> str:
    """A name in at most `room` columns, an ellipsis for its middle: start and end tell names apart."""
    line = words.clean(name, 200)
    if cell_len(line) <= room:
        return line
    tail = line
    while cell_len(tail) > (room - 1) // 2:
        tail = tail[1:]
    head = line
    while cell_len(head) > room - 1 - cell_len(tail):
        head = head[:-1]
    return f"{head}…{tail}"


def _json(summary: Summary) -> str:
    data = {
        "schema_version": SCHEMA_VERSION,
        "created": summary.created,
        "status": summary.status,
        "exit_code": summary.exit_code,
        "headline": summary.headline,
        "checks": [_check(entry) for entry in summary.rows],
    }
    text = json.dumps(data, indent=2, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def _check(entry: Row) -> dict[str, object]:
    return {
        "name": entry.name,
        "status": entry.verdict.lower(),
        "exit_code": entry.exit_code,
        "denied": entry.denied,
        "warnings": entry.warnings,
        "device": entry.device,
        "headline": entry.headline,
        "report": f"{entry.folder}/report.json" if entry.folder else None,
    }


def schema() -> dict[str, Any]:
    """What `summary.json` holds, as JSON Schema 2020-12: every key in every summary, null where it does not apply."""
    number = {"type": ["integer", "null"], "minimum": 0}
    check = {
        "name": {"type": "string", "description": "Of the check; its file where that could not be read."},
        "status": {"enum": ["pass", "fail", "error"]},
        "exit_code": {"type": "integer", "description": "As this check alone would end."},
        "denied": number | {"description": "Denied findings; null where there is no report."},
        "warnings": number | {"description": "Warnings; null where there is no report."},
        "device": {"enum": ["emulated", "neuron", "cpu", None]},
        "headline": {"type": "string"},
        "report": {"type": ["string", "null"], "description": "The report's file, relative to the summary's folder."},
    }
    top = {
        "schema_version": {"type": "string", "pattern": rf"^{SCHEMA_VERSION.partition('.')[0]}\.\d+$"},
        "created": {"type": "string"},
        "status": {"enum": ["pass", "fail", "error"]},
        "exit_code": {"type": "integer", "description": "Of the whole run: 5 > 3 > 4 > 2 > 1 > 0, or 130."},
        "headline": {"type": "string"},
        "checks": {"type": "array", "items": _closed(check)},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A summary of smoketest, schema {SCHEMA_VERSION}",
        **_closed(top),
    }


def _closed(keys: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": keys, "required": list(keys), "additionalProperties": False}


def _markdown(summary: Summary) -> str:
    """The table as Markdown of at most `LIMIT` characters; what does not fit is left out by whole rows, and counted."""
    head = [
        f"# {summary.status.upper()}: {summary.headline}",
        "",
        f"Exit code {summary.exit_code}, {prose(summary.created, 40)}.",
        "",
        "| check | verdict | exit | denied | warnings | device | what |",
        "| --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    room = LIMIT - sum(len(line) + 1 for line in head) - 100
    rows: list[str] = []
    for entry in summary.rows:
        line = _markdown_row(entry)
        room -= len(line) + 1
        if room < 0:
            break
        rows.append(line)
    left = len(summary.rows) - len(rows)
    return "\n".join([*head, *rows, *(["", f"{left:,} more are left out for their length."] if left else [])]) + "\n"


def _markdown_row(entry: Row) -> str:
    numbers = f"{entry.exit_code} | {_number(entry.denied)} | {_number(entry.warnings)}"
    cells = f"| {code(entry.name, 80)} | {entry.verdict} | {numbers} | {entry.device or '-'} |"
    return f"{cells} {prose(entry.headline, 240)} |"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
