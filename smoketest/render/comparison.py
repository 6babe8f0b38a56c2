"""A comparison of two reports for a terminal, as Markdown and as JSON."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from rich.padding import Padding
from rich.text import Text

from smoketest.findings.comparison import Change, Comparison, Difference, OperatorChange, Place, Prediction, Score, Side
from smoketest.render import words
from smoketest.render.escape import code, prose
from smoketest.render.terminal import console

__all__ = ["LIMIT", "render"]

LIMIT = 60_000
"""Characters of the Markdown; GitHub takes 65,536 in one comment."""

_MOST = 20
"""Rows of a group on a terminal."""

_WORDS = {
    "fallback": "fell back to the CPU",
    "failure": "failed",
    "device": "ran on the device",
    "refusal": "was refused by the device's compiler",
    "compiled": "was compiled and ran",
    None: "not told",
}
_FORETOLD = {
    "fallback": "a fallback",
    "failure": "a failure",
    "device": "to run on the device",
    "refusal": "not to compile",
    "compiled": "to compile",
    None: "nothing",
}


def render(
    comparison: Comparison, form: Literal["terminal", "json", "markdown"], *, width: int = 80, color: bool = False
) -> str:
    """The comparison in one of three forms, ending in a newline.

    Args:
        comparison: what to show.
        form: which form; the Markdown has at most `LIMIT` characters.
        width: columns of the terminal.
        color: whether the terminal's text may have colours.
    """
    if form == "json":
        return comparison.model_dump_json(by_alias=True, indent=2) + "\n"
    if form == "markdown":
        return _markdown(comparison)
    out = io.StringIO()
    target = console(out, width=width, color=color)
    for indent, text in _lines(comparison):
        target.print(Padding(text, (0, 0, 0, indent)))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _groups(comparison: Comparison) -> list[tuple[str, Sequence[Change]]]:
    """Changes under their headings, the worst first."""
    if comparison.same_model:
        new, fixed = "New", "Fixed"
    else:
        new, fixed = "Only in the new report", "Only in the old report"
    return [
        (new, comparison.appeared),
        ("Worse", comparison.worse),
        ("Better", comparison.better),
        (fixed, comparison.fixed),
        ("Only one of the two looked for", comparison.not_compared),
    ]


def _side(side: Side) -> str:
    device = {"emulated": "the emulated neuron device", "neuron": "the neuron device", "cpu": "plain CPU"}[side.device]
    release = f" ({side.release})" if side.release else ""
    return f"{side.name} on {device}{release}, {side.created}: {side.status.upper()}, {side.headline}"


def _difference(entry: Difference) -> str:
    return f"{entry.what}: {entry.old or 'not there'} → {entry.new or 'not there'}"


def _change(change: Change) -> str:
    """One finding in a line: what it is, where, how often."""
    finding = change.finding
    op = f"{finding.op} " if finding.op else ""
    phase = f" in {finding.phase}" if finding.phase else ""
    verdict = change.new_verdict or change.old_verdict or "not judged"
    return f"{op}{finding.rule}{phase}, {words.place(finding.site)}, {words.amount(finding)} ({verdict})"


def _operator(row: OperatorChange) -> str:
    parts = []
    for name, old, new in (("eager", row.old_eager, row.new_eager), ("compiled", row.old_compile, row.new_compile)):
        if old != new:
            parts.append(f"{name} {_state(old)} → {_state(new)}")
    return f"{row.op}: {', '.join(parts)}"


def _state(state: str | None) -> str:
    return "not there" if state is None else (words.EAGER | words.COMPILED).get(state, state)


def _place(place: Place) -> str:
    what = place.op or ("a graph" if "refusal" in (place.predicted, place.measured) else "an op")
    op = f"{what}{f' in {place.phase}' if place.phase else ''}, {words.place(place.site)}"
    if place.why is not None:
        told = f"predicted {_FORETOLD[place.predicted]}" if place.predicted else _WORDS[place.measured]
        return f"{op}: {told}; {place.why}"
    grounds = f" ({words.GROUNDS[place.grounds]})" if place.grounds and place.grounds != "measured" else ""
    return f"{op}: predicted {_FORETOLD[place.predicted]}{grounds}, {_WORDS[place.measured]}"


def _scores(prediction: Prediction) -> list[str]:
    return [
        f"Firm predictions that held: {_score(prediction.firm)}; possible ones: {_score(prediction.possible)}.",
        f"Measured trouble that was predicted: {_score(prediction.found)}.",
        f"Ops that both runs called, and that ran where predicted: {_score(prediction.operators)}.",
    ]


def _score(score: Score) -> str:
    if score.judged == 0:
        return "none to judge"
    return f"{score.held:,} of {score.judged:,} ({100 * score.held / score.judged:.0f} %)"


def _predictions(prediction: Prediction) -> list[tuple[str, Sequence[Place]]]:
    return [
        ("Contradicted: predicted, and the device did otherwise", prediction.contradicted),
        ("Missed: measured, and not predicted", prediction.missed),
        ("Not judged", prediction.not_judged),
    ]


_Line = tuple[int, Text]


def _lines(comparison: Comparison) -> Iterator[_Line]:
    yield 0, _text(comparison.headline, "bold")
    yield 0, _text(f"old: {_side(comparison.old)}")
    yield 0, _text(f"new: {_side(comparison.new)}")
    if comparison.prediction is not None:
        yield 0, Text()
        yield 0, _text("Predicted against measured", "bold")
        for line in _scores(comparison.prediction):
            yield 2, _text(line)
        for heading, places in _predictions(comparison.prediction):
            yield from _listed(heading, [_place(place) for place in places], 2)
    for heading, changes in _groups(comparison):
        if changes:
            yield 0, Text()
        yield from _listed(heading, [line for change in changes for line in _told(change)], 0, len(changes))
    for heading, rows in (
        ("Ops that are treated otherwise", [_operator(row) for row in comparison.operators]),
        ("Numbers", [_difference(entry) for entry in comparison.numbers]),
        ("Workload", [_difference(entry) for entry in comparison.workload]),
        ("Environment", [_difference(entry) for entry in comparison.drift]),
    ):
        if rows:
            yield 0, Text()
        yield from _listed(heading, rows, 0)


def _told(change: Change) -> list[str]:
    return [_change(change), *(f"  {how}" for how in change.how)]


def _listed(heading: str, rows: Sequence[str], indent: int, count: int | None = None) -> Iterator[_Line]:
    """A heading with its number of entries and the first rows."""
    if not rows:
        return
    yield indent, _text(f"{heading} ({len(rows) if count is None else count:,})", "bold")
    for row in rows[:_MOST]:
        yield indent + 2, _text(row)
    if len(rows) > _MOST:
        yield indent + 2, _text(f"… and {len(rows) - _MOST:,} more lines, with --format json or markdown")


def _text(content: str, style: str = "") -> Text:
    """Rich text in which nothing is read as markup or sent as a control code; leading blanks stay."""
    lead = " " * (len(content) - len(content.lstrip(" ")))
    return Text(lead + words.clean(content, 700), style=style, overflow="fold")


def _markdown(comparison: Comparison) -> str:
    """Sections with a table each; what does not fit is left out by whole rows, and counted."""
    parts = [
        f"# {prose(comparison.headline, 700)}",
        f"- old: {prose(_side(comparison.old), 900)}\n- new: {prose(_side(comparison.new), 900)}",
    ]
    sections: list[tuple[str, list[str], list[str]]] = []
    if comparison.prediction is not None:
        parts.append("## Predicted against measured")
        parts.append("\n".join(f"- {prose(line)}" for line in _scores(comparison.prediction)))
        head = _head("op", "phase", "where", "predicted", "measured", "remark")
        for heading, places in _predictions(comparison.prediction):
            sections.append((f"### {heading}", head, [_place_row(place) for place in places]))
    head = _head("finding", "op", "where", "phase", "how often", "old verdict", "new verdict", "what changed")
    sections += [(f"## {heading}", head, [_row(c) for c in changes]) for heading, changes in _groups(comparison)]
    head = _head("op", "eager, old", "eager, new", "compiled, old", "compiled, new")
    sections.append(("## Ops that are treated otherwise", head, [_operator_row(row) for row in comparison.operators]))
    for heading, entries in (
        ("Numbers", comparison.numbers), ("Workload", comparison.workload), ("Environment", comparison.drift)
    ):  # fmt: skip
        sections.append((f"## {heading}", _head("what", "old", "new"), [_difference_row(entry) for entry in entries]))
    room = LIMIT - sum(len(part) + 2 for part in parts) - sum(len(heading) + 400 for heading, _, _ in sections)
    for heading, head, rows in sections:
        if not rows:
            continue
        kept = []
        for row in rows:
            room -= len(row) + 1
            if room < 0:
                break
            kept.append(row)
        left = len(rows) - len(kept)
        parts += [f"{heading} ({len(rows):,})", *(["\n".join([*head, *kept])] if kept else [])]
        parts += [f"{left:,} more are left out for their length; `--format json` has all."] if left else []
    return "\n\n".join(parts) + "\n"


def _head(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(change: Change) -> str:
    finding = change.finding
    return _cells((
        prose(finding.rule, 20), code(finding.op or "", 80), code(words.place(finding.site), 100), finding.phase or "-",
        words.amount(finding), change.old_verdict or "-", change.new_verdict or "-",
        prose("; ".join(change.how), 300) or "-",
    ))  # fmt: skip


def _place_row(place: Place) -> str:
    remark = place.why or (words.GROUNDS[place.grounds] if place.grounds else "")
    return _cells((
        code(place.op or "", 80), place.phase or "-", code(words.place(place.site), 100),
        place.predicted or "-", place.measured or "-", prose(remark, 200) or "-",
    ))  # fmt: skip


def _operator_row(row: OperatorChange) -> str:
    states = (row.old_eager, row.new_eager, row.old_compile, row.new_compile)
    return _cells((code(row.op, 80), *(_state(state) for state in states)))


def _difference_row(entry: Difference) -> str:
    return _cells((prose(entry.what, 120), code(entry.old or "", 200), code(entry.new or "", 200)))
