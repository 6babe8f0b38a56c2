from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from smoketest.config.models import Allow, Gate
from smoketest.findings import RULES, Finding, ModuleCalls, NotChecked, Report, Site
from smoketest.findings.report import (
    CompilePart,
    DeviceInfo,
    EagerPart,
    Environment,
    GraphInfo,
    ParityPart,
    WorkloadInfo,
)
from smoketest.gate import Judgement, judge, judge_report
from smoketest.gate.policy import unused_allowances

TODAY = dt.date(2026, 12, 1)


def finding(rule: str = "NST101", **given: Any) -> Finding:
    defaults: dict[str, Any] = {
        "op": "aten::sort.values_stable",
        "called_as": "aten::sort",
        "grounds": "measured",
        "phase": "forward",
        "site": Site(file="model/router.py", line=3, code="x.sort()"),
        "modules": (ModuleCalls(pattern="h.*.router", calls=4),),
        "calls_per_step": 4,
        "exact": True,
        "bytes_per_step": 1000,
        "message": "Ran on the CPU.",
    }
    return Finding(id="0" * 12, rule=rule, class_=RULES[rule].class_, **(defaults | given))


def decide(*findings: Finding, gate: Gate | None = None, **given: Any) -> Judgement:
    defaults: dict[str, Any] = {"eager_status": "ran", "compile_status": "ran", "problem": None, "op_calls": 1234}
    return judge(findings, gate or Gate(), today=TODAY, **(defaults | given))


def verdict(found: Finding, gate: Gate | None = None) -> str | None:
    return decide(found, gate=gate).findings[0].verdict


@pytest.mark.parametrize(
    ("grounds", "expected"),
    [("measured", "deny"), ("reported", "deny"), ("cannot_lower", "deny"), ("no_kernel_known", "warn"), (None, "warn")],
)
@pytest.mark.parametrize("rule", ["NST101", "NST201"])
def test_a_fallback_and_a_lowering_failure_deny_on_firm_grounds_only(
    rule: str, grounds: str | None, expected: str
) -> None:
    assert verdict(finding(rule, grounds=grounds)) == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("NST104", "deny"), ("NST202", "deny"), ("NST206", "deny"), ("NST204", "warn"), ("NST205", "warn")],
)
def test_other_rules_have_one_default_whatever_the_grounds(rule: str, expected: str) -> None:
    assert verdict(finding(rule, grounds=None)) == expected


def test_the_gate_overrides_a_whole_class() -> None:
    assert verdict(finding(grounds="no_kernel_known"), Gate(fallback="deny")) == "deny"
    assert verdict(finding(grounds="measured"), Gate(fallback="warn")) == "warn"
    assert verdict(finding(grounds="measured"), Gate(fallback="allow")) == "allow"
    assert verdict(finding("NST202"), Gate(lowering="warn")) == "warn"
    assert verdict(finding("NST204"), Gate(graph_break="deny")) == "deny"


def test_a_fallback_at_setup_only_never_denies_but_an_op_that_raises_there_does() -> None:
    assert verdict(finding("NST104", phase="setup")) == "deny"
    assert verdict(finding("NST107", phase="setup")) == "deny"
    assert verdict(finding(phase="setup")) == "warn"
    assert verdict(finding(phase="setup"), Gate(fallback="deny")) == "warn"
    assert verdict(finding(phase="setup"), Gate(fallback="allow")) == "allow"


def allowing(**given: Any) -> Gate:
    return Gate(allow=[Allow(reason="64 elements, once per step", **given)])


@pytest.mark.parametrize(
    "pattern",
    [
        {"op": "aten::sort*"},
        {"op": "aten::sort"},
        {"op": "aten::sort.values_stable"},
        {"site": "model/router.py"},
        {"site": "model/*"},
        {"module": "h.*"},
        {"module": "h.*.router"},
        {"rule": "NST101"},
        {"phase": "forward"},
        {"op": "aten::sort*", "site": "*/router.py", "rule": "NST101", "phase": "forward", "module": "*"},
    ],
)
def test_an_allowance_fits_when_everything_it_gives_fits(pattern: dict[str, Any]) -> None:
    assert verdict(finding(), allowing(**pattern)) == "allow"


@pytest.mark.parametrize(
    "pattern",
    [
        {"op": "sort"},
        {"op": "aten::topk*"},
        {"site": "router.py"},
        {"site": "model/router.py", "op": "aten::topk"},
        {"module": "head"},
        {"rule": "NST104"},
        {"rule": "NST1*"},
        {"phase": "backward"},
        {},
    ],
)
def test_an_allowance_does_not_fit_when_one_thing_does_not(pattern: dict[str, Any]) -> None:
    assert verdict(finding(), allowing(**pattern)) == "deny"


def test_patterns_are_case_sensitive_on_every_platform() -> None:
    assert verdict(finding(), allowing(op="aten::SORT*")) == "deny"


def test_allowing_one_module_does_not_allow_the_calls_of_another() -> None:
    both = finding(modules=(ModuleCalls(pattern="h.*.router", calls=4), ModuleCalls(pattern="head", calls=1)))
    assert verdict(both, allowing(module="h.*")) == "deny"
    assert verdict(finding(modules=()), allowing(module="*")) == "deny"
    assert verdict(finding(site=None), allowing(site="*")) == "deny"


def test_an_allowed_finding_says_why_and_until_when() -> None:
    gate = allowing(op="aten::sort", ticket="MIG-12", expires=dt.date(2027, 3, 31))
    result = decide(finding(), gate=gate)
    assert result.findings[0].message == (
        "Ran on the CPU. Allowed: 64 elements, once per step (MIG-12, until 2027-03-31)."
    )
    assert (result.exit_code, result.status) == (0, "pass")
    assert result.headline == "clean: 1,234 op calls, no denied finding, no warnings, 1 allowed"


def test_an_allowance_counts_on_its_last_day_and_no_longer() -> None:
    assert verdict(finding(), allowing(op="aten::sort", expires=TODAY)) == "allow"
    result = decide(finding(), gate=allowing(op="aten::sort", expires=TODAY - dt.timedelta(days=1)))
    assert result.findings[0].verdict == "deny"
    assert result.findings[0].message == "Ran on the CPU. The allowance for it expired on 2026-11-30."
    assert result.headline == "1 fallback denies, no warnings, 1 allowance expired (aten::sort on 2026-11-30)"


def test_many_expired_allowances_do_not_flood_the_headline() -> None:
    gone = [Allow(rule=f"NST10{i}", reason="r", expires=dt.date(2026, 1, 1)) for i in range(1, 6)]
    assert decide(gate=Gate(allow=gone)).headline.endswith(
        "5 allowances expired (NST101 on 2026-01-01, NST102 on 2026-01-01, NST103 on 2026-01-01 and 2 more)"
    )


@pytest.mark.parametrize(
    ("limits", "given", "message"),
    [
        (
            {"max_calls_per_step": 3},
            {},
            "Allowed up to 3 calls per step, but there are 4: 1 too many.",
        ),
        (
            {"max_calls_per_step": 3},
            {"exact": False},
            "Allowed up to 3 calls per step, but there are at least 4: 1 too many.",
        ),
        (
            {"max_calls_per_step": 9},
            {"exact": False},
            "Allowed up to 9 calls per step, but there are at least 4 and maybe more.",
        ),
        (
            {"max_bytes_per_step": 100},
            {"bytes_per_step": 1100},
            "Allowed up to 100 bytes per step, but there are 1,100: 1,000 too many.",
        ),
        (
            {"max_bytes_per_step": 100},
            {"bytes_per_step": None},
            "Allowed up to 100 bytes per step, but how many there are is not known.",
        ),
    ],
)
def test_an_allowance_ends_at_its_limit_and_the_message_says_by_how_much(
    limits: dict[str, int], given: dict[str, Any], message: str
) -> None:
    (judged,) = decide(finding(**given), gate=allowing(op="aten::sort", **limits)).findings
    assert judged.verdict == "deny"
    assert judged.message == f"Ran on the CPU. {message}"


def test_within_its_limits_an_allowance_counts() -> None:
    assert verdict(finding(), allowing(op="aten::sort", max_calls_per_step=4, max_bytes_per_step=1000)) == "allow"


def test_a_second_allowance_can_cover_what_the_first_does_not() -> None:
    gate = Gate(allow=[Allow(op="*", reason="few", max_calls_per_step=1), Allow(op="aten::sort", reason="sorting")])
    (judged,) = decide(finding(), gate=gate).findings
    assert (judged.verdict, judged.message) == ("allow", "Ran on the CPU. Allowed: sorting.")


def test_the_headline_counts_by_class_and_always_counts_warnings() -> None:
    weak = finding(grounds="no_kernel_known")
    assert decide(finding(), finding(), finding(), weak, weak).headline == "3 fallbacks deny, 2 warnings"
    assert decide(finding()).headline == "1 fallback denies, no warnings"
    mixed = decide(finding(), finding("NST201"), finding("NST206"), finding("NST204"))
    assert mixed.headline == "1 fallback, 1 lowering failure and 1 dynamic shape deny, 1 warning"
    assert (mixed.status, mixed.exit_code) == ("fail", 1)


def test_clean_means_no_denied_finding_and_counts_what_was_looked_at() -> None:
    result = decide(finding(grounds="no_kernel_known"), finding(grounds="no_kernel_known"))
    assert result.headline == "0 denied, 2 warnings; 1,234 op calls"
    assert (result.status, result.exit_code) == ("pass", 0)


@pytest.mark.parametrize(
    ("given", "headline"),
    [
        (
            {"eager_status": "skipped", "compile_status": "skipped"},
            "not clean: the eager part was skipped, no warnings",
        ),
        ({"eager_status": "failed"}, "not clean: the eager part failed, no warnings"),
        ({"eager_status": "timed_out"}, "not clean: the eager part timed out, no warnings"),
        ({"compile_status": "crashed"}, "not clean: the compile probe crashed, no warnings"),
        ({"unknown": ["no op tracker"]}, "unknown: fallbacks were not checked (no op tracker), no warnings"),
        (
            {"problem": "crashed with SIGKILL in step 2 (timed), backward"},
            "crashed with SIGKILL in step 2 (timed), backward",
        ),
    ],
)
def test_what_was_not_looked_at_is_never_called_clean_and_never_passes(given: dict[str, Any], headline: str) -> None:
    result = decide(**given)
    assert result.headline == headline
    assert (result.status, result.exit_code) == ("error", 1)


@pytest.mark.parametrize(
    ("given", "headline"),
    [
        (
            {"compile_status": "skipped"},
            "clean in eager mode: 1,234 op calls, no denied finding, no warnings; not compiled",
        ),
        (
            {"gaps": ["Dynamo skipped 1 frame, not probed"]},
            "clean in eager mode: 1,234 op calls, no denied finding, no warnings; Dynamo skipped 1 frame, not probed",
        ),
        (
            {"eager_status": "skipped"},
            "compile probe alone: no denied finding, no warnings; not run eagerly",
        ),
        (
            {"can_fall_back": False, "compile_status": "skipped", "unknown": ["plain CPU"]},
            "1,234 op calls, no denied finding, no warnings; plain CPU, so fallbacks were not checked; not compiled",
        ),
    ],
)
def test_a_gap_that_was_asked_for_passes_and_is_named(given: dict[str, Any], headline: str) -> None:
    result = decide(**given)
    assert result.headline == headline
    assert (result.status, result.exit_code) == ("pass", 0)


def test_denials_stand_beside_what_ended_early() -> None:
    assert decide(finding(), eager_status="failed").headline == (
        "1 fallback denies, no warnings; the eager part failed, so there may be more"
    )
    assert decide(finding(), gaps=["no graph was captured for the compiler"]).headline == (
        "1 fallback denies, no warnings; no graph was captured for the compiler, so there may be more"
    )
    assert decide(finding(), gaps=["no graph was captured"], compile_status="skipped").headline == (
        "1 fallback denies, no warnings"
    )
    assert decide(finding(), problem="timed out after 9 s").headline == (
        "timed out after 9 s; seen until then: 1 fallback denies, no warnings"
    )
    assert decide(finding("NST204"), problem="timed out after 9 s").headline == (
        "timed out after 9 s; seen until then: no denied finding, 1 warning"
    )


def report(**given: Any) -> Report:
    graph = GraphInfo(id="0", direction="forward", nodes=3, status="lowered")
    defaults: dict[str, Any] = {
        "device": DeviceInfo(kind="neuron"),
        "eager": EagerPart(status="ran", op_calls=10),
        "compile": CompilePart(status="ran", graphs=(graph,)),
    }
    return Report(
        name="a",
        created="2026-12-01T00:00:00Z",
        status="error",
        exit_code=5,
        headline="",
        environment=Environment(),
        workload=WorkloadInfo(),
        parity=ParityPart(status="skipped"),
        **(defaults | given),
    )


@pytest.mark.parametrize(
    ("given", "headline"),
    [
        ({}, "clean: 10 op calls, no denied finding, no warnings"),
        (
            {"compile": CompilePart(status="ran")},
            "clean in eager mode: 10 op calls, no denied finding, no warnings; no graph was captured for the compiler",
        ),
        (
            {"not_checked": (NotChecked(what="compiling the rest of the steps", why="in step 1 of 3 it raised"),)},
            "clean in eager mode: 10 op calls, no denied finding, no warnings; "
            "the compile probe stopped in step 1 of 3",
        ),
        (
            {"not_checked": (NotChecked(what="fallbacks the device does not warn about", why="no op tracker"),)},
            "unknown: fallbacks were not checked (no op tracker), no warnings",
        ),
        (
            {"not_checked": (NotChecked(what="parity", why="not part of this version"),)},
            "clean: 10 op calls, no denied finding, no warnings",
        ),
        (
            {"device": DeviceInfo(kind="cpu"), "not_checked": (NotChecked(what="fallbacks", why="plain CPU"),)},
            "10 op calls, no denied finding, no warnings; plain CPU, so fallbacks were not checked",
        ),
    ],
)
def test_a_report_is_judged_by_what_it_holds(given: dict[str, Any], headline: str) -> None:
    judged = judge_report(report(**given), Gate(), problem=None, today=TODAY)
    assert judged.headline == headline


def test_a_judged_report_keeps_everything_but_the_verdict() -> None:
    before = report(findings=(finding(),))
    after = judge_report(before, Gate(), problem=None, today=TODAY)
    assert (after.status, after.exit_code, after.findings[0].verdict) == ("fail", 1, "deny")
    assert (
        after.model_copy(
            update={name: getattr(before, name) for name in ("status", "exit_code", "headline", "findings")}
        )
        == before
    )


def entry(**given: Any) -> Allow:
    return Allow(reason="r", **given)


def test_an_allowance_that_matches_nothing_is_told_in_its_own_words() -> None:
    gate = Gate(allow=[entry(op="aten::srot*", site="model/*.py"), entry(op="aten::sort*")])
    assert decide(finding(), gate=gate).headline == (
        "clean: 1,234 op calls, no denied finding, no warnings, 1 allowed, "
        "1 allowance matched nothing (op=aten::srot*, site=model/*.py)"
    )
    assert unused_allowances(gate, [finding()]) == [gate.allow[0]]


def test_an_allowance_that_matches_beyond_its_limit_is_not_unused() -> None:
    gate = Gate(allow=[entry(op="aten::sort*", max_calls_per_step=1)])
    assert "matched nothing" not in decide(finding(), gate=gate).headline


def test_many_unused_allowances_do_not_flood_the_headline() -> None:
    gate = Gate(allow=[entry(rule=f"NST10{number}") for number in range(1, 6)])
    assert decide(gate=gate).headline.endswith(
        "5 allowances matched nothing (rule=NST101; rule=NST102; rule=NST103; and 2 more)"
    )


def test_an_allowance_for_a_part_that_did_not_run_is_not_called_unused() -> None:
    gate = Gate(allow=[entry(op="aten::a"), entry(rule="NST201", op="aten::b"), entry(rule="NST101", op="c")])
    headline = decide(gate=gate, compile_status="skipped").headline
    assert "1 allowance matched nothing (op=c, rule=NST101)" in headline
    assert "aten::a" not in headline
    assert "aten::b" not in headline
    for given in ({"problem": "it crashed"}, {"can_fall_back": False}, {"eager_status": "failed"}):
        told = decide(gate=gate, **{"compile_status": "skipped", **given})
        assert "matched nothing" not in told.headline


def test_an_expired_allowance_is_told_once() -> None:
    gate = Gate(allow=[entry(op="aten::a", expires=dt.date(2026, 1, 1))])
    assert "1 allowance expired" in decide(gate=gate).headline
    assert "matched nothing" not in decide(gate=gate).headline
