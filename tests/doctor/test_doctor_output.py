"""Text and JSON of a diagnosis, compared with files under golden/.

After a change that is meant: ``SMOKETEST_REGENERATE=1 pytest tests/doctor``, then read the difference.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from observations import HEALTHY, LAPTOP, PACKAGES

from smoketest.doctor import Topic, render_json, render_text
from smoketest.doctor.judge import judge
from smoketest.doctor.observed import Distribution, Observed

GOLDEN = Path(__file__).parent / "golden"
PLACEHOLDER = replace(
    HEALTHY,
    packages=replace(
        PACKAGES,
        distributions=(PACKAGES.distributions[0], Distribution("torch-neuronx", "1.0")),
        submodules=frozenset(),
    ),
    backend=LAPTOP.backend,
)
SAMPLES = {"healthy": HEALTHY, "laptop": LAPTOP, "placeholder": PLACEHOLDER}


def check(name: str, found: str) -> None:
    file = GOLDEN / name
    if os.environ.get("SMOKETEST_REGENERATE"):
        file.write_text(found, encoding="utf-8", newline="\n")
    assert found == file.read_text(encoding="utf-8"), f"{name} differs; see the top of {Path(__file__).name}"


@pytest.mark.parametrize("name", SAMPLES)
def test_text_and_json_read_as_they_should(name: str) -> None:
    diagnosis = judge(SAMPLES[name])
    check(f"{name}.txt", render_text(diagnosis))
    check(f"{name}.json", render_json(diagnosis))


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_asked_for(name: str, width: int) -> None:
    assert max(map(len, render_text(judge(SAMPLES[name]), width=width).splitlines())) <= width


def test_colours_are_only_colours() -> None:
    plain = render_text(judge(LAPTOP))
    coloured = render_text(judge(LAPTOP), color=True)
    assert "\x1b" not in plain
    assert "\x1b[31mfail" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_json_says_what_the_exit_code_says() -> None:
    content = json.loads(render_json(judge(PLACEHOLDER)))
    assert content["ok"] is False
    assert content["exit_code"] == 3
    assert content["cause"] == "torch-neuronx"
    assert [line["topic"] for line in content["lines"]][:3] == ["Python", "torch", "torch-neuronx"]
    assert {tuple(line) for line in content["lines"]} == {("topic", "found", "expected", "verdict", "advice")}


def test_nothing_found_can_rearrange_the_terminal() -> None:
    hostile: Observed = replace(HEALTHY, environ={"NEURON_CC_FLAGS": "\x1b[2J\u202egnp\nok"})
    diagnosis = judge(hostile)
    text = render_text(diagnosis)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[2J\\u202egnp\\nok" in text.replace("\n" + " " * 28, "")
    assert "\\x1b" in json.loads(render_json(diagnosis))["lines"][12]["found"]
    assert diagnosis.of(Topic.SETTINGS).verdict == "warn"
