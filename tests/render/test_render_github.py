"""GitHub's annotations and step summary: bounded, escaped, and never a cut table."""

from __future__ import annotations

import re

import pytest
from sample_reports import TEXTS, base, equivariant, judged, large

from smoketest.findings import Site
from smoketest.findings.collect import Observation, merge
from smoketest.render.github import MOST_ANNOTATIONS, SUMMARY_LIMIT, annotate, step_summary
from smoketest.render.summary import Row

BROKEN = Row.without_report("configs/broken.yaml", 2, "configs/broken.yaml:3:1: unknown key 'modle'")
CREATED = "2026-12-01T00:00:00Z"


def here(check: str, file: str) -> str | None:
    return f"sub/{file}" if file.startswith("configs/") else None


def test_a_denied_finding_is_an_error_at_its_line_and_a_warning_a_warning() -> None:
    lines = annotate([equivariant()], here)
    assert lines[0].startswith(
        "::error file=sub/configs/workloads/equivariant.py,line=21,title=equivariant%3A predicted fallback of"
        " aten%3A%3Asort.values_stable::"
    )
    assert any(line.startswith("::warning file=sub/configs/workloads/equivariant.py,line=77,") for line in lines)
    assert all("\n" not in line for line in lines)


def test_a_library_s_line_has_no_file_and_is_told_in_the_text() -> None:
    site = Site(file="transformers/models/gpt2/modeling_gpt2.py", line=7, code="x")
    found = merge([Observation(rule="NST104", op="aten::a", phase="forward", site=site, message="50% raise\nthere")])
    (line,) = annotate([judged(base("gpt2", findings=found))], here)
    assert line.startswith("::error title=gpt2%3A predicted op failure of aten%3A%3Aa::")
    assert "transformers/models/gpt2/modeling_gpt2.py:7: 50%25 raise there" in line


def test_annotations_are_bounded_and_the_last_one_counts_the_rest() -> None:
    report = judged(large(60))
    lines = annotate([report, report], here)
    for level in ("error", "warning"):
        of_it = [line for line in lines if line.startswith(f"::{level} ")]
        assert len(of_it) <= MOST_ANNOTATIONS
    assert "more of these are in the step's summary" in lines[MOST_ANNOTATIONS - 1]


def test_a_check_without_a_verdict_is_an_error() -> None:
    assert annotate([BROKEN], here) == [
        "::error title=smoketest%3A configs/broken.yaml::configs/broken.yaml:3:1: unknown key 'modle'"
    ]


def is_balanced(text: str) -> bool:
    lines = text.splitlines()
    opened = sum(line.startswith("<details><summary>") for line in lines)
    return opened == lines.count("</details>")


def rows(text: str) -> list[str]:
    return re.findall(r"^\| \d+ \| .* \|$", text, re.MULTILINE)


def test_the_summary_of_500_findings_is_whole_and_within_its_limit() -> None:
    report = judged(large(500))
    text = step_summary([report], 1, CREATED)
    assert len(text.encode()) <= SUMMARY_LIMIT
    assert len(rows(text)) == len(report.findings)
    assert "left out of this table" not in text
    assert is_balanced(text)


def test_it_keeps_to_its_limit_in_bytes_whatever_the_texts_are() -> None:
    wide = judged(large(120, (*TEXTS, "\N{PILE OF POO}" * 200)))
    text = step_summary([wide, wide], 1, CREATED, 80_000)
    assert 0 < len(text.encode()) <= 80_000
    assert is_balanced(text)
    assert all(line.endswith(" |") for line in text.splitlines() if line.startswith("| "))


def test_several_checks_begin_with_their_table_and_the_worst_report_comes_first() -> None:
    text = step_summary([judged(base("gpt2")), equivariant(), BROKEN], 2, CREATED)
    assert text.startswith("# ERROR: 3 checks:")
    assert text.index("# FAIL on the emulated neuron device") < text.index("# PASS on the emulated neuron device")


@pytest.mark.parametrize("room", [0, 100, 3000])
def test_where_there_is_no_room_nothing_is_written_rather_than_half(room: int) -> None:
    text = step_summary([equivariant(), judged(base("gpt2"))], 1, CREATED, room)
    assert len(text.encode()) <= room
    assert "| verdict |" not in text or text.count("| --- |") >= 1


def test_reports_that_find_no_room_are_counted() -> None:
    many = [judged(base(f"check{i}")) for i in range(300)]
    text = step_summary(many, 0, CREATED, 200_000)
    assert len(text.encode()) <= 200_000
    assert re.search(r"\d+ more reports are left out here for their length", text)
