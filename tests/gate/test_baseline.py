"""What a baseline accepts, what it does not, and that mending something never fails a gate."""

from __future__ import annotations

import ast
import datetime as dt
import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from gate_reports import TODAY, report, sort
from hypothesis import given, settings
from hypothesis import strategies as st

import smoketest.gate
from smoketest.config.models import Allow, Gate
from smoketest.errors import ConfigError
from smoketest.findings import NotChecked, Observation, Report, Site
from smoketest.findings.report import CompilePart, DeviceInfo, EagerPart, ParityPart
from smoketest.gate import judge_report, new_baseline
from smoketest.gate.baseline import Baseline, parse, render


def judged(
    found: Report, baseline: Baseline, gate: Gate | None = None, *, strict: bool = False, today: dt.date = TODAY
) -> Report:
    return judge_report(
        found, gate or Gate(), problem=None, today=today, baseline=baseline, baseline_file="b.json", strict=strict
    )


def accepted(found: Report, gate: Gate | None = None, before: Baseline | None = None) -> Baseline:
    return new_baseline(found, gate or Gate(), TODAY, before)


def statuses(found: Report) -> list[tuple[str | None, str | None]]:
    return [(finding.status, finding.verdict) for finding in found.findings]


def test_a_known_finding_is_accepted_and_says_so() -> None:
    seen = judged(report(sort()), accepted(report(sort())))
    assert statuses(seen) == [("known", "allow")]
    assert seen.findings[0].message == "Ran on the CPU. Known: it is in the baseline."
    assert (seen.status, seen.exit_code) == ("pass", 0)
    assert "no denied finding, no warnings, against the baseline: 1 known" in seen.headline
    assert seen.baseline.file == "b.json"


def test_a_new_finding_denies_and_a_known_one_beside_it_does_not() -> None:
    seen = judged(report(sort(), sort(op="aten::topk")), accepted(report(sort())))
    assert {finding.op: (finding.status, finding.verdict) for finding in seen.findings} == {
        "aten::sort.values_stable": ("known", "allow"),
        "aten::topk": ("new", "deny"),
    }
    assert seen.headline.startswith("1 fallback denies, no warnings, against the baseline: 1 new, 1 known")
    assert seen.exit_code == 1


def test_a_warning_stays_a_warning_known_or_new() -> None:
    seen = judged(report(sort(rule="NST204"), sort(rule="NST205")), accepted(report(sort(rule="NST204"))))
    assert statuses(seen) == [("known", "warn"), ("new", "warn")]
    assert seen.exit_code == 0


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ({"calls": 6}, "4 calls per step then, 6 now: 2 more."),
        ({"calls": 6, "exact": False}, "4 calls per step then, at least 6 now: at least 2 more."),
        ({"bytes": 1500}, "1,000 bytes per step then, 1,500 now: 500 more."),
        (
            {"calls": 6, "bytes": 1500},
            "4 calls per step then, 6 now: 2 more; 1,000 bytes per step then, 1,500 now: 500 more.",
        ),
    ],
)
def test_a_known_finding_that_got_worse_denies_and_says_by_how_much(now: dict[str, Any], message: str) -> None:
    seen = judged(report(sort(**now)), accepted(report(sort())))
    assert statuses(seen) == [("worse", "deny")]
    assert seen.findings[0].message == f"Ran on the CPU. Worse than in the baseline: {message}"
    assert "against the baseline: 1 worse" in seen.headline


def test_fewer_calls_are_not_worse_and_a_number_nobody_knows_tells_nothing() -> None:
    for now in ({"calls": 3}, {"calls": None}, {"bytes": None}, {"bytes": 10}):
        assert statuses(judged(report(sort(**now)), accepted(report(sort())))) == [("known", "allow")]
    for before in ({"calls": None}, {"bytes": None}, {"exact": False, "calls": 1, "bytes": 1}):
        assert statuses(judged(report(sort()), accepted(report(sort(**before))))) == [("known", "allow")]


@pytest.mark.parametrize(("now", "status"), [(10.0, "known"), (12.5, "known"), (12.6, "worse"), (5.0, "known")])
def test_milliseconds_of_a_device_are_worse_only_beyond_the_noise(now: float, status: str) -> None:
    def timed(ms: float) -> Report:
        found = report(sort(), device=DeviceInfo(kind="neuron"))
        return found.model_copy(
            update={"findings": tuple(f.model_copy(update={"ms_per_step": ms}) for f in found.findings)}
        )

    (finding,) = judged(timed(now), accepted(timed(10.0))).findings
    assert finding.status == status
    if status == "worse":
        assert finding.message.endswith("10.00 ms per step then, 12.60 now: 2.60 more.")


def test_a_warning_that_is_denied_now_is_worse() -> None:
    seen = judged(report(sort(grounds="measured")), accepted(report(sort(grounds="no_kernel_known"))))
    assert statuses(seen) == [("worse", "deny")]
    assert "it was a warning and is denied now" in seen.findings[0].message


def test_fixed_findings_are_told_and_only_a_strict_gate_fails_for_them() -> None:
    baseline = accepted(report(sort(), sort(op="aten::topk")))
    gone = next(entry.id for entry in baseline.findings if entry.op == "aten::topk")
    loose, strict = judged(report(sort()), baseline), judged(report(sort()), baseline, strict=True)
    assert loose.baseline.fixed == strict.baseline.fixed == (gone,)
    assert (loose.status, loose.exit_code) == ("pass", 0)
    assert "against the baseline: 1 known, 1 fixed" in loose.headline
    assert (strict.status, strict.exit_code) == ("fail", 1)
    assert strict.headline.startswith("1 entry of the baseline must go, nothing needs it any more; else clean")


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        ("NST201", {"compile": CompilePart(status="skipped")}),
        ("NST204", {"compile": CompilePart(status="timed_out")}),
        ("NST201", {"compile": CompilePart(status="ran")}),
        ("NST101", {"eager": EagerPart(status="crashed")}),
        ("NST101", {"device": DeviceInfo(kind="cpu")}),
        ("NST101", {"not_checked": (NotChecked(what="fallbacks", why="no op tracker"),)}),
        ("NST106", {"parity": ParityPart(status="skipped")}),
    ],
)
def test_what_was_not_looked_at_is_not_fixed_and_stays_in_a_new_baseline(rule: str, given: dict[str, Any]) -> None:
    baseline = accepted(report(sort(rule=rule)))
    now = report(**given)
    assert judged(now, baseline, strict=True).baseline.fixed == ()
    assert accepted(now, before=baseline).findings == baseline.findings
    assert accepted(report(), before=baseline).findings == ()


def test_what_the_policy_allows_is_not_in_the_baseline_so_that_its_expiry_counts() -> None:
    gate = Gate(allow=[Allow(op="aten::sort*", reason="r", expires=TODAY)])
    baseline = accepted(report(sort()), gate)
    assert baseline.findings == ()
    assert statuses(judged(report(sort()), baseline, gate)) == [(None, "allow")]
    later = judged(report(sort()), baseline, gate, today=TODAY + dt.timedelta(days=1))
    assert statuses(later) == [("new", "deny")]


def test_another_device_is_named_beside_the_comparison() -> None:
    baseline = accepted(report(sort()))
    assert judged(report(sort()), baseline).baseline.note is None
    note = judged(report(sort(), device=DeviceInfo(kind="neuron")), baseline).baseline.note
    assert note is not None
    assert note.startswith("the baseline was made on the emulated device and this is a run on the neuron one")


def test_the_first_of_two_equal_lines_can_be_mended_though_it_renames_the_second() -> None:
    both = report(sort(line=3, calls=2), sort(line=9, calls=48))
    one = report(sort(line=7, calls=48))
    assert one.findings[0].id == both.findings[0].id
    seen = judged(one, accepted(both))
    assert statuses(seen) == [("known", "allow")]
    assert seen.baseline.fixed == (both.findings[1].id,)


def test_a_third_equal_line_is_new() -> None:
    seen = judged(report(sort(3), sort(9), sort(12)), accepted(report(sort(3), sort(9))))
    assert sorted(str(status) for status, _ in statuses(seen)) == ["known", "known", "new"]


observations = st.builds(
    sort,
    line=st.integers(1, 4),
    calls=st.none() | st.integers(0, 50),
    rule=st.sampled_from(["NST101", "NST102", "NST104", "NST106", "NST201", "NST204", "NST207"]),
    op=st.sampled_from(["aten::sort", "aten::sort.values_stable", "aten::topk", None]),
    phase=st.sampled_from(["forward", "backward", "setup", None]),
    site=st.none()
    | st.builds(
        Site,
        file=st.sampled_from(["a.py", "b.py"]),
        line=st.integers(1, 4),
        code=st.sampled_from(["x.sort()", "y.topk()"]),
    ),
    module=st.sampled_from(["h.0", "h.1", "head", None]),
    bytes=st.none() | st.integers(0, 5000),
    exact=st.sampled_from([True, False, None]),
    grounds=st.sampled_from(["measured", "cannot_lower", "no_kernel_known", None]),
)
dates = st.dates(dt.date(2026, 11, 1), dt.date(2027, 1, 1))
allowances = st.builds(
    Allow,
    op=st.none() | st.sampled_from(["aten::sort*", "*"]),
    rule=st.none() | st.sampled_from(["NST101", "NST201"]),
    module=st.none() | st.sampled_from(["h.*", "*"]),
    reason=st.just("r"),
    max_calls_per_step=st.none() | st.integers(0, 30),
    max_bytes_per_step=st.none() | st.integers(0, 3000),
    expires=st.none() | dates,
)
verdicts = st.none() | st.sampled_from(["deny", "warn", "allow"])
gates = st.builds(
    Gate, fallback=verdicts, lowering=verdicts, graph_break=verdicts, allow=st.lists(allowances, max_size=3)
)
reports = st.lists(observations, max_size=12)


@given(reports, gates, dates)
def test_every_report_is_clean_under_its_own_baseline_strict_or_not(
    seen: list[Observation], gate: Gate, today: dt.date
) -> None:
    found = report(*seen)
    baseline = new_baseline(found, gate, today)
    result = judged(found, baseline, gate, strict=True, today=today)
    assert [finding for finding in result.findings if finding.verdict == "deny"] == []
    assert (result.status, result.exit_code, result.baseline.fixed) == ("pass", 0, ())
    assert {finding.status for finding in result.findings} <= {"known", None}


@given(reports, gates, st.data())
@settings(max_examples=200)
def test_mending_findings_never_fails_a_gate_that_is_not_strict(
    seen: list[Observation], gate: Gate, data: st.DataObject
) -> None:
    def key(each: Observation) -> tuple[Any, ...]:
        return (each.rule, each.phase, each.op, (each.site.file, each.site.line) if each.site else None)

    baseline = accepted(report(*seen), gate)
    mended = data.draw(st.sets(st.sampled_from(sorted({key(each) for each in seen}, key=repr)))) if seen else set()
    after = report(*(each for each in seen if key(each) not in mended))
    result = judged(after, baseline, gate)
    assert [finding for finding in result.findings if finding.verdict == "deny"] == []
    assert result.exit_code == 0
    assert len(result.baseline.fixed) == len(baseline.findings) - len(accepted(after, gate).findings)


@given(expires=st.dates(), today=st.dates())
def test_expiry_is_judged_on_the_given_date_only(expires: dt.date, today: dt.date) -> None:
    gate = Gate(allow=[Allow(op="aten::sort*", reason="r", expires=expires)])
    (finding,) = judge_report(report(sort()), gate, problem=None, today=today).findings
    assert finding.verdict == ("allow" if today <= expires else "deny")


def test_nothing_in_the_gate_reads_a_clock() -> None:
    for path in Path(smoketest.gate.__file__).parent.glob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        called = {each.attr for each in calls if isinstance(each, ast.Attribute)}
        assert not called & {"today", "now", "utcnow", "time", "monotonic"}, path.name


@given(reports)
def test_a_baseline_is_read_back_as_it_was_written_whatever_the_order_of_findings(seen: list[Observation]) -> None:
    found = report(*seen)
    text = render(accepted(found))
    assert parse(text, name="b.json") == accepted(found)
    turned = found.model_copy(update={"findings": found.findings[::-1]})
    assert render(accepted(turned)) == text
    assert json.loads(text)["check"] == "gpt2"


def test_a_baseline_has_one_line_for_each_finding_and_only_what_the_gate_needs() -> None:
    assert render(accepted(report(sort(), sort(rule="NST204", op=None, calls=None, bytes=None, grounds=None)))) == (
        "{\n"
        '  "schema_version": "1.0",\n'
        '  "check": "gpt2",\n'
        '  "device": "emulated",\n'
        '  "findings": [\n'
        '    {"id": "a5e0ce83e1cb", "rule": "NST101", "op": "aten::sort.values_stable", "phase": "forward",'
        ' "file": "model/router.py", "code": "x.sort()", "verdict": "deny", "calls_per_step": 4,'
        ' "bytes_per_step": 1000},\n'
        '    {"id": "04d5937a2f82", "rule": "NST204", "phase": "forward", "file": "model/router.py",'
        ' "code": "x.sort()", "verdict": "warn"}\n'
        "  ]\n"
        "}\n"
    )
    assert render(accepted(report())).endswith('  "findings": []\n}\n')


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_two_branches_that_accept_different_findings_merge_without_a_conflict(tmp_path: Path) -> None:
    def write(name: str, ops: Iterable[str]) -> str:
        path = tmp_path / name
        path.write_text(render(accepted(report(*(sort(op=f"aten::{op}") for op in ops)))))
        return str(path)

    files = (write("ours", "acmz"), write("base", "amz"), write("theirs", "ampz"))
    done = subprocess.run(["git", "merge-file", "-p", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    merged = parse(done.stdout, name="merged")
    assert sorted(entry.op or "" for entry in merged.findings) == [f"aten::{op}" for op in "acmpz"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "b.json: not a baseline of smoketest (schema 1.0): Invalid JSON"),
        ('{"check": "a"}', "b.json: not a baseline of smoketest (schema 1.0) at device: Field required"),
        ('{"check": "a", "device": "cpu", "schema_version": "2.0"}', "baseline of schema 2.0, this version reads 1.0"),
        (
            '{"check": "a", "device": "cpu", "findings": [{"id": "1", "rule": "NST101", "verdict": "deny"},'
            ' {"id": "1", "rule": "NST101", "verdict": "deny"}]}',
            "the finding 1 is in it twice",
        ),
        *(
            (
                '{"check": "a", "device": "cpu", "findings": [{"id": "1", "rule": "NST101", "verdict": "deny", '
                f'"{key}": {number}}}]}}',
                f"b.json: not a baseline of smoketest (schema 1.0) at findings.0.{key}: Input should be ",
            )
            for key, number in [
                ("calls_per_step", "1" + "0" * 400),
                ("calls_per_step", "-1"),
                ("bytes_per_step", str(2**63)),
                ("ms_per_step", "1e999"),
                ("ms_per_step", "NaN"),
            ]
        ),
    ],
)
def test_what_is_no_baseline_is_refused_in_a_sentence(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, name="b.json")
    assert message in str(caught.value)
