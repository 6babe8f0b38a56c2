"""A report for a person at a terminal: what matters first, in the width there is."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from smoketest.findings.report import Finding, Report
from smoketest.render import estimates, words

__all__ = ["console", "render"]

_STYLES = {"pass": "bold green", "fail": "bold red", "error": "bold magenta"}
_GROUPS = (("deny", "Denied", "bold red", 20), ("warn", "Warnings", "bold yellow", 10), ("allow", "Allowed", "bold", 5))

_SHORT = 240
"""So many characters of a warning's remedy are shown."""

_Line = tuple[int, Text]
"""Columns to indent, and the text."""


def render(report: Report, *, width: int = 80, color: bool = False) -> str:
    """The report as text, no line longer than `width` columns, ending in a newline.

    Args:
        report: as judged.
        width: columns, at least 20.
        color: whether to use ANSI colours; the caller knows of ``NO_COLOR`` and of terminals.
    """
    out = io.StringIO()
    target = console(out, width=width, color=color)
    for indent, text in _lines(report):
        target.print(Padding(text, (0, 0, 0, indent)))
    # Padding fills lines up with blanks, which would wrap when a terminal is made narrower.
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def console(out: io.StringIO, *, width: int, color: bool) -> Console:
    """A rich console that writes to `out` and asks neither the environment nor a terminal for anything."""
    return Console(
        file=out,
        width=max(width, 20),
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )


def _lines(report: Report) -> Iterator[_Line]:
    style = _STYLES[report.status]
    yield 0, _text((words.verdict(report), style), f" {words.clean(report.name, 60)} on {words.device(report)}")
    yield 0, _text((report.headline, "bold"))
    yield 0, _text((words.device_note(report), "dim"))
    groups = words.by_verdict(report.findings)
    told: dict[str, str] = {}
    for verdict, heading, heading_style, most in _GROUPS:
        yield from _group(report, groups[verdict], heading, heading_style, most, verdict, told)
    yield 0, Text()
    yield 0, _text(("Checked", "bold"))
    for line in words.checked(report):
        yield 2, _text(line)
    if estimated := estimates.lines(report):
        yield 0, Text()
        yield 0, _text(("Fit and cost", "bold"))
        for line in estimated:
            yield 2, _text(line)
    if report.not_checked:
        yield 0, Text()
        yield 0, _text(("Not checked", "bold"))
        for entry in report.not_checked:
            yield 2, _text((entry.what, "bold"), f": {entry.why}")


def _group(
    report: Report,
    findings: Sequence[Finding],
    heading: str,
    style: str,
    most: int,
    verdict: str,
    told: dict[str, str],
) -> Iterator[_Line]:
    """The findings of one verdict; denied ones with cause and remedy, warnings with a short remedy.

    `told` holds which finding a remedy was told of: it is told once, and later findings refer to that one.
    """
    if not findings:
        return
    full = verdict == "deny"
    yield 0, Text()
    yield 0, _text((f"{heading} ({len(findings):,})", style))
    if any(finding.grounds == "no_kernel_known" for finding in findings):
        yield 2, _text((f"possible: {words.GROUNDS['no_kernel_known']}", "dim"))
    cut = False
    for finding in findings[:most]:
        # A warned fallback is told by its title; why a graph breaks, only by its message.
        cause = words.cause(finding) if full or finding.rule != "NST101" else None
        remedy = finding.remedy if verdict != "allow" else None
        if remedy and remedy in told:
            remedy = told[remedy]
        elif remedy:
            told[remedy] = f"as for {finding.op or 'the ' + words.title(finding, report)} above"
            cut = cut or (not full and len(remedy) > _SHORT)
            remedy = remedy if full else words.clean(remedy, _SHORT)
        yield from _finding(report, finding, cause, remedy)
    if cut:
        yield 2, _text("Remedies that end in … here stand in full in report.md.")
    if len(findings) > most:
        yield 2, _text(f"… and {len(findings) - most:,} more, in report.md and report.json")


def _finding(report: Report, finding: Finding, cause: str | None, remedy: str | None) -> Iterator[_Line]:
    """A finding in a few lines: op, place, numbers, and what else is given."""
    title, phase = words.title(finding, report), f" in {finding.phase}" if finding.phase else ""
    rule = f"({finding.rule}{', ' + finding.status if finding.status else ''})"
    if finding.op:
        yield 2, _text((finding.op, "bold"), f"  {title}{phase} {rule}")
    else:
        yield 2, _text((title, "bold"), f"{phase} {rule}")
    if finding.class_ != "environment":  # which has neither line nor count
        yield from _where(finding)
    if cause:
        yield 4, _text(cause)
    if remedy:
        yield 4, _text(("instead: ", "green"), remedy)


def _where(finding: Finding) -> Iterator[_Line]:
    """Its line, how often, and in which modules."""
    code = f"  {finding.site.code}" if finding.site and finding.site.code else ""
    yield 4, _text((words.place(finding.site), "cyan"), (code, "dim"))
    crossing, modules = words.crossing(finding), words.modules(finding)
    often = words.amount(finding) + (f", {crossing} to and from the host" if crossing else "")
    yield 4, _text(often + (f", in {modules}" if modules else ""))


def _text(*parts: str | tuple[str, str]) -> Text:
    """Rich text of parts that may hold anything: nothing in them is read as markup or sent as a control code."""
    text = Text(overflow="fold")
    for part in parts:
        content, style = part if isinstance(part, tuple) else (part, "")
        lead = " " * (len(content) - len(content.lstrip(" ")))
        tail = " " if content.rstrip(" ") != content and content.strip() else ""
        text.append(lead + words.clean(content, 700) + tail, style=style)
    return text
