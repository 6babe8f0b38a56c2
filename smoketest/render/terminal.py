"""A report for a person at a terminal: what matters first, in the width there is."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from smoketest.findings.report import Finding, NotChecked, Report
from smoketest.render import estimates, related, words
from smoketest.render.glossary import terms_in

__all__ = ["console", "render"]

_STYLES = {"pass": "bold green", "fail": "bold red", "error": "bold magenta"}
_GROUPS = (("deny", "Denied", "bold red", 12), ("warn", "Warnings", "bold yellow", 8), ("allow", "Allowed", "bold", 3))

_SITES = 5
"""So many places of findings that are alike are shown."""

_CODE = 60
"""Characters of a line of source; the file has the rest."""

_LINES = 60
"""So long a report may be before what was checked is told in short."""

_FULL = 4
"""So many entries have causes and remedies; with those, the worst of a bad model fill the first screen."""

_CLAUSE = re.compile(r"[,;:] ")
"""What ends the first clause of why something was not checked: the rest is in report.md."""

_SHORT = 240
"""So many characters of a text are shown; `_LONG` of a remedy where there are at most `_FEW` findings."""

_LONG, _FEW = 700, 3

_NAMES = 6
"""So many names of what was not checked are shown."""

_ALSO = 3
"""So many findings are named that go with the one of an entry."""

_GROUNDS: dict[str | None, str] = {"reported": "seen on a device", "cannot_lower": "does not lower either"}
"""What a predicted fallback stands on; what a possible one does, the heading of its group says."""

_Line = tuple[int, Text]
"""Columns to indent, and the text."""


def render(report: Report, *, width: int = 80, color: bool = False) -> str:
    """The report as text, no line longer than `width` columns, ending in a newline.

    Args:
        report: as judged.
        width: columns, at least 20.
        color: whether to use ANSI colours; the caller knows of ``NO_COLOR`` and of terminals.
    """
    lines = _start(report)
    whole = [*lines, *_end(report)]
    # Measured in one width, so that every terminal is told the same.
    is_short = not report.findings or _printed(whole, 80, color=False).count("\n") <= _LINES
    return _printed(whole if is_short else [*lines, *_short_end(report)], width, color)


def _printed(lines: Sequence[_Line], width: int, color: bool) -> str:
    out = io.StringIO()
    target = console(out, width=width, color=color)
    for indent, text in lines:
        target.print(Padding(text, (0, 0, 0, indent)))
    # Padding fills lines up with blanks, which would wrap when a terminal is made narrower.
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


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


def _start(report: Report) -> list[_Line]:
    """The verdict, the findings, and the words that are in them."""
    style = _STYLES[report.status]
    found = list(_findings(report))
    return [
        (0, _text((words.verdict(report), style), f" {words.clean(report.name, 60)} on {words.device(report)}")),
        (0, _text((report.headline, "bold"))),
        *((0, _text(("warning: ", "bold yellow"), words.clean(line, _SHORT))) for line in words.met_limits(report)),
        (0, _text((words.device_note(report), "dim"))),
        *found,
        *_legend("\n".join(text.plain for _, text in found)),
    ]


def _end(report: Report) -> Iterator[_Line]:
    """What was checked and what was not."""
    yield from _section("Checked", words.checked(report))
    yield from _section("Fit and cost", estimates.lines(report))
    yield from _not_checked(report)


def _short_end(report: Report) -> Iterator[_Line]:
    """The same in a few lines; the whole of it is in report.md."""
    parts = [
        f"eager part {_ended(report.eager.status)}",
        f"compile probe {_ended(report.compile.status)}",
        f"comparison with CPU {_ended(report.parity.status)}",
    ]
    yield 0, Text()
    yield 0, _text(("Checked", "bold"), f": {'; '.join(parts)}")
    if report.ranks is not None:
        yield 0, _text(words.shared_by(report))
    if (compared := words.against_baseline(report)) is not None:
        yield 0, _text(compared)
    costs = estimates.cost(report)
    for line in costs if report.device.kind == "neuron" else costs[:1]:  # what was measured is told in full
        yield 0, _text(line)
    if report.not_checked:
        names = [entry.what for entry in report.not_checked]
        more = [f"and {len(names) - _NAMES} more"] if len(names) > _NAMES else []
        yield 0, _text(("Not checked", "bold"), f": {'; '.join([*names[:_NAMES], *more])}")
    yield 0, _text("The rest is in report.md: all causes and remedies, memory and cost, why something was not checked.")


def _ended(status: str) -> str:
    return status.replace("_", " ")


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


@dataclass
class _Told:
    """What of the report has been told so far.

    Attributes:
        report: whose findings.
        tied_to: by id, the finding to mend first.
        with_it: by id, those of the same verdict that go with a finding; they are told in its entry.
        room: entries that may still have causes and remedies.
        remedies: where a remedy was told, as words: it is told once, and later findings refer to that one.
        cut: whether a text was cut.
    """

    report: Report
    tied_to: Mapping[str, Finding]
    with_it: Mapping[str, list[Finding]]
    room: int = _FULL
    remedies: dict[str, str] = field(default_factory=dict)
    cut: bool = False

    def short(self, text: str, limit: int) -> str:
        """The text cut to a few lines."""
        shown = words.clean(text, limit)
        if shown.endswith("…"):
            sentence = shown.rfind(". ")
            shown = f"{shown[: sentence + 1]} …" if sentence >= limit // 2 else shown
            self.cut = True
        return shown


def _findings(report: Report) -> Iterator[_Line]:
    groups, tied_to = words.by_verdict(report.findings), related.leads(report.findings)
    told = _Told(report, tied_to, related.dependents(words.worst_first(report.findings), tied_to))
    for verdict, heading, style, most in _GROUPS:
        yield from _group(groups[verdict], heading, style, most, told)
    if told.cut:
        yield 0, _text(("Texts that end in … stand in full in report.md.", "dim"))


def _group(findings: Sequence[Finding], heading: str, style: str, most: int, told: _Told) -> Iterator[_Line]:
    """The findings of one verdict, those of the same rule and op together, the worst with cause and remedy."""
    if not findings:
        return
    yield 0, Text()
    yield 0, _text((f"{heading} ({words.counted(len(findings), 'finding')})", style))
    if any(finding.grounds == "no_kernel_known" for finding in findings):
        yield 2, _text((f"possible: {words.GROUNDS['no_kernel_known']}", "dim"))
    entries = [_Entry.of(same, told) for same in _alike(findings, told)]
    for entry in entries[:most]:
        in_full = told.room > 0 and entry.first.verdict != "allow"
        yield _heading(entry, told.report, "" if in_full else _at(entry.first, told))
        if in_full:
            told.room -= 1
            yield from _in_full(entry, told)
        elif entry.first.verdict == "deny" and entry.first.op is None and (cause := _cause(entry.first)):
            yield 4, _text(told.short(cause, _SHORT))  # no op to look up: without it nothing is known
    if len(entries) > most:
        left = sum(entry.count for entry in entries[most:])
        yield 2, _text(f"… and {words.counted(left, 'more finding')}, in report.md and report.json")


@dataclass(frozen=True)
class _Entry:
    """Findings that are told together.

    Attributes:
        same: of one rule, op and title, the worst first.
        with_it: those that are to be mended after these.
    """

    same: list[Finding]
    with_it: list[Finding]

    @classmethod
    def of(cls, same: list[Finding], told: _Told) -> _Entry:
        """The entry of findings that are alike."""
        return cls(same, [other for finding in same for other in told.with_it.get(finding.id, ())])

    @property
    def first(self) -> Finding:
        """The worst of them."""
        return self.same[0]

    @property
    def count(self) -> int:
        """How many findings it is of."""
        return len(self.same) + len(self.with_it)


def _alike(findings: Sequence[Finding], told: _Told) -> list[list[Finding]]:
    """Findings of the same rule, op and title together, in the place of the worst; without what goes with others."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    gone = {other.id for others in told.with_it.values() for other in others}
    for finding in findings:
        if finding.id not in gone:
            groups.setdefault((finding.rule, finding.op, words.title(finding, told.report)), []).append(finding)
    return list(groups.values())


def _at(finding: Finding, told: _Told) -> str:
    """The place in a few words, for an entry that is told in a line."""
    if finding.class_ == "environment":
        return ""
    of_backward = " (backward)" if finding.phase == "backward" else ""
    lead = told.tied_to.get(finding.id)
    mended = ", same op and line as above" if lead is not None else ""
    return f" at {_place(finding)}{of_backward}{mended}" if finding.site else f", {_place(finding)}"


def _heading(entry: _Entry, report: Report, where: str) -> _Line:
    """Rule, op and title, how many findings it is, and where the worst of them is."""
    first = entry.first
    statuses = Counter(finding.status for finding in (*entry.same, *entry.with_it) if finding.status)
    marks = [first.rule, *(f"{count} {status}" if entry.count > 1 else status for status, count in statuses.items())]
    marks += [_counted(entry)] if entry.count > 1 else []
    marks += [_GROUNDS[first.grounds]] if first.rule == "NST101" and first.grounds in _GROUNDS else []
    title = words.title(first, report)
    if first.op:
        return 2, _text((first.op, "bold"), f"  {title} ({', '.join(marks)}){where}")
    return 2, _text((title, "bold"), f" ({', '.join(marks)}){where}")


def _counted(entry: _Entry) -> str:
    """Those of the rule that the heading names, and those that go with them, which may be of others."""
    same, with_it = len(entry.same), len(entry.with_it)
    more = f" and {with_it:,} with {'them' if same > 1 else 'it'}" if with_it else ""
    return f"{words.counted(same, 'finding')}{more}"


def _in_full(entry: _Entry, told: _Told) -> Iterator[_Line]:
    """Where, why, what goes with it, and what to write instead."""
    for cause, sites in _by_cause(entry.same):
        yield from _sites(sites)
        if cause:
            yield 4, _text(told.short(cause, _SHORT))
        yield from _before(sites, told)
        yield from _remedy(sites[0], told)
    if entry.with_it:
        yield 4, _text(("mend it first; with it may go: ", "green"), _also(entry.with_it, told.report))


def _before(sites: Sequence[Finding], told: _Told) -> Iterator[_Line]:
    """That another one, of another verdict, is to be mended first."""
    names = dict.fromkeys(told.tied_to[finding.id].op or "" for finding in sites if finding.id in told.tied_to)
    if names:
        yield 4, _text(f"same op and line as {', '.join(names)}, denied above: mend that first")


def _also(findings: Sequence[Finding], report: Report) -> str:
    names = dict.fromkeys(
        f"{finding.op}, {words.title(finding, report)}"
        + (f" in {finding.phase}" if finding.phase else "")
        + f" ({finding.rule})"
        for finding in findings
    )
    more = [f"{len(names) - _ALSO} more"] if len(names) > _ALSO else []
    return "; ".join([*list(names)[:_ALSO], *more])


def _remedy(finding: Finding, told: _Told) -> Iterator[_Line]:
    remedy = finding.remedy
    if remedy and remedy in told.remedies:
        yield 4, _text(("instead: ", "green"), told.remedies[remedy])
    elif remedy:
        told.remedies[remedy] = f"as for {finding.op or 'the ' + words.title(finding, told.report)} above"
        limit = _LONG if len(told.report.findings) <= _FEW else _SHORT
        yield 4, _text(("instead: ", "green"), told.short(remedy, limit))


def _by_cause(findings: Sequence[Finding]) -> list[tuple[str | None, list[Finding]]]:
    """The findings of one entry by what is said of them all: cause and remedy."""
    groups: dict[tuple[str | None, str | None], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((_cause(finding), finding.remedy), []).append(finding)
    return [(cause, sites) for (cause, _), sites in groups.items()]


def _cause(finding: Finding) -> str | None:
    """Why; a predicted fallback is told by its heading, and by what the gate added to its message."""
    if finding.rule != "NST101" or finding.grounds in ("measured", None):
        return words.cause(finding)
    return finding.message.partition(". ")[2] or None


def _sites(findings: Sequence[Finding]) -> Iterator[_Line]:
    """Where they are, the first ones of many; of what is about the machine there is nothing to say."""
    most = _SITES if len(findings) > _SITES + 1 else len(findings)
    for finding in findings[:most]:
        if finding.class_ == "environment":
            continue
        phase = f", {words.phase(finding)}" if finding.phase else ""
        code = words.clean(finding.site.code, _CODE) if finding.site else ""
        yield 4, _text((_place(finding), "cyan"), f"{phase}: " if code else phase, (code, "dim"))
        yield from _numbers(finding)
    if len(findings) > most:
        yield 4, _text(f"and {words.counted(len(findings) - most, 'more finding')} of it, in report.md")


def _place(finding: Finding) -> str:
    return words.place(finding.site) if finding.site else words.no_place(finding)


def _numbers(finding: Finding) -> Iterator[_Line]:
    crossing, modules = words.crossing(finding), words.modules(finding)
    often = words.amount(finding) + (f", {crossing} to and from the host" if crossing else "")
    yield 6, _text(often + (f", in {modules}" if modules else ""))


def _text(*parts: str | tuple[str, str]) -> Text:
    """Rich text of parts that may hold anything: nothing in them is read as markup or sent as a control code."""
    text = Text(overflow="fold")
    for part in parts:
        content, style = part if isinstance(part, tuple) else (part, "")
        lead = " " * (len(content) - len(content.lstrip(" ")))
        tail = " " if content.rstrip(" ") != content and content.strip() else ""
        text.append(lead + words.clean(content, 1_500) + tail, style=style)
    return text
