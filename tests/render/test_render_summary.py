from __future__ import annotations

import json
from typing import Literal, get_args

import pytest
from jsonschema import Draft202012Validator
from sample_reports import SAMPLES, TEXTS
from test_render_html import OURS, Page
from test_render_markdown import html, kinds, parse

from smoketest.render.summary import LIMIT, Row, Summary, render, row, schema

FORMS = ("json", "markdown", "html")


def summary(count: int = 0, exit_code: int = 5) -> Summary:
    rows = [row(make()) for make in SAMPLES.values()]
    rows += [Row.without_report(text, 2, text) for text in TEXTS]
    rows += [Row(f"check{i}", "FAIL", 1, i, 10_000 + i, "emulated", "x " * 100, f"check{i}") for i in range(count)]
    return Summary(created="2026-12-01T00:00:00Z", exit_code=exit_code, rows=tuple(rows))


@pytest.mark.parametrize(("code", "status"), [(0, "pass"), (1, "fail"), (2, "error"), (5, "error"), (130, "error")])
def test_its_status_is_that_of_the_exit_code(code: int, status: str) -> None:
    assert Summary("now", code, ()).status == status


def test_the_headline_counts_how_checks_ended() -> None:
    def headline(*verdicts: str) -> str:
        return Summary("now", 0, tuple(Row("x", v, 0, 0, 0, "cpu", "") for v in verdicts)).headline

    assert headline("PASS") == "1 check: 1 passes"
    assert headline("PASS", "PASS", "FAIL", "ERROR") == "4 checks: 2 pass, 1 fails, 1 ends in an error"
    assert headline() == "0 checks: none was run"


def test_json_fits_its_schema_and_less_or_other_does_not() -> None:
    Draft202012Validator.check_schema(schema())
    validator = Draft202012Validator(schema())
    text = render(summary(500), "json")
    assert [error.message for error in validator.iter_errors(json.loads(text))] == []
    for key in json.loads(text):
        data = json.loads(text)
        del data[key]
        assert [error.message for error in validator.iter_errors(data)] == [f"{key!r} is a required property"]
    for key in json.loads(text)["checks"][0]:
        data = json.loads(text)
        data["checks"] = data["checks"][:1]
        del data["checks"][0][key]
        assert [error.message for error in validator.iter_errors(data)] == [f"{key!r} is a required property"]
    assert not validator.is_valid(json.loads(text.replace('"status": "fail"', '"status": "bad"', 1)))
    assert not validator.is_valid(json.loads(text) | {"more": 1})


def test_json_has_the_checks_in_their_order_and_where_their_reports_are() -> None:
    data = json.loads(render(summary(), "json"))
    assert list(data) == ["schema_version", "created", "status", "exit_code", "headline", "checks"]
    assert data["checks"][0] == {
        "name": "gpt2", "exit_code": 0, "denied": 0, "warnings": 0, "device": "emulated",
        "headline": "clean: 1,234 op calls, no denied finding, no warnings", "status": "pass",
        "report": "gpt2/report.json",
    }  # fmt: skip
    assert data["checks"][-1]["report"] is None
    assert data["checks"][-1]["denied"] is None


def test_names_that_are_no_folder_lead_nowhere() -> None:
    report = SAMPLES["clean"]()
    for name in ("../x", "<user>-net", "a/b", "javascript:x", ""):
        assert row(report.model_copy(update={"name": name})).folder is None


def test_hostile_texts_make_no_markup_in_any_form() -> None:
    tokens = parse(render(summary(), "markdown"))
    assert html(tokens) <= {"<code>", "</code>"}
    assert not kinds(tokens) & {"link_open", "image", "s_open", "hr", "blockquote_open"}
    assert [token.type for token in tokens].count("tr_open") == 1 + len(summary().rows)
    page = Page(render(summary(), "html"))
    assert set(page.tags) <= OURS
    links = {value for tag, name, value in page.attributes if name == "href"} - {"data:,", "#main"}
    assert links == {f"{name}/report.html" for name in ("gpt2", "equivariant", "resnet", "bert", "mine", "ranks")}


def test_very_many_checks_stay_within_the_limit_and_what_is_left_out_is_counted() -> None:
    text = render(summary(2000), "markdown")
    assert len(text) <= LIMIT
    rows = len([line for line in text.splitlines() if line.startswith("| ")]) - 2
    left = 2000 + len(SAMPLES) + len(TEXTS) - rows
    assert text.endswith(f"\n\n{left:,} more are left out for their length.\n")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_can_be_written_as_utf_8(form: Literal["json", "markdown", "html"]) -> None:
    rows = (Row.without_report("caf\udce9.yaml", 2, "caf\udce9"),)
    render(Summary("now", 2, rows), form).encode("utf-8")


def test_forms_are_all_tested() -> None:
    from typing import get_type_hints

    assert get_args(get_type_hints(render)["form"]) == FORMS
