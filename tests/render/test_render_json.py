from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import SAMPLES

from smoketest.errors import ConfigError
from smoketest.render.json import parse, render


@pytest.mark.parametrize("name", SAMPLES)
def test_a_report_comes_back_as_it_was(name: str) -> None:
    report = SAMPLES[name]()
    assert parse(render(report)) == report


def test_the_text_is_json_and_ends_in_a_newline() -> None:
    text = render(SAMPLES["clean"]())
    assert text.endswith("}\n")
    assert json.loads(text)["name"] == "gpt2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            "r.json: not a report of smoketest (schema 1.0):"
            " Invalid JSON: EOF while parsing a value at line 1 column 0",
        ),
        ("{}", "r.json: not a report of smoketest (schema 1.0) at name: Field required"),
        ("[]", "r.json: not a report of smoketest (schema 1.0): Input should be an object"),
    ],
)
def test_what_is_no_report_is_refused_in_one_message(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, name="r.json")
    assert str(caught.value) == (f"{message}\n  hint: pass a report.json that `smoketest run` wrote with this version")


def test_a_report_of_another_major_schema_is_refused() -> None:
    text = render(SAMPLES["clean"]()).replace('"schema_version": "1.0"', '"schema_version": "2.3"')
    with pytest.raises(ConfigError, match=r"report of schema 2\.3, this version reads 1\.0"):
        parse(text)


@given(st.text() | st.binary())
def test_no_text_raises_anything_but_a_config_error(text: str | bytes) -> None:
    with pytest.raises(ConfigError):
        parse(text)
