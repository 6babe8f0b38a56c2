from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len
from sample_reports import SAMPLES, base, judged, seen

from smoketest.findings import Observation, Site, merge
from smoketest.findings.parts import LIMITS_MET
from smoketest.findings.report import CompilePart, GraphInfo, NotChecked, OperatorRow
from smoketest.findings.wordings import OWN_LOSS
from smoketest.render import render, words
from smoketest.render.related import leads
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
    assert "aten::atan2.out  predicted fallback (NST101, seen on a device)" in out
    assert "aten::native_batch_norm  possible fallback (NST101)" in out
    assert "aten::lgamma  predicted lowering failure (NST201)" in out
    assert "aten::erfinv  possible lowering failure (NST201)" in out
    assert "3 calls at setup" in out
    findings = tuple(f for f in SAMPLES["equivariant"]().findings if f.op == "aten::native_batch_norm")
    alone = render(judged(base("a", findings=findings)), "terminal", width=200)
    assert (
        "at least 6 calls per step, at least 12.0 KiB per step to and from the host, in interactions.*.angles" in alone
    )


def test_of_very_many_findings_the_worst_are_shown_and_the_rest_counted() -> None:
    findings = merge(
        part
        for line in range(50)
        for part in seen(f"aten::op{line}", line, "x", "reported" if line % 2 else "no_kernel_known", 1, line)
    )
    out = render(judged(base("big", findings=findings)), "terminal")
    assert "Denied (25 findings)" in out
    assert "… and 13 more findings, in report.md and report.json" in out
    assert "Warnings (25 findings)" in out
    assert "… and 17 more findings, in report.md and report.json" in out
    assert out.count("\n") <= 75


def test_ten_findings_fit_in_sixty_lines_and_the_worst_in_the_first_forty() -> None:
    ops = ("sort.values_stable", "atan2.out", "acos.out", "lgamma.out", "erfinv", "cumprod.out", "roll", "cdist")
    ops += ("linalg_cross.out", "grid_sampler_2d")
    findings = merge(
        part for n, op in enumerate(ops) for part in seen(f"aten::{op}", n + 1, f"y = f{n}(x)", "reported", 1, 99 - n)
    )
    out = render(judged(base("a", findings=findings)), "terminal", width=80).splitlines()
    assert len(out) <= 60
    first = "\n".join(out[:40])
    assert out[0].startswith("FAIL a on the emulated neuron device")
    for n, op in enumerate(ops[:4]):
        assert f"aten::{op}  predicted fallback" in first
        assert f":{n + 1}, forward: y = f{n}(x)" in first
    assert first.count("instead: ") == 4
    whole = " ".join(" ".join(out).split())
    assert all(f"aten::{op} predicted fallback (NST101, seen on a device) at " in whole for op in ops[4:])
    assert "Checked: eager part ran; compile probe" in whole
    assert "Not checked: " in whole
    assert "The rest is in report.md: all causes and remedies" in whole


def placed(op: str, rule: str, phase: Any, line: int = 7, verdict: str = "reported") -> Observation:
    site = Site(file="m.py", line=line, code="y = torch.sort(x).values")
    grounds: Any = verdict
    return Observation(rule, op=op, phase=phase, grounds=grounds, calls=1, exact=True, site=site, remedy=f"do {op}")


def test_findings_of_one_op_and_line_are_one_entry_led_by_the_one_to_mend_first() -> None:
    findings = merge([
        placed("aten::_ctc_loss_backward.out", "NST101", "backward"),
        placed("aten::_ctc_loss", "NST101", "forward"),
        placed("aten::_ctc_loss", "NST201", "forward", verdict="cannot_lower"),
        placed("aten::_ctc_loss", "NST101", "forward", line=8),
        placed("aten::acos", "NST101", "forward"),
    ])  # fmt: skip
    report = judged(base("a", findings=findings))
    out = render(report, "terminal", width=300)
    assert "Denied (5 findings)\n" in out
    assert "  aten::_ctc_loss  predicted fallback (NST101, 2 findings and 2 with them, seen on a device)\n" in out
    assert (
        "    mend it first; with it may go: aten::_ctc_loss_backward.out, predicted fallback in backward (NST101);"
        " aten::_ctc_loss, predicted lowering failure in forward (NST201)\n"
    ) in out
    assert out.count("aten::_ctc_loss_backward.out") == 1
    said = "ame op and line as {}: mend that first, and see whether this one is gone with it."
    markdown = render(report, "markdown")
    numbers = [
        row.split(" | ")[0].strip("| ") for row in markdown.splitlines() if "| `aten::_ctc_loss` | `m.py:7`" in row
    ]
    assert markdown.count("S" + said.format(numbers[0])) == 2
    assert render(report, "html").count(f'Same op and line as <a href="#finding-{numbers[0]}">finding') == 2


def test_a_warning_of_the_op_and_line_of_a_denied_finding_says_so() -> None:
    findings = merge([
        placed("aten::sort", "NST201", "forward", verdict="cannot_lower"),
        placed("aten::sort.values_stable", "NST101", "forward", verdict="no_kernel_known"),
    ])  # fmt: skip
    out = render(judged(base("a", findings=findings)), "terminal", width=200)
    assert "    same op and line as aten::sort, denied above: mend that first\n" in out


def test_ops_of_another_line_or_another_name_or_allowed_are_not_tied() -> None:
    findings = merge([
        placed("aten::sort", "NST101", "forward"),
        placed("aten::sort", "NST201", "forward", line=8),
        placed("aten::topk", "NST201", "forward"),
        Observation("NST201", op="aten::sort", phase="forward", calls=1),
    ])  # fmt: skip
    assert leads(findings) == {}
    allowed = [f.model_copy(update={"verdict": "allow"}) for f in merge([placed("aten::sort", "NST101", "forward")])]
    assert leads([*allowed, *merge([placed("aten::sort", "NST201", "forward")])]) == {}


def test_a_met_limit_stands_beside_the_headline_in_every_form() -> None:
    note = NotChecked(what=LIMITS_MET, why="only a pre-release is known to have them: float64: computed as float32")
    report = judged(base("a", not_checked=(note,)))
    assert report.headline == "0 denied, no warnings, a limit of the device is met; 1,234 op calls"
    said = "A limit of the device is met, which possibly acts on it: float64: computed as float32"
    assert render(report, "terminal", width=200).splitlines()[2] == f"warning: {said}"
    assert f"**Warning**: {said}" in render(report, "markdown").splitlines()
    assert f"warning {said}" in re.sub("<[^>]*>", "", render(report, "html"))


def test_a_job_that_does_not_fit_is_not_called_clean() -> None:
    report = base("a")
    report = judged(report.model_copy(update={"fit": report.fit.model_copy(update={"status": "ran", "fits": False})}))
    assert report.headline.startswith("0 denied, no warnings, a limit of the device is met")
    assert "warning: The job does not fit in the memory of a logical core" in render(report, "terminal", width=200)


def test_a_finding_of_the_checks_own_loss_says_so_in_place_of_a_line() -> None:
    seen_in = Observation(
        "NST101", op="aten::mse_loss.out", phase="forward", grounds="no_kernel_known", calls=1,
        message=f"possible fallback: no kernel, in {OWN_LOSS} (mse_loss)",
    )  # fmt: skip
    report = judged(base("a", findings=merge([seen_in])))
    assert "    the check's own loss (its key `loss`), forward\n" in render(report, "terminal", width=200)
    assert "The check's own loss (its key `loss`), forward." in render(report, "markdown")
    assert "the check&#39;s own loss (its key loss)" in re.sub("<[^>]*>", "", render(report, "html"))


def test_a_text_is_cut_at_the_end_of_a_word() -> None:
    assert words.clean("one two three four", 12) == "one two…"
    assert words.clean("one two three", 13) == "one two three"
    assert words.clean("one two, three", 10) == "one two…"
    assert words.clean("x" * 50, 10) == "x" * 9 + "…"
    assert words.clean("aa " + "x" * 100, 80) == "aa " + "x" * 76 + "…"


def test_of_a_probe_that_was_interrupted_nothing_is_said_of_what_it_would_have_captured() -> None:
    reason = "interrupted by SIGINT in the compile probe (in lower, 3 of 9)"
    out = told(status="failed", reason=reason, ops_probed=None, ops_failed=None)
    assert "1 not reached." in out
    assert "not in what torch.compile captured" not in out


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
    assert "  aten::acos.out  predicted fallback (NST101, 9 findings, seen on a device)\n" in out
    assert len(re.findall(r"^    \S+:\d+, forward: line_\d$", out, re.MULTILINE)) == 5
    assert "    and 4 more findings of it, in report.md\n" in out


def test_places_of_one_entry_that_have_causes_of_their_own_are_told_with_these() -> None:
    report = judged(base("a", findings=merge([*observed("NST204", 3, "why"), *observed("NST204", 4, "why else")])))
    out = render(report, "terminal", width=200)
    told = out.partition("graph break (NST204, 2 findings)\n")[2].splitlines()
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
    assert out.count("Texts that end in … stand in full in report.md.\n") == 1
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


def test_why_a_measured_fallback_ran_on_the_cpu_is_told_and_what_the_gate_added_to_a_predicted_one() -> None:
    refused = placed("aten::mm", "NST101", "forward", verdict="measured")
    told_why = merge([replace(refused, message="aten::mm has a kernel on the device, which refused these dtypes")])
    assert "which refused these dtypes\n" in render(judged(base("a", findings=told_why)), "terminal", width=200)
    out = render(SAMPLES["equivariant"](), "terminal", width=200)
    assert "    Allowed up to 4,096 bytes per step, but there are 4,500,000: 4,495,904 too many.\n" in out
    assert "the pre-release operator list has no kernel" not in out
