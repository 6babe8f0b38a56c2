"""Two reports compared: what is new, worse, better and fixed, and which predictions a device run contradicts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, Literal

from smoketest.findings.comparison import (
    Change,
    Comparison,
    Difference,
    OperatorChange,
    Place,
    Prediction,
    Score,
    Side,
)
from smoketest.findings.identity import functional_base
from smoketest.findings.report import Finding, Report
from smoketest.gate.baseline import Entry, worse_than
from smoketest.gate.coverage import Coverage

__all__ = ["compare"]

_Pair = tuple[Finding | None, Finding | None]
_OUTCOMES: dict[str, Literal["fallback", "failure"]] = {"NST101": "fallback", "NST104": "failure"}
_REFUSALS = ("NST201", "NST202", "NST203", "NST206")
_DEVICE_COMPILE = "device_compile"
_FIRM = ("reported", "cannot_lower", "measured")
_Verdict = Literal["held", "contradicted", "missed", "not_judged"]


def compare(old: Report, new: Report) -> Comparison:
    """Hold two reports against each other.

    Findings are the same where their ids are; of lines that are alike but for their order, the one with the most calls
    is compared with the one with the most. A finding that one report does not have is new or fixed only where that
    report would have it, had it been there.
    """
    covered = Coverage.of(old), Coverage.of(new)
    kinds: dict[str, list[Change]] = defaultdict(list)
    same = 0
    for before, now in _pairs(old.findings, new.findings):
        if before is not None and now is not None:
            change, how = _changed(before, now)
            same += how == "same"
            kinds[how].append(change)
        elif now is not None:
            kind = "appeared" if covered[0].sees(now.rule) else "not_compared"
            kinds[kind].append(Change(finding=now, new_verdict=now.verdict))
        elif before is not None:
            kind = "fixed" if covered[1].sees(before.rule) else "not_compared"
            kinds[kind].append(Change(finding=before, old_verdict=before.verdict))
    same_model = None in (old.workload.model, new.workload.model) or old.workload.model == new.workload.model
    prediction = _prediction(old, new) if same_model else None
    denied = [change for kind in ("appeared", "worse") for change in kinds[kind] if change.new_verdict == "deny"]
    return Comparison(
        headline=_headline(kinds, same, same_model, prediction),
        exit_code=1 if same_model and denied else 0,
        old=_side(old),
        new=_side(new),
        same_model=same_model,
        drift=tuple(_differences(_circumstances(old), _circumstances(new))),
        workload=tuple(_differences(_workload(old), _workload(new))),
        numbers=tuple(_differences(_numbers(old, new), _numbers(new, old))),
        same=same,
        operators=tuple(_operators(old, new)),
        prediction=prediction,
        **{kind: tuple(changes) for kind, changes in kinds.items() if kind != "same"},
    )


def _key(finding: Finding) -> tuple[str, ...]:
    site = finding.site
    op = functional_base(finding.op) if finding.op else ""
    return (finding.rule, finding.phase or "", site.file if site else "", site.code if site else "", op)


def _pairs(old: Sequence[Finding], new: Sequence[Finding]) -> Iterator[_Pair]:
    """Findings of the same place; None where a report does not have it.

    A name that was taken out of the text of one of the reports leaves the id as it was.
    """
    home = {finding.id: _key(finding) for finding in old}
    places: dict[tuple[str, ...], tuple[list[Finding], list[Finding]]] = defaultdict(lambda: ([], []))
    for side, findings in enumerate((old, new)):
        for finding in findings:
            places[home.get(finding.id, _key(finding))][side].append(finding)
    for _, sides in sorted(places.items()):
        before, now = (sorted(side, key=_most_first) for side in sides)
        for rank in range(max(len(before), len(now))):
            yield (before[rank] if rank < len(before) else None, now[rank] if rank < len(now) else None)


def _most_first(finding: Finding) -> tuple[int, int, str]:
    return (-(finding.calls_per_step or 0), -(finding.bytes_per_step or 0), finding.id)


def _changed(before: Finding, now: Finding) -> tuple[Change, Literal["same", "worse", "better"]]:
    """What changed of a finding that both have. A verdict weighs more than numbers."""
    more, less = _more(before, now), _more(now, before)
    how = [str(change) for change in more]
    # Told from old to new, whichever is the larger.
    how += [f"{each.now:,g} {each.what} per step then, {each.before:,g} now" for each in less]
    if before.verdict != now.verdict:
        how.insert(0, f"{before.verdict or 'not judged'} before, {now.verdict or 'not judged'} now")
    change = Change(finding=now, old_verdict=before.verdict, new_verdict=now.verdict, how=tuple(how))
    ranks: dict[str | None, int] = {"deny": 2, "warn": 1}
    step = ranks.get(now.verdict, 0) - ranks.get(before.verdict, 0)
    if step > 0 or (step == 0 and more):
        return change, "worse"
    return change, "better" if step < 0 or less else "same"


def _more(before: Finding, now: Finding) -> Sequence[Any]:
    """In what quantities there is certainly more now."""
    entry = Entry(
        id=now.id, rule=now.rule, verdict="deny", calls_per_step=before.calls_per_step, exact=before.exact,
        bytes_per_step=before.bytes_per_step, ms_per_step=before.ms_per_step,
    )  # fmt: skip
    return worse_than([now], [entry]).get(now.id, ())


def _side(report: Report) -> Side:
    release = report.device.profile if report.device.kind == "emulated" else report.environment.torch_neuronx
    return Side(
        name=report.name, created=report.created, model=report.workload.model, device=report.device.kind,
        release=release, status=report.status, headline=report.headline,
    )  # fmt: skip


def _circumstances(report: Report) -> dict[str, str]:
    """What results depend on."""
    return _flat(
        {
            "device": report.device.kind,
            "profile": report.device.profile,
            **report.environment.model_dump(exclude={"lines"}),
        }
    )


def _workload(report: Report) -> dict[str, str]:
    return _flat({"check": report.name, **report.workload.model_dump()})


def _flat(values: dict[str, Any]) -> dict[str, str]:
    """Values as text, those of an inner mapping by a name each; what is not known is left out."""
    told: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            told |= {f"{name}.{key}": inner for key, inner in _flat(value).items()}
        elif value is not None:
            told[name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return told


def _numbers(report: Report, other: Report) -> dict[str, str]:
    """Counts of the parts that ran in both, and times where both are a device's."""
    told: dict[str, Any] = {}
    if report.eager.status == other.eager.status == "ran":
        told |= {"op calls in a step": report.eager.op_calls, "distinct overloads": report.eager.distinct_ops}
    if report.compile.status == other.compile.status == "ran":
        part = report.compile
        told |= {
            "graphs": len(part.graphs), "ops that fail lowering": part.ops_failed, "ops unknown": part.ops_unknown,
            "graph breaks": part.graph_breaks, "skipped frames": part.skipped_frames, "recompiles": part.recompiles,
        }  # fmt: skip
    if report.parity.max_relative_error is not None and other.parity.max_relative_error is not None:
        told["largest relative error"] = f"{report.parity.max_relative_error:.1e}"
    if report.device.kind == other.device.kind == "neuron":
        told |= _times(report)
    return {
        name: f"{value:,}" if isinstance(value, int) else value for name, value in told.items() if value is not None
    }


def _times(report: Report) -> dict[str, str]:
    timed = report.eager.steady()
    told = {}
    for name in ("forward", "backward", "optimizer"):
        values = [value for step in timed if (value := getattr(step, f"{name}_ms")) is not None]
        if values:
            told[f"{name}, median"] = f"{median(values):.1f} ms"
    return told


def _differences(old: dict[str, str], new: dict[str, str]) -> Iterator[Difference]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield Difference(what=name, old=old.get(name), new=new.get(name))


def _operators(old: Report, new: Report) -> Iterator[OperatorChange]:
    """Ops of which the two say different things; of an op that one does not have only where it is in trouble."""
    before, now = ({row.op: row for row in report.operators} for report in (old, new))
    for op in sorted({*before, *now}):
        one, two = before.get(op), now.get(op)
        told = [(row.eager, row.compile) if row else (None, None) for row in (one, two)]
        if told[0] == told[1]:
            continue
        trouble = {"cpu", "mixed", "failed", "fails"} & {*told[0], *told[1]}
        if (one and two) or trouble:
            yield OperatorChange(
                op=op, old_eager=told[0][0], new_eager=told[1][0], old_compile=told[0][1], new_compile=told[1][1]
            )


def _prediction(old: Report, new: Report) -> Prediction | None:
    """The predictions of the one against the measurements of the other; None where they are of one kind."""
    if {old.device.kind, new.device.kind} != {"emulated", "neuron"}:
        return None
    predicting, measuring = (old, new) if old.device.kind == "emulated" else (new, old)
    places: dict[str, list[Place]] = defaultdict(list)
    for predicted, measured in _place_pairs(predicting, measuring):
        place, kind = _judge_place(predicted, measured, predicting, measuring)
        places[kind].append(place)
    for place, kind in _compiled(predicting, measuring):
        places[kind].append(place)
    held, wrong, missed = places["held"], places["contradicted"], places["missed"]
    return Prediction(
        predicted="old" if predicting is old else "new",
        firm=_score(held, wrong, firm=True),
        possible=_score(held, wrong, firm=False),
        found=Score(held=len(held), judged=len(held) + len(missed) + sum(map(_is_trouble, wrong))),
        operators=_agreement(predicting, measuring),
        **{kind: tuple(listed) for kind, listed in places.items()},
    )


def _place_pairs(predicting: Report, measuring: Report) -> Iterator[_Pair]:
    """Eager findings of the same op, phase and line, whatever their rule.

    A measured op whose line no witness could tell stands for every line that the prediction has for it.
    """
    told = [[f for f in report.findings if f.rule in _OUTCOMES] for report in (predicting, measuring)]
    bare = {functional_base(f.op or ""): f for f in told[1] if f.site is None}
    used: set[str] = set()
    alone: list[Finding] = []
    one_rule = [[f.model_copy(update={"rule": "NST101"}) for f in side] for side in told]
    rules = {f.id: f.rule for side in told for f in side}
    for one, two in _pairs(*one_rule):
        predicted = None if one is None else one.model_copy(update={"rule": rules[one.id]})
        measured = None if two is None else two.model_copy(update={"rule": rules[two.id]})
        base = functional_base((predicted or measured).op or "")  # type: ignore[union-attr]
        if predicted is not None and measured is None and base in bare:
            used.add(bare[base].id)
            yield predicted, bare[base]
        elif predicted is None and measured is not None and measured.site is None:
            alone.append(measured)
        else:
            yield predicted, measured
    for measured in alone:
        if measured.id not in used:
            yield None, measured


def _judge_place(
    predicted: Finding | None, measured: Finding | None, predicting: Report, measuring: Report
) -> tuple[Place, _Verdict]:
    shown = predicted if measured is None or measured.site is None else measured
    shown = shown or measured
    assert shown is not None
    place = Place(
        id=shown.id, rule=shown.rule, op=shown.op, phase=shown.phase, site=shown.site,
        grounds=predicted.grounds if predicted else None,
        predicted=_OUTCOMES[predicted.rule] if predicted else None,
        measured=_OUTCOMES[measured.rule] if measured else None,
    )  # fmt: skip
    if predicted is not None and measured is not None:
        return place, "held" if place.predicted == place.measured else "contradicted"
    other, name = (measuring, "device") if measured is None else (predicting, "emulated")
    why = _not_told(other, shown, name)
    if why is not None:
        return place.model_copy(update={"why": why}), "not_judged"
    if measured is None:
        return place.model_copy(update={"measured": "device"}), "contradicted"
    return place.model_copy(update={"predicted": "device"}), "missed"


def _not_told(report: Report, finding: Finding, name: str) -> str | None:
    """Why a report without a finding does not say that the op ran on the device; None where it does."""
    if not Coverage.of(report).sees("NST101"):
        return f"the {name} run came to no end, or could not tell where ops ran"
    base = functional_base(finding.op or "")
    states = {row.eager for row in report.operators if functional_base(row.op) == base}
    if not states & {"device", "mixed", "cpu", "failed"}:
        return f"the {name} run did not call the op"
    if not states & {"device", "mixed"}:
        return f"the {name} run has the op at other lines only"
    return None


def _compiled(predicting: Report, measuring: Report) -> Iterator[tuple[Place, _Verdict]]:
    """Predicted refusals of the compiler against what the device's own compiler did, where it was asked.

    A refusal concerns a graph, not an op: where there is one, nobody can tell which of several predictions it proves.
    """
    compiled = [graph.first_ms is not None for graph in measuring.compile.graphs]
    refused = [f for f in measuring.findings if f.rule == "NST203" and _DEVICE_COMPILE in f.witnesses]
    predicted = [f for f in predicting.findings if f.rule in _REFUSALS]
    if not any(compiled) and not refused:
        return
    for finding in predicted:
        place = _place(finding).model_copy(update={"grounds": finding.grounds, "predicted": "refusal"})
        if not refused and all(compiled):
            yield place.model_copy(update={"measured": "compiled"}), "contradicted"
        elif len(predicted) == len(refused) == 1:
            yield place.model_copy(update={"measured": "refusal"}), "held"
        else:
            why = "the device's compiler refused some graphs, which may be for this or for another reason"
            yield place.model_copy(update={"why": why}), "not_judged"
    if not predicted and predicting.compile.status == "ran":
        for finding in refused:
            yield _place(finding).model_copy(update={"predicted": "compiled", "measured": "refusal"}), "missed"


def _place(finding: Finding) -> Place:
    return Place(id=finding.id, rule=finding.rule, op=finding.op, phase=finding.phase, site=finding.site)


def _score(held: Sequence[Place], wrong: Sequence[Place], *, firm: bool) -> Score:
    right = sum(_is_firm(place) == firm for place in held)
    return Score(held=right, judged=right + sum(_is_firm(place) == firm for place in wrong))


def _is_firm(place: Place) -> bool:
    """Whether the prediction denies; fallbacks and ops that do not lower deny by their grounds."""
    by_grounds = place.predicted == "fallback" or place.rule == "NST201"
    return place.grounds in _FIRM or not by_grounds


def _is_trouble(place: Place) -> bool:
    return place.measured in ("fallback", "failure", "refusal")


def _agreement(one: Report, two: Report) -> Score:
    """Over the ops that both called: whether the two say the same of where they ran."""
    states = []
    for report in (one, two):
        by_op: dict[str, set[str]] = defaultdict(set)
        for row in report.operators:
            if row.eager in ("device", "cpu", "mixed", "failed"):
                by_op[functional_base(row.op)].add(row.eager)
        states.append(by_op)
    both = states[0].keys() & states[1].keys()
    return Score(held=sum(states[0][op] == states[1][op] for op in both), judged=len(both))


def _headline(kinds: dict[str, list[Change]], same: int, same_model: bool, prediction: Prediction | None) -> str:
    counts = {kind: len(kinds[kind]) for kind in ("appeared", "worse", "better", "fixed", "not_compared")}
    if not same_model:
        both = same + counts["worse"] + counts["better"]
        return (
            f"different models: {counts['fixed']:,} findings only in the old report, {counts['appeared']:,} only in the"
            f" new one, {both:,} in both"
        )
    words = {"appeared": "new", "worse": "worse", "better": "better", "fixed": "fixed"}
    told = [f"{counts[kind]:,} {word}" for kind, word in words.items() if counts[kind]]
    told.append(f"{same:,} as before")
    if counts["not_compared"]:
        told.append(f"{counts['not_compared']:,} that only one of the two looked for")
    line = ", ".join(told)
    if prediction is None:
        return line
    wrong = len(prediction.contradicted) + len(prediction.missed)
    judged = wrong + len(prediction.held)
    if judged == 0:
        return f"no prediction could be judged; findings: {line}"
    return (
        f"{wrong:,} of {judged:,} places contradict the prediction: {len(prediction.contradicted):,} predicted"
        f" otherwise than measured, {len(prediction.missed):,} measured and not predicted; findings: {line}"
    )
