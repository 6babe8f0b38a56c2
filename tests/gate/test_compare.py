"""What differs between two reports, and which predictions a device run contradicts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gate_reports import TODAY, report, sort

from smoketest.config.models import Gate
from smoketest.findings import Observation, Report, Site
from smoketest.findings.comparison import Comparison
from smoketest.findings.report import (
    CompilePart,
    DeviceInfo,
    EagerPart,
    Environment,
    GraphInfo,
    OperatorRow,
    Step,
    WorkloadInfo,
)
from smoketest.gate import judge_report
from smoketest.gate.compare import compare
from smoketest.render.comparison import LIMIT, render


def judged(*seen: Observation, **given: Any) -> Report:
    return judge_report(report(*seen, **given), Gate(), problem=None, today=TODAY)


def ops(changes: Any) -> list[str | None]:
    return [change.finding.op for change in changes]


def test_a_report_compared_with_itself_is_as_before() -> None:
    found = judged(sort(), sort(rule="NST204"))
    seen = compare(found, found)
    assert seen.headline == "2 as before"
    assert (seen.exit_code, seen.appeared, seen.fixed, seen.worse, seen.drift) == (0, (), (), (), ())


def test_new_fixed_worse_better_and_same_are_told_apart() -> None:
    old = judged(sort(op="aten::a"), sort(op="aten::b"), sort(op="aten::c", calls=9), sort(op="aten::same"))
    new = judged(sort(op="aten::b", calls=6), sort(op="aten::c", calls=3), sort(op="aten::d"), sort(op="aten::same"))
    seen = compare(old, new)
    assert (ops(seen.appeared), ops(seen.fixed)) == (["aten::d"], ["aten::a"])
    assert (ops(seen.worse), ops(seen.better)) == (["aten::b"], ["aten::c"])
    assert seen.worse[0].how == ("4 calls per step then, 6 now: 2 more",)
    assert seen.better[0].how == ("9 calls per step then, 3 now",)
    assert seen.headline == "1 new, 1 worse, 1 better, 1 fixed, 1 as before"
    assert seen.exit_code == 1


def test_only_what_is_denied_makes_the_exit_code_1() -> None:
    assert compare(judged(), judged(sort(rule="NST204"))).exit_code == 0
    assert compare(judged(), judged(sort())).exit_code == 1
    assert compare(judged(sort()), judged()).exit_code == 0


def test_a_verdict_that_changed_is_told() -> None:
    weak, firm = judged(sort(grounds="no_kernel_known")), judged(sort(grounds="measured"))
    assert compare(weak, firm).worse[0].how == ("warn before, deny now",)
    assert compare(firm, weak).better[0].how == ("deny before, warn now",)


def test_what_one_of_the_two_did_not_look_for_is_neither_new_nor_fixed() -> None:
    with_compile = judged(sort(rule="NST201"))
    without = judged(compile=CompilePart(status="skipped"))
    for old, new in ((with_compile, without), (without, with_compile)):
        seen = compare(old, new)
        assert (seen.appeared, seen.fixed, len(seen.not_compared)) == ((), (), 1)
        assert seen.headline == "0 as before, 1 that only one of the two looked for"


def test_reports_of_two_models_have_no_new_and_no_fixed_findings() -> None:
    old = judged(sort(op="aten::a"), workload=WorkloadInfo(model="A"))
    new = judged(sort(op="aten::b"), workload=WorkloadInfo(model="B"))
    seen = compare(old, new)
    assert not seen.same_model
    assert seen.headline == "different models: 1 findings only in the old report, 1 only in the new one, 0 in both"
    assert seen.exit_code == 0
    assert "Only in the new report (1)" in render(seen, "terminal")


def test_drift_of_the_environment_and_of_the_workload_stands_beside_it() -> None:
    old = judged(environment=Environment(torch="2.13.0", settings={"NEURON_CC_FLAGS": "-O1"}))
    new = judged(environment=Environment(torch="2.14.0"), workload=WorkloadInfo(parameters=5, batch={"x": "f32[4, 2]"}))
    seen = compare(old, new)
    assert [(d.what, d.old, d.new) for d in seen.drift] == [
        ("torch", "2.13.0", "2.14.0"),
        ("settings.NEURON_CC_FLAGS", "-O1", None),
    ]
    assert [(d.what, d.old, d.new) for d in seen.workload] == [
        ("parameters", None, "5"),
        ("batch.x", None, "f32[4, 2]"),
    ]


def test_numbers_are_compared_where_both_have_them_and_times_between_devices_only() -> None:
    def timed(kind: Any, ms: float, calls: int) -> Report:
        steps = (Step(index=0, role="timed", forward_ms=ms),)
        return judged(device=DeviceInfo(kind=kind), eager=EagerPart(status="ran", op_calls=calls, steps=steps))

    told = [(d.what, d.old, d.new) for d in compare(timed("neuron", 5, 10), timed("neuron", 9, 1200)).numbers]
    assert told == [("op calls in a step", "10", "1,200"), ("forward, median", "5.0 ms", "9.0 ms")]
    assert compare(timed("emulated", 5, 10), timed("emulated", 9, 10)).numbers == ()


def row(op: str, eager: Any, compiled: Any = "lowers") -> OperatorRow:
    return OperatorRow(op=op, eager=eager, compile=compiled)


def test_ops_that_are_treated_otherwise_are_listed() -> None:
    old = judged(operators=(row("aten::a", "cpu"), row("aten::b", "device"), row("aten::old", "device")))
    new = judged(operators=(row("aten::a", "device", "fails"), row("aten::b", "device"), row("aten::new", "cpu")))
    told = [(r.op, r.old_eager, r.new_eager, r.old_compile, r.new_compile) for r in compare(old, new).operators]
    assert told == [
        ("aten::a", "cpu", "device", "lowers", "fails"),
        ("aten::new", None, "cpu", None, "lowers"),
    ]


def predicted_and_measured() -> tuple[Report, Report]:
    """One prediction each that held, came otherwise, failed instead, was missed, was not reached."""
    predicted = judged(
        sort(op="aten::held", grounds="cannot_lower"),
        sort(op="aten::native", grounds="no_kernel_known"),
        sort(op="aten::fails", grounds="reported"),
        sort(op="aten::far", grounds="cannot_lower"),
        operators=(
            row("aten::held", "cpu"),
            row("aten::native", "cpu"),
            row("aten::fails", "cpu"),
            row("aten::far", "cpu"),
            row("aten::missed", "device"),
            row("aten::both", "device"),
        ),
    )
    measured = judged(
        sort(op="aten::held"),
        sort(op="aten::missed", line=9),
        sort(op="aten::fails", rule="NST104"),
        device=DeviceInfo(kind="neuron"),
        operators=(
            row("aten::held", "cpu"),
            row("aten::native", "device"),
            row("aten::fails", "failed"),
            row("aten::missed", "cpu"),
            row("aten::both", "device"),
        ),
    )
    return predicted, measured


@pytest.mark.parametrize("turned", [False, True])
def test_predictions_that_a_device_run_contradicts_are_named_both_ways_with_a_score(turned: bool) -> None:
    pair = predicted_and_measured()
    seen = compare(*(pair[::-1] if turned else pair))
    told = seen.prediction
    assert told is not None
    assert told.predicted == ("new" if turned else "old")
    assert [place.op for place in told.held] == ["aten::held"]
    assert sorted((place.op, place.predicted, place.measured) for place in told.contradicted) == [
        ("aten::fails", "fallback", "failure"),
        ("aten::native", "fallback", "device"),
    ]
    assert [(place.op, place.predicted, place.measured) for place in told.missed] == [
        ("aten::missed", "device", "fallback")
    ]
    assert [(place.op, place.why) for place in told.not_judged] == [("aten::far", "the device run did not call the op")]
    assert (told.firm.held, told.firm.judged) == (1, 2)
    assert (told.possible.held, told.possible.judged) == (0, 1)
    assert (told.found.held, told.found.judged) == (1, 3)
    assert (told.operators.held, told.operators.judged) == (2, 5)
    assert seen.headline.startswith(
        "3 of 4 places contradict the prediction: 2 predicted otherwise than measured, 1 measured and not predicted"
    )


def compiled(*first_ms: float | None) -> CompilePart:
    graphs = tuple(
        GraphInfo(id=str(i), direction="forward", nodes=9, status="lowered", first_ms=ms)
        for i, ms in enumerate(first_ms)
    )
    return CompilePart(status="ran", graphs=graphs)


def test_a_compiler_that_takes_what_was_not_to_lower_contradicts_and_one_that_refuses_more_was_missed() -> None:
    lowering = sort(rule="NST201", op="aten::sort", grounds="cannot_lower")
    refusal = sort(rule="NST203", op=None, grounds="measured", witnesses=frozenset({"device_compile"}))

    def told(predicted: Report, measured: Report) -> Any:
        return compare(predicted, measured.model_copy(update={"device": DeviceInfo(kind="neuron")})).prediction

    took_it = told(judged(lowering), judged(lowering, compile=compiled(5.0, 9.0)))
    assert [(place.op, place.predicted, place.measured) for place in took_it.contradicted] == [
        ("aten::sort", "refusal", "compiled")
    ]
    missed = told(judged(compile=compiled(None)), judged(refusal, compile=compiled(None, 9.0))).missed
    assert [(place.rule, place.predicted, place.measured) for place in missed] == [("NST203", "compiled", "refusal")]
    both = told(judged(lowering), judged(lowering, refusal, compile=compiled(None, 9.0)))
    assert len(both.held) == 1
    not_asked = told(judged(lowering), judged(lowering, compile=compiled(None, None)))
    assert (not_asked.held, not_asked.contradicted, not_asked.not_judged) == ((), (), ())


def test_two_predictions_have_no_score_and_two_models_neither() -> None:
    predicted, measured = predicted_and_measured()
    assert compare(predicted, predicted).prediction is None
    other = measured.model_copy(update={"workload": WorkloadInfo(model="B")})
    assert compare(predicted.model_copy(update={"workload": WorkloadInfo(model="A")}), other).prediction is None


def test_a_measured_op_without_a_line_stands_for_every_line_it_was_predicted_at() -> None:
    predicted = judged(sort(line=3), sort(line=9, site=Site(file="b.py", line=9, code="y")))
    measured = judged(sort(site=None, phase=None), device=DeviceInfo(kind="neuron"))
    told = compare(predicted, measured).prediction
    assert told is not None
    assert (len(told.held), told.contradicted, told.missed) == (2, (), ())


def test_a_run_that_cannot_tell_where_ops_ran_contradicts_nothing() -> None:
    predicted, measured = predicted_and_measured()
    broken = judged(device=DeviceInfo(kind="neuron"), eager=EagerPart(status="crashed"), operators=measured.operators)
    told = compare(predicted, broken).prediction
    assert told is not None
    assert (told.held, told.contradicted, told.missed) == ((), (), ())
    assert {place.why for place in told.not_judged} == {
        "the device run came to no end, or could not tell where ops ran"
    }


def test_the_terminal_tells_what_matters() -> None:
    text = render(compare(*predicted_and_measured()), "terminal", width=200)
    assert "Contradicted: predicted, and the device did otherwise (2)" in text
    assert (
        "aten::native in forward, model/router.py:3: predicted a fallback"
        " (no kernel in the profile; a newer release may have one), ran on the device" in text
    )
    assert "aten::missed in forward, model/router.py:9: predicted to run on the device, fell back to the CPU" in text
    assert "Measured trouble that was predicted: 1 of 3 (33 %)." in text
    assert "device: emulated → neuron" in text


def test_json_is_read_back_as_it_was() -> None:
    seen = compare(*predicted_and_measured())
    assert Comparison.model_validate(json.loads(render(seen, "json"))) == seen


EVIL = "x | y\n# z `a` <b> @c \x1b[31m [d](e) \u202e"


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_no_text_of_a_report_becomes_markup_or_a_control_code(form: Any) -> None:
    site = Site(file=EVIL, line=1, code=EVIL)
    old = judged(sort(op=EVIL, site=site), environment=Environment(torch=EVIL), operators=(row(EVIL, "cpu"),))
    new = judged(environment=Environment(settings={EVIL: EVIL}), workload=WorkloadInfo(optimizer=EVIL))
    text = render(compare(old.model_copy(update={"name": EVIL, "headline": EVIL}), new), form)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not any(line.startswith("# z") for line in text.splitlines())
    if form == "markdown":
        assert "<b>" not in text
        tables = [line for line in text.splitlines() if line.startswith("|")]
        assert {line.count(" | ") for line in tables if not line.startswith("| ---")} <= {2, 4, 7}


def test_markdown_has_whole_rows_within_its_limit_and_counts_what_is_left_out() -> None:
    many = [sort(op=f"aten::op{i}|x", site=Site(file=f"{'d' * 90}/f{i}.py", line=i, code="x")) for i in range(900)]
    text = render(compare(judged(), judged(*many)), "markdown")
    assert len(text) <= LIMIT
    assert "## New (900)" in text
    rows = [line for line in text.splitlines() if line.startswith("| NST101")]
    assert all(line.count(" | ") == 7 and line.endswith(" |") for line in rows)
    assert f"{900 - len(rows):,} more are left out for their length" in text
