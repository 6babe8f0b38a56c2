from __future__ import annotations

import re
from typing import Any

import pytest
from rich.cells import cell_len
from sample_reports import SAMPLES, base, judged, seen

from smoketest.findings import Observation, Site, merge
from smoketest.findings.report import CompilePart, GraphInfo, NotChecked, OperatorRow
from smoketest.render import render
from smoketest.render.summary import Row, terminal


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", SAMPLES)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    out = render(SAMPLES[name](), "terminal", width=width)
    assert max(cell_len(line) for line in out.splitlines()) <= width
    assert out.endswith("\n")
    assert not out.endswith("\n\n")


def test_wide_characters_are_counted_as_wide() -> None:
    findings = merge(seen("aten::sort", 1, "値 = " + "漢字" * 60, "reported", 1, 1))
    out = render(judged(base("w", findings=findings)), "terminal", width=80)
    assert max(cell_len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize("name", SAMPLES)
def test_without_colour_there_is_no_control_character(name: str) -> None:
    assert not re.search(r"[^\n\x20-\x7e\xa0-\uffff]|[\u200b-\u200f\u202a-\u202e]", render(SAMPLES[name](), "terminal"))


def test_colour_changes_nothing_but_colour() -> None:
    report = SAMPLES["equivariant"]()
    coloured = render(report, "terminal", color=True)
    assert "\x1b[1;31mFAIL" in coloured
    plain = re.sub(r" *$", "", re.sub(r"\x1b\[[0-9;]*m", "", coloured), flags=re.MULTILINE)
    assert plain == render(report, "terminal")


def test_the_environment_of_this_process_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    report = SAMPLES["equivariant"]()
    before = render(report, "terminal"), render(report, "terminal", color=True)
    for name, value in {"NO_COLOR": "1", "FORCE_COLOR": "1", "COLUMNS": "30", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    assert (render(report, "terminal"), render(report, "terminal", color=True)) == before


def test_the_first_line_says_verdict_and_device() -> None:
    out = render(SAMPLES["equivariant"](), "terminal", width=200)
    assert out.splitlines()[:2] == [
        "FAIL equivariant on the emulated neuron device (operator profile torch-neuronx-prerelease-2026-04)",
        "2 fallbacks and 1 lowering failure deny, 5 warnings, 1 allowed,"
        " 1 allowance expired (aten::roll on 2026-01-01)",
    ]


def test_predictions_are_called_so_and_lower_bounds_say_at_least() -> None:
    out = render(SAMPLES["equivariant"](), "terminal", width=200)
    assert "aten::atan2.out  predicted fallback (NST101)" in out
    assert "aten::native_batch_norm  possible fallback (NST101)" in out
    assert "aten::lgamma  predicted lowering failure (NST201)" in out
    assert "aten::erfinv  possible lowering failure (NST201)" in out
    assert "at least 6 calls per step, at least 12.0 KiB per step to and from the host, in interactions.*.angles" in out
    assert "3 calls at setup" in out


def test_of_very_many_findings_the_worst_are_shown_and_the_rest_counted() -> None:
    findings = merge(
        part
        for line in range(50)
        for part in seen(f"aten::op{line}", line, "x", "reported" if line % 2 else "no_kernel_known", 1, line)
    )
    out = render(judged(base("big", findings=findings)), "terminal")
    assert "Denied (25)" in out
    assert "… and 5 more, in report.md and report.json" in out
    assert "Warnings (25)" in out
    assert "… and 15 more, in report.md and report.json" in out


def test_a_remedy_is_told_once_and_referred_to_after() -> None:
    findings = merge(
        [
            *seen("aten::acos.out", 1, "a", "reported", 1, 1),
            *seen("aten::acos.out", 2, "b", "reported", 1, 1),
            *seen("aten::acos.out", 3, "c", "no_kernel_known", 1, 1),
        ]
    )
    out = render(judged(base("a", findings=findings)), "terminal")
    assert out.count("instead: Keep the cosine") == 1
    assert out.count("instead: as for aten::acos.out above") == 1  # of the warning: the two denied are told together
    assert out.count("instead: ") == 2


def test_findings_of_the_same_rule_and_op_are_one_entry_with_their_places_below() -> None:
    findings = merge(part for n in range(1, 10) for part in seen("aten::acos.out", n, f"line_{n}", "reported", 1, 1))
    out = render(judged(base("a", findings=findings)), "terminal", width=200)
    assert out.count("aten::acos.out  predicted fallback") == 1
    assert "  aten::acos.out  predicted fallback in 9 places (NST101)\n" in out
    assert len(re.findall(r"^    \S+:\d+, forward: line_\d$", out, re.MULTILINE)) == 5
    assert "    and in 4 more places, in report.md\n" in out


def test_places_of_one_entry_that_have_causes_of_their_own_are_told_with_these() -> None:
    report = judged(base("a", findings=merge([*observed("NST204", 3, "why"), *observed("NST204", 4, "why else")])))
    out = render(report, "terminal", width=200)
    told = out.partition("graph break in 2 places (NST204)\n")[2].splitlines()
    assert [told[i].strip() for i in (0, 2, 4, 6)] == ["m.py:3, forward: x", "why", "m.py:4, forward: x", "why else"]


def test_a_finding_of_backward_names_the_line_that_autograd_runs_it_for() -> None:
    site = Site(file="m.py", line=3, code="y = torch.sort(x)")
    findings = merge([Observation("NST101", op="aten::a", phase="backward", grounds="measured", calls=1, site=site)])
    report = judged(base("a", findings=findings))
    assert "m.py:3, backward of: y = torch.sort(x)\n" in render(report, "terminal")
    assert "At `m.py:3`, backward of:\n\n```python\ny = torch.sort(x)\n```" in render(report, "markdown")
    assert ">backward of this line</td>" in render(report, "html")


def test_a_recompile_is_counted_as_compiled_again_so_that_its_message_can_say_how_often_in_all() -> None:
    report = judged(base("a", findings=merge(observed("NST205", 3, "forward() is compiled 2 times"))))
    assert "      compiled again 1 time\n    forward() is compiled 2 times\n" in render(report, "terminal")


def test_what_was_not_checked_takes_a_line_each_and_one_for_what_only_a_device_tells() -> None:
    notes = (
        NotChecked(what="neuronx-cc failures", why="the emulated device compiles nothing"),
        NotChecked(what="compiling forward", why="Dynamo skipped it: its ops are in no graph"),
        NotChecked(what="speed", why="times of the emulated device are the CPU's"),
    )
    out = render(judged(base("a", not_checked=notes)), "terminal", width=200)
    assert out.endswith(
        "Not checked (in full in report.md)\n"
        "  only on a real device: neuronx-cc failures; speed\n"
        "  compiling forward: Dynamo skipped it\n"
    )


def test_warnings_have_short_remedies_and_say_where_the_rest_stands() -> None:
    findings = merge(
        [
            *seen("aten::hardswish", 1, "a", "no_kernel_known", 1, 1),
            *seen("aten::scatter_reduce.two", 2, "b", "no_kernel_known", 1, 1),
            *observed("NST204", 3),
            *observed("NST204", 4, "why else"),
        ]
    )
    out = render(judged(base("a", findings=findings)), "terminal", width=400)
    assert "    instead: Write `x * (x + 3).clamp(0, 6) / 6`, or use SiLU.\n" in out
    assert "    instead: A sum with one target for each row of src: `out.index_add(0, index, src)`" in out
    assert "instead: as for the graph break above\n" in out
    assert "…\n" in out
    assert out.count("  Remedies that end in … here stand in full in report.md.\n") == 1
    assert max(len(line) for line in out.splitlines() if "instead: " in line) <= len("    instead: ") + 240


def observed(rule: str, line: int, message: str = "why") -> list[Observation]:
    return [Observation(rule, phase="forward", calls=1, message=message, site=Site(file="m.py", line=line, code="x"))]


def test_a_guard_of_an_old_report_is_told_without_source_and_stack() -> None:
    guard = (
        "forward() is compiled again: ___stack0 == 1332.4      # if x.item() == 0:  # m.py:3 in forward\n"
        'User stack trace:\n  File "m.py", line 3, in forward\n    if x.item() == 0:'
    )
    report = judged(base("a", findings=merge(observed("NST205", 3, guard))))
    assert "forward() is compiled again: ___stack0 == 1332.4\n" in render(report, "terminal", width=200)
    assert "stack trace" not in render(report, "terminal") + render(report, "markdown") + render(report, "html")


def told(**compile: Any) -> str:
    rows = [("device", "lowers"), ("mixed", "unknown"), ("not_reached", "lowers"), ("cpu", "not_reached")]
    operators = tuple(
        OperatorRow(op=f"aten::op{i}", eager=eager, compile=state)  # type: ignore[arg-type]
        for i, (eager, state) in enumerate(rows)
    )
    part = CompilePart(**({"status": "ran", "ops_probed": 42, "ops_failed": 0} | compile))
    return render(judged(base("a", operators=operators, compile=part)), "terminal", width=400)


def test_every_number_says_what_it_counts() -> None:
    out = told(graphs=(GraphInfo(id="0.forward", direction="forward", nodes=3, status="lowered"),), ops_unknown=2)
    assert "1,234 op calls in the traced step, of 57 overloads as dispatched." in out
    assert (
        "Operators of both parts, in-place and out variants counted with their functional overload: 4. Eager "
        "(predicted): 1 on the device, 1 on the CPU, 1 on the device and on the CPU, 1 not called in the traced step. "
        "Compiled: 2 lower, 1 not known, 1 not in what torch.compile captured."
    ) in out
    assert "42 distinct ops (told apart by shapes and dtypes) lowered one by one: 0 failed, 2 unknown." in out


def test_calls_on_cpu_tensors_are_counted_apart() -> None:
    report = SAMPLES["clean"]()
    eager = report.eager.model_copy(update={"host_calls": 40})
    out = render(report.model_copy(update={"eager": eager}), "terminal", width=400)
    assert (
        "1,234 op calls in the traced step, of 57 overloads as dispatched (40 of the calls on CPU tensors only)." in out
    )


def test_graphs_that_fail_as_a_whole_are_named() -> None:
    graphs = (
        GraphInfo(id="0.forward", direction="forward", nodes=89, status="lowered", stage="stablehlo"),
        GraphInfo(id="0.backward", direction="backward", nodes=240, status="failed", stage="imported"),
    )
    assert (
        "Compile probe: ran; 2 graphs of 329 nodes in all: 1 lowered whole, 1 failed (failed: 0.backward, which got as "
        "far as imported), 42 distinct ops"
    ) in told(graphs=graphs)


def test_times_of_graphs_that_a_device_ran_are_told() -> None:
    def graph(name: str, first: float, steady: float) -> GraphInfo:
        return GraphInfo(
            id=name, direction="forward", nodes=3, status="lowered", stage="executed", first_ms=first, steady_ms=steady
        )

    out = told(graphs=(graph("0.forward", 8000.0, 2.0), graph("1.forward", 41250.0, 1.5)))
    assert "2 graphs run on the device: 49.2 s to compile and first run them (most for 1.forward, 41.2 s)" in out
    assert "3.5 ms later" in out


def test_a_probe_without_graphs_says_that_it_saw_none() -> None:
    assert "Compile probe: ran; no graph was captured, so nothing was lowered.\n" in told(ops_probed=0)


@pytest.mark.parametrize("width", [60, 80])
def test_the_summary_fits_and_says_why_checks_do_not_pass(width: int) -> None:
    rows = [
        Row("gpt2", "PASS", 0, 0, 2, "emulated", "clean: 1,234 op calls"),
        Row.without_report("configs/" + "long" * 30 + ".yaml", 2, "a.yaml:3:1: unknown key 'modle'"),
    ]
    out = terminal(rows, width=width)
    assert max(cell_len(line) for line in out.splitlines()) <= width
    assert "unknown key 'modle'" in " ".join(out.split())
    assert "clean" not in out


def test_a_long_name_is_shortened_in_its_middle_and_told_in_full_below() -> None:
    rows = [
        Row("a_transformer_of_a_very_long_name_and_more_v1", "PASS", 0, 0, 2, "emulated", "clean: 1,234 op calls"),
        Row("a_transformer_of_a_very_long_name_and_more_v2", "PASS", 0, 0, 2, "emulated", "clean: 1,234 op calls"),
    ]
    out = terminal(rows, width=80)
    assert " a_transformer_o…me_and_more_v1   PASS         0        0          2   emulated\n" in out
    assert " a_transformer_o…me_and_more_v2   PASS         0        0          2   emulated\n" in out
    assert "a_transformer_of_a_very_long_name_and_more_v2: clean: 1,234 op calls\n" in out
