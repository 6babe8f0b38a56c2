from __future__ import annotations

import re

import pytest
from rich.cells import cell_len
from sample_reports import SAMPLES, base, judged, seen

from smoketest.findings import merge
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
    assert "aten::atan2.out  predicted fallback in forward (NST101)" in out
    assert "aten::native_batch_norm  possible fallback in forward (NST101)" in out
    assert "aten::lgamma  predicted lowering failure in forward (NST201)" in out
    assert "aten::erfinv  possible lowering failure in backward (NST201)" in out
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


def test_a_remedy_is_told_once_for_an_op_found_at_many_lines() -> None:
    findings = merge(
        [*seen("aten::acos.out", 1, "a", "reported", 1, 1), *seen("aten::acos.out", 2, "b", "reported", 1, 1)]
    )
    assert render(judged(base("a", findings=findings)), "terminal").count("instead: Keep the cosine") == 1


@pytest.mark.parametrize("width", [60, 80])
def test_the_summary_fits_and_says_why_checks_do_not_pass(width: int) -> None:
    rows = [
        Row("gpt2", "PASS", 0, 0, 2, "emulated", "clean: 1,234 op calls"),
        Row.without_report("configs/" + "long" * 30 + ".yaml", 2, "a.yaml:3:1: unknown key 'modle'"),
    ]
    out = terminal(rows, width=width)
    assert max(cell_len(line) for line in out.splitlines()) <= width
    assert "unknown key 'modle'" in out
    assert "clean" not in out
