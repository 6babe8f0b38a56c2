"""What GitHub Actions shows: annotations at lines of code, and the summary of a step.

[PUB] GitHub's documentation of workflow commands: a step shows 10 errors and 10 warnings, and its summary has at most
1 MiB, or none of it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smoketest.findings.report import Finding, Report
from smoketest.render import markdown, words
from smoketest.render.summary import Row, Summary, row
from smoketest.render.summary import render as render_summary

__all__ = ["MOST_ANNOTATIONS", "SUMMARY_LIMIT", "annotate", "step_summary"]

MOST_ANNOTATIONS = 10
"""Of each level; GitHub shows no more of a step's."""

SUMMARY_LIMIT = 1_000_000
"""Bytes of a step's summary: GitHub takes 1,048,576."""

_LEAST = 4_000
"""Bytes a report needs to be worth showing."""

_LEVELS = {"deny": "error", "warn": "warning"}


def annotate(results: Sequence[Report | Row], locate: Callable[[str, str], str | None]) -> list[str]:
    """Workflow commands, at most `MOST_ANNOTATIONS` errors and as many warnings; the last one counts what is left out.

    Args:
        results: a report each; of a check that came to none its row in the summary.
        locate: the path inside the repository of a file as a report names it, given the check's name and the file; None
            where it is not in the repository, such as a library's.
    """
    told: dict[str, list[str]] = {"error": [], "warning": []}
    for result in results:
        if result_is_error(result):
            told["error"].append(_command("error", f"smoketest: {result.name}", result.headline))
        if isinstance(result, Report):
            for finding in words.worst_first(result.findings):
                if (level := _LEVELS.get(finding.verdict or "warn")) is not None:
                    told[level].append(_annotation(level, finding, result, locate))
    return [line for level, lines in told.items() for line in _bounded(level, lines)]


def result_is_error(result: Report | Row) -> bool:
    """Whether a check came to no verdict."""
    return result.status == "error" if isinstance(result, Report) else result.verdict == "ERROR"


def _bounded(level: str, lines: Sequence[str]) -> list[str]:
    if len(lines) <= MOST_ANNOTATIONS:
        return list(lines)
    kept = lines[: MOST_ANNOTATIONS - 1]
    left = len(lines) - len(kept)
    return [*kept, _command(level, "smoketest", f"{left:,} more of these are in the step's summary and the reports")]


def _annotation(level: str, finding: Finding, report: Report, locate: Callable[[str, str], str | None]) -> str:
    title = f"{report.name}: {words.title(finding, report)}{f' of {finding.op}' if finding.op else ''}"
    numbers = words.amount(finding)
    parts = [words.cause(finding), numbers, f"instead: {finding.remedy}" if finding.remedy else ""]
    message = "\n".join(words.clean(part, 700) for part in parts if part)
    path = locate(report.name, finding.site.file) if finding.site else None
    if finding.site is None or path is None:
        return _command(level, title, f"{words.place(finding.site)}: {message}" if finding.site else message)
    return _command(level, title, message, file=path, line=str(finding.site.line))


def _command(level: str, title: str, message: str, **where: str) -> str:
    """A workflow command. [PUB] percent signs and line ends are escaped, in properties colons and commas too."""
    text = "%0A".join(words.clean(line, 1000).replace("%", "%25") for line in message.splitlines())
    shown = {key: value if value.isprintable() else words.clean(value, 1000) for key, value in where.items()}
    properties = shown | {"title": words.clean(title, 200)}
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{level} {given}::{text}"


def _property(text: str) -> str:
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"), (":", "%3A"), (",", "%2C")):
        text = text.replace(character, code)
    return text


def step_summary(results: Sequence[Report | Row], exit_code: int, created: str, room: int = SUMMARY_LIMIT) -> str:
    """The checks as Markdown of at most `room` bytes: a table of all, then each report, the worst ones first.

    What does not fit is left out by whole rows, blocks and reports, and counted: no table is cut.

    Args:
        results: a report each; of a check that came to none its row in the summary.
        exit_code: of the whole run.
        created: time of the run.
        room: bytes there are.
    """
    rows = tuple(row(result) if isinstance(result, Report) else result for result in results)
    parts = [] if len(rows) == 1 and isinstance(results[0], Report) else [_table(rows, exit_code, created, room)]
    reports = sorted(
        (r for r in results if isinstance(r, Report)), key=lambda r: ("error", "fail", "pass").index(r.status)
    )
    left = room - sum(_size(part) for part in parts) - 300
    shown = 0
    for report in reports:
        share = left // (len(reports) - shown)
        if share < _LEAST:
            break
        text = _within(report, share)
        left -= _size(text)
        parts.append(text)
        shown += 1
    if shown < len(reports):
        parts.append(f"{len(reports) - shown:,} more reports are left out here for their length.\n")
    text = "\n".join(parts)
    return text if _size(text) <= room else ""


def _size(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace")) + 1


def _table(rows: tuple[Row, ...], exit_code: int, created: str, room: int) -> str:
    text = render_summary(Summary(created=created, exit_code=exit_code, rows=rows), "markdown")
    return text if _size(text) <= room // 2 else f"{len(rows):,} checks were run; there is no room for their table.\n"


def _within(report: Report, size: int) -> str:
    """The report in at most `size` bytes: the renderer counts characters, of which some take several bytes."""
    characters = size
    while True:
        text = markdown.render(report, limit=characters)
        if _size(text) <= size:
            return text
        characters = characters * size // _size(text) - 100
