"""Two reports held against each other, as frozen data: what `smoketest compare` gives, and nothing that renders it."""

from __future__ import annotations

from typing import Literal

from smoketest.findings.report import Finding, Grounds, Model, Phase, Site, Text, Verdict

__all__ = [
    "SCHEMA_VERSION",
    "Change",
    "Comparison",
    "Difference",
    "OperatorChange",
    "Place",
    "Prediction",
    "Score",
    "Side",
]

SCHEMA_VERSION = "1.0"
"""Of what `smoketest compare --format json` prints."""

Outcome = Literal["fallback", "failure", "device", "refusal", "compiled"]


class Side(Model):
    """One of the two reports, in short. ``release`` is the operator profile or the version of torch-neuronx."""

    name: Text
    created: Text
    model: Text | None = None
    device: Literal["emulated", "neuron", "cpu"]
    release: Text | None = None
    status: Literal["pass", "fail", "error"]
    headline: Text


class Difference(Model):
    """Something that is not the same in both: a version, a setting, of the workload, a count. Null: not there."""

    what: Text
    old: Text | None = None
    new: Text | None = None


class Change(Model):
    """One finding in either report, or in both.

    Attributes:
        finding: as in the newer report that has it.
        old_verdict: in the old report; null where it is not there.
        new_verdict: in the new report; null where it is not there.
        how: what changed, a sentence each; empty where nothing did, or where only one report has it.
    """

    finding: Finding
    old_verdict: Verdict | None = None
    new_verdict: Verdict | None = None
    how: tuple[Text, ...] = ()


class OperatorChange(Model):
    """An op that eager or the compiler treats otherwise; null where a report does not have the op."""

    op: Text
    old_eager: Text | None = None
    new_eager: Text | None = None
    old_compile: Text | None = None
    new_compile: Text | None = None


class Place(Model):
    """One prediction, or one measurement that nobody predicted.

    Attributes:
        id: of the finding.
        rule: of the finding.
        op: overload name as recorded.
        phase: forward, backward, optimizer or setup.
        site: the line; null where no witness could tell.
        grounds: what the prediction stood on; null where there was none.
        predicted: ``fallback`` or ``failure`` of an eager op, or ``device`` where it was to run there; ``refusal`` by
            the compiler, or ``compiled``.
        measured: likewise; null where the device run does not tell.
        why: why it could not be judged; null where it was.
    """

    id: Text
    rule: Text
    op: Text | None = None
    phase: Phase | None = None
    site: Site | None = None
    grounds: Grounds | None = None
    predicted: Outcome | None = None
    measured: Outcome | None = None
    why: Text | None = None


class Score(Model):
    """How predictions did: how many held, of how many the device run could judge."""

    held: int
    judged: int


class Prediction(Model):
    """Predictions of fallbacks, failures and refusals of the compiler, against what a device run measured.

    Attributes:
        predicted: which report holds the predictions.
        held: places where both say the same.
        contradicted: predicted and did not happen, or happened otherwise.
        missed: happened and was not predicted, though the emulated device ran the op or the graphs lowered.
        not_judged: what one of the two runs did not reach or could not place.
        firm: score of predictions on firm grounds, which deny.
        possible: score of possible ones, which warn.
        found: of the measured ones that could be judged, how many were predicted.
        operators: of the ops that both runs called, for how many the two agree on where they ran.
    """

    predicted: Literal["old", "new"]
    held: tuple[Place, ...] = ()
    contradicted: tuple[Place, ...] = ()
    missed: tuple[Place, ...] = ()
    not_judged: tuple[Place, ...] = ()
    firm: Score
    possible: Score
    found: Score
    operators: Score


class Comparison(Model):
    """Everything that differs between two reports.

    Attributes:
        same_model: whether both are of one model; only then is a finding of one report new or fixed.
        drift: versions, settings, device: what the results depend on.
        workload: differences of the model, the batch, the optimizer, the training.
        numbers: counts and times of the parts that differ.
        appeared: findings of the new report only.
        worse: in both, and more of it, or denied now.
        better: in both, and less of it, or no longer denied.
        fixed: findings of the old report only.
        same: how many are in both as they were.
        not_compared: findings of one report that the other did not look for, such as those of a part that it skipped.
        operators: ops that eager or the compiler treats otherwise.
        prediction: where one report is a prediction and the other was measured.
    """

    schema_version: Text = SCHEMA_VERSION
    headline: Text
    exit_code: Literal[0, 1]
    old: Side
    new: Side
    same_model: bool
    drift: tuple[Difference, ...] = ()
    workload: tuple[Difference, ...] = ()
    numbers: tuple[Difference, ...] = ()
    appeared: tuple[Change, ...] = ()
    worse: tuple[Change, ...] = ()
    better: tuple[Change, ...] = ()
    fixed: tuple[Change, ...] = ()
    same: int = 0
    not_compared: tuple[Change, ...] = ()
    operators: tuple[OperatorChange, ...] = ()
    prediction: Prediction | None = None
