"""A report for a person at a terminal: what matters first, in the width there is."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from smoketest.findings.report import Finding, NotChecked, Report
from smoketest.render import estimates, words
from smoketest.render.glossary import terms_in

__all__ = ["console", "render"]

_STYLES = {"pass": "bold green", "fail": "bold red", "error": "bold magenta"}
_GROUPS = (("deny", "Denied", "bold red", 20), ("warn", "Warnings", "bold yellow", 10), ("allow", "Allowed", "bold", 5))

_SITES = 5
"""So many places of findings that are alike are shown."""

_CODE = 100
"""Characters of a line of source; the file has the rest."""

_CLAUSE = re.compile(r"[,;:] ")
"""What ends the first clause of why something was not checked: the rest is in report.md."""

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
    found = list(_findings(report))
    yield from found
    yield from _legend("\n".join(text.plain for _, text in found))
    yield from _section("Checked", words.checked(report))
    yield from _section("Fit and cost", estimates.lines(report))
    yield from _not_checked(report)


def _section(heading: str, lines: Sequence[str]) -> Iterator[_Line]:
    if lines:
        yield 0, Text()
        yield 0, _text((heading, "bold"))
    for line in lines:
        yield 2, _text(line)


def _legend(text: str) -> Iterator[_Line]:
    """What the words of the findings mean, those that have a short meaning and occur."""
    told = [term.short for term in terms_in(text) if term.short]
    if told:
        yield 0, Text()
        yield 0, _text(("Words: " + "; ".join(told), "dim"))


def _not_checked(report: Report) -> Iterator[_Line]:
    """A line each, and one for all that only a device can tell; the whole of it is in report.md."""
    if not report.not_checked:
        return
    yield 0, Text()
    yield 0, _text(("Not checked", "bold"), " (in full in report.md)")
    on_a_device = [entry.what for entry in report.not_checked if _only_a_device_tells(entry)]
    if on_a_device:
        yield 2, _text(("only on a real device", "bold"), f": {'; '.join(on_a_device)}")
    for entry in report.not_checked:
        if entry.what not in on_a_device:
            yield 2, _text((entry.what, "bold"), f": {_CLAUSE.split(entry.why, maxsplit=1)[0]}")


def _only_a_device_tells(entry: NotChecked) -> bool:
    return "the emulated device" in entry.why or entry.why.startswith("only a device")


def _findings(report: Report) -> Iterator[_Line]:
    groups = words.by_verdict(report.findings)
    told: dict[str, str] = {}
    for verdict, heading, style, most in _GROUPS:
        yield from _group(report, groups[verdict], heading, style, most, verdict, told)


def _group(
    report: Report,
    findings: Sequence[Finding],
    heading: str,
    style: str,
    most: int,
    verdict: str,
    told: dict[str, str],
) -> Iterator[_Line]:
    """The findings of one verdict, those of the same rule and op together; denied ones with cause and remedy.

    `told` holds which finding a remedy was told of: it is told once, and later findings refer to that one.
    """
    if not findings:
        return
    yield 0, Text()
    yield 0, _text((f"{heading} ({len(findings):,})", style))
    if any(finding.grounds == "no_kernel_known" for finding in findings):
        yield 2, _text((f"possible: {words.GROUNDS['no_kernel_known']}", "dim"))
    alike = _alike(findings, report)
    cut = False
    for same in alike[:most]:
        yield _heading(same, report)
        for cause, sites in _by_cause(same, verdict):
            yield from _sites(sites)
            if cause:
                yield 4, _text(cause)
            remedy = sites[0].remedy if verdict != "allow" else None
            if remedy and remedy in told:
                yield 4, _text(("instead: ", "green"), told[remedy])
            elif remedy:
                told[remedy] = f"as for {sites[0].op or 'the ' + words.title(sites[0], report)} above"
                short = words.clean(remedy, _SHORT) if verdict != "deny" else remedy
                cut = cut or short.endswith("…")
                yield 4, _text(("instead: ", "green"), short)
    if cut:
        yield 2, _text("Remedies that end in … here stand in full in report.md.")
    if len(alike) > most:
        left = sum(len(same) for same in alike[most:])
        yield 2, _text(f"… and {left:,} more, in report.md and report.json")


def _alike(findings: Sequence[Finding], report: Report) -> list[list[Finding]]:
    """Findings of the same rule, op and title together, in the place of the worst of them."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.rule, finding.op, words.title(finding, report)), []).append(finding)
    return list(groups.values())


def _by_cause(findings: Sequence[Finding], verdict: str) -> list[tuple[str | None, list[Finding]]]:
    """The findings of one group by what is said of them all: cause and remedy."""
    groups: dict[tuple[str | None, str | None], list[Finding]] = {}
    for finding in findings:
        # A warned fallback is told by its title; why a graph breaks, only by its message.
        cause = words.cause(finding) if verdict == "deny" or finding.rule != "NST101" else None
        groups.setdefault((cause, finding.remedy), []).append(finding)
    return [(cause, sites) for (cause, _), sites in groups.items()]


def _heading(same: Sequence[Finding], report: Report) -> _Line:
    """Rule, op and title of findings that are alike, and in how many places they are."""
    first = same[0]
    statuses = Counter(finding.status for finding in same if finding.status)
    told = [first.rule, *(f"{count} {status}" if len(same) > 1 else status for status, count in statuses.items())]
    places = f" in {len(same):,} places" if len(same) > 1 else ""
    title = words.title(first, report)
    if first.op:
        return 2, _text((first.op, "bold"), f"  {title}{places} ({', '.join(told)})")
    return 2, _text((title, "bold"), f"{places} ({', '.join(told)})")


def _sites(findings: Sequence[Finding]) -> Iterator[_Line]:
    """Where they are, the first ones of many; of what is about the machine there is nothing to say."""
    most = _SITES if len(findings) > _SITES + 1 else len(findings)
    for finding in findings[:most]:
        if finding.class_ == "environment":
            continue
        phase = f", {words.phase(finding)}" if finding.phase else ""
        code = words.clean(finding.site.code, _CODE) if finding.site else ""
        yield 4, _text((words.place(finding.site), "cyan"), f"{phase}: " if code else phase, (code, "dim"))
        crossing, modules = words.crossing(finding), words.modules(finding)
        often = words.amount(finding) + (f", {crossing} to and from the host" if crossing else "")
        yield 6, _text(often + (f", in {modules}" if modules else ""))
    if len(findings) > most:
        yield 4, _text(f"and in {len(findings) - most:,} more places, in report.md")


def _text(*parts: str | tuple[str, str]) -> Text:
    """Rich text of parts that may hold anything: nothing in them is read as markup or sent as a control code."""
    text = Text(overflow="fold")
    for part in parts:
        content, style = part if isinstance(part, tuple) else (part, "")
        lead = " " * (len(content) - len(content.lstrip(" ")))
        tail = " " if content.rstrip(" ") != content and content.strip() else ""
        text.append(lead + words.clean(content, 1_500) + tail, style=style)
    return text
