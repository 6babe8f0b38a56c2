"""The words that a report explains."""

from __future__ import annotations

import re

import pytest
from sample_reports import SAMPLES, base, judged

from smoketest.findings import Observation, Site, merge
from smoketest.render import render
from smoketest.render.glossary import LONGEST, TERMS, terms_in


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("2 fallbacks deny, 1 warning", "deny, warn, allow"),
        ("fell back", "fallback"),
        ("0.forward does not lower", "lower"),
        ("Lowered whole", "lower"),
        ("lowering got as far as stage 3 of 4", "lower"),
        ("Dynamo skipped forward()", "skipped frame"),
        ("compiled again 3 times", "recompile, guard"),
        ("the host waits", "host"),
    ],
)
def test_a_word_is_known_in_every_form_that_reports_use(text: str, name: str) -> None:
    assert name in [term.name for term in terms_in(text)]


def test_only_words_that_occur_are_explained() -> None:
    assert terms_in("All is well: 3 of 4, slower and follower") == []
    out = render(SAMPLES["clean"](), "markdown")
    explained = re.findall(r"^- \*\*(.*)\*\*: ", out.partition("\n## Words\n")[2], re.MULTILINE)
    assert "operator profile" in explained
    assert "graph break" not in explained


@pytest.mark.parametrize("form", ["markdown", "html", "terminal"])
def test_a_report_with_a_graph_break_says_what_that_is(form: str) -> None:
    site = Site(file="m.py", line=1, code="x.item()")
    report = judged(base("x", findings=merge([Observation("NST204", site=site, calls=1, message="why")])))
    out = " ".join(render(report, form).split())  # type: ignore[arg-type]
    assert ("torch.compile cannot record a line" in out) or ("a line that torch.compile cannot record" in out)
    assert "host synchronisation" not in out


def test_all_meanings_fit_into_the_room_that_is_kept_for_them_and_none_is_said_twice() -> None:
    assert sum(len(f"- **{term.name}**: {term.meaning}.\n") for term in TERMS) <= LONGEST <= 6_000
    assert len({term.name for term in TERMS}) == len(TERMS)
