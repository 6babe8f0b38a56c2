"""Whole outputs, compared with files under golden/.

After a change that is meant: ``SMOKETEST_REGENERATE=1 pytest tests/render/test_golden.py``, then read the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from sample_reports import SAMPLES

from smoketest.render import render
from smoketest.render.summary import Row, Summary, row, terminal
from smoketest.render.summary import render as render_summary

GOLDEN = Path(__file__).parent / "golden"


def check(name: str, found: str) -> None:
    file = GOLDEN / name
    if os.environ.get("SMOKETEST_REGENERATE"):
        file.write_text(found, encoding="utf-8", newline="\n")
    assert found == file.read_text(encoding="utf-8"), f"{name} differs; see the top of {Path(__file__).name}"


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(("form", "suffix"), [("json", "json"), ("markdown", "md"), ("terminal", "txt")])
def test_report_reads_as_it_should(name: str, form: str, suffix: str) -> None:
    check(f"{name}.{suffix}", render(SAMPLES[name](), form))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_html_reads_as_it_should(name: str) -> None:
    check(f"{name}.html", body(render(SAMPLES[name](), "html")))


def body(page: str) -> str:
    """A page without its style and script, which are the same in all of them, and their hashes."""
    without = re.sub(r"<(style|script)>.*?</\1>", r"<\1></\1>", page, flags=re.DOTALL)
    return re.sub(r"'sha256-[^']+'", "'sha256-'", without)


def test_colours_are_only_colours() -> None:
    check("equivariant.ansi", render(SAMPLES["equivariant"](), "terminal", color=True))


def test_summary_reads_as_it_should() -> None:
    rows = [row(make()) for name, make in SAMPLES.items() if name != "hostile"]
    rows.append(Row.without_report("configs/broken.yaml", 2, "configs/broken.yaml:3:1: unknown key 'modle'"))
    check("summary.txt", terminal(rows))
    summary = Summary(created="2026-12-01T00:00:00Z", exit_code=130, rows=tuple(rows))
    check("summary.md", render_summary(summary, "markdown"))
    check("summary.json", render_summary(summary, "json"))
    check("summary.html", body(render_summary(summary, "html")))
