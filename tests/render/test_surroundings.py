"""What the doctor found around a run, in the environment section; findings about the machine, which have no line."""

from __future__ import annotations

import re

import pytest
from sample_reports import clean

from smoketest.findings import Finding, Report
from smoketest.findings.report import DeviceInfo, EnvironmentLine
from smoketest.render import render


@pytest.fixture
def report() -> Report:
    sample = clean()
    setting = Finding(
        id="0123456789ab", rule="NST304", class_="environment", verdict="warn", witnesses=("doctor",),
        message="NEURON_CC_FLAGS=-O3: flags of the compiler", remedy="Unset the variable.",
    )  # fmt: skip
    lines = (
        EnvironmentLine(topic="driver", found="2.30, older than the SDK", expected="2.31", verdict="warn"),
        EnvironmentLine(topic="torch", found="2.14.0", expected="2.14", verdict="ok"),
        EnvironmentLine(topic="nki", found="0.7.0", expected="0.7.0", verdict="ok"),
    )
    environment = sample.environment.model_copy(update={"lines": lines, "set_by_run": {"NEURON_LAUNCH_BLOCKING": "1"}})
    device = DeviceInfo(kind="neuron")
    return sample.model_copy(update={"findings": (setting,), "environment": environment, "device": device})


def test_markdown_tells_what_is_not_right_in_full_and_the_rest_in_a_line(report: Report) -> None:
    said = render(report, "markdown").partition("## Environment")[2]
    assert "- set by the run: `NEURON_LAUNCH_BLOCKING=1`" in said
    assert "- driver (warn): 2.30, older than the SDK; expected: 2.31" in said
    assert "- as expected: torch, nki" in said


def test_html_has_every_line(report: Report) -> None:
    said = re.sub(r"<[^>]+>", " ", render(report, "html").partition('id="environment-title"')[2])
    said = " ".join(said.split())
    for text in ("NEURON_LAUNCH_BLOCKING (set by the run) 1", "driver warn: 2.30, older than the SDK; expected: 2.31"):
        assert text in said


@pytest.mark.parametrize("form", ["markdown", "terminal", "html"])
def test_a_finding_about_the_machine_misses_no_line(form: str, report: Report) -> None:
    said = " ".join(render(report, form).split())
    assert "flags of the compiler" in said
    assert "line not known" not in said.lower()
    assert "count not known" not in said
