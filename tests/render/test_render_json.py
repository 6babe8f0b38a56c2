from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from sample_reports import SAMPLES, large

from smoketest.errors import ConfigError
from smoketest.findings import Report
from smoketest.render.json import parse, render, schema


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


def errors(text: str) -> list[str]:
    return [
        f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema()).iter_errors(json.loads(text))
    ]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("name", [*SAMPLES, "large"])
def test_every_report_fits_the_schema(name: str) -> None:
    assert errors(render(large() if name == "large" else SAMPLES[name]())) == []


@pytest.mark.parametrize("name", list(Report.model_fields))
def test_a_report_without_one_of_its_keys_does_not_fit(name: str) -> None:
    data = json.loads(render(SAMPLES["equivariant"]()))
    del data[name]
    assert errors(json.dumps(data)) == [f"$: {name!r} is a required property"]


def test_inner_keys_and_values_are_held_to_it_too() -> None:
    text = render(SAMPLES["equivariant"]())
    assert errors(text.replace('"verdict": "deny"', '"verdict": "refuse"', 1)) != []
    assert errors(text.replace('"stage": ', '"stages": ', 1)) != []
    assert errors(text.replace('"schema_version": "1.0"', '"schema_version": "2.0"')) != []
    assert errors(text.replace('"schema_version": "1.0"', '"schema_version": "1.7"')) == []
