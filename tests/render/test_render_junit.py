"""JUnit XML: valid against its schema, a case for each part and class, and nothing passed that nobody looked at."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from lxml import etree
from sample_reports import SAMPLES, base, equivariant, judged, large

from smoketest.findings import NotChecked, Report
from smoketest.findings.report import CompilePart, DeviceInfo, EagerPart
from smoketest.render.junit import render
from smoketest.render.summary import Row

SCHEMA = etree.XMLSchema(file=str(Path(__file__).parent / "junit-10.xsd"))
BROKEN = Row.without_report("configs/broken.yaml", 2, "configs/broken.yaml:3:1: unknown key 'modle'")


def validated(text: str) -> ET.Element:
    SCHEMA.assertValid(etree.fromstring(text.encode()))
    return ET.fromstring(text)


def outcome(case: ET.Element) -> str:
    return next((tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None), "passed")


def outcomes(report: Report) -> dict[str, str]:
    cases = validated(render([report])).iter("testcase")
    return {f"{case.get('classname')}: {case.get('name')}": outcome(case) for case in cases}


def test_the_schema_refuses_what_is_no_junit() -> None:
    with pytest.raises(etree.DocumentInvalid):
        SCHEMA.assertValid(etree.fromstring("<testsuites><testsuite name='a' tests='1'/></testsuites>"))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_kind_of_report_is_valid(name: str) -> None:
    (suite,) = validated(render([SAMPLES[name]()]))
    cases = suite.findall("testcase")
    assert suite.get("tests") == str(len(cases))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert suite.get(attribute) == str(len(suite.findall(f"testcase/{tag}")))


def test_a_case_for_each_part_and_class() -> None:
    told = outcomes(judged(base("gpt2")))
    assert told == {
        "gpt2.eager: runs to its end": "passed",
        "gpt2.eager: fallback": "passed",
        "gpt2.eager: hidden": "passed",
        "gpt2.eager: host_sync": "passed",
        "gpt2.eager: op_failed": "passed",
        "gpt2.eager: non_finite": "passed",
        "gpt2.eager: moved": "passed",
        "gpt2.compile: runs to its end": "passed",
        "gpt2.compile: lowering": "passed",
        "gpt2.compile: graph_break": "passed",
        "gpt2.compile: recompile": "passed",
        "gpt2.compile: dynamic_shape": "passed",
        "gpt2.compile: compiler_limit": "passed",
        "gpt2.parity: runs to its end": "skipped",
        "gpt2.parity: parity": "skipped",
    }


def test_the_environment_is_a_case_on_a_real_device() -> None:
    assert outcomes(judged(base("gpt2", device=DeviceInfo(kind="neuron"))))["gpt2.eager: environment"] == "passed"


def test_a_denied_class_fails_with_its_findings_and_a_warned_one_passes_with_its_output() -> None:
    (suite,) = validated(render([equivariant()]))
    cases = {f"{case.get('classname')} {case.get('name')}": case for case in suite.findall("testcase")}
    failure = cases["equivariant.eager fallback"].find("failure")
    assert failure is not None
    assert failure.get("type") == "NST101"
    assert failure.text is not None
    assert "aten::atan2.out: predicted fallback in forward (NST101)\n" in failure.text
    assert "  configs/workloads/equivariant.py:41 azimuth = torch.atan2(edges[:, 1], edges[:, 0])\n" in failure.text
    breaks = cases["equivariant.compile graph_break"]
    assert outcome(breaks) == "passed"
    assert (breaks.findtext("system-out") or "").startswith("1 warn\n")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"eager": EagerPart(status="crashed", reason="SIGSEGV\nlast words")}, {"runs to its end": "error"}),
        ({"device": DeviceInfo(kind="cpu")}, {"fallback": "skipped", "host_sync": "passed"}),
        ({"not_checked": (NotChecked(what="fallbacks", why="no op tracker"),)}, {"fallback": "skipped"}),
    ],
)
def test_what_nobody_looked_at_is_skipped_or_an_error_and_never_passed(
    given: dict[str, object], expected: dict[str, str]
) -> None:
    told = outcomes(judged(base("gpt2", **given)))
    for name, wanted in expected.items():
        assert told[f"gpt2.eager: {name}"] == wanted
    if "eager" in given:
        assert told["gpt2.eager: fallback"] == "skipped"


def test_a_skipped_probe_skips_its_classes() -> None:
    told = outcomes(judged(base("gpt2", compile=CompilePart(status="skipped", reason="no torch-mlir"))))
    assert {outcome for name, outcome in told.items() if name.startswith("gpt2.compile")} == {"skipped"}


def test_several_checks_are_one_document_and_one_without_a_report_is_an_error() -> None:
    root = validated(render([judged(base("gpt2")), BROKEN]))
    assert [suite.get("name") for suite in root] == ["gpt2", "configs/broken.yaml"]
    assert (root.get("tests"), root.get("errors"), root.get("failures")) == ("16", "1", "0")
    error = root[1].find("testcase/error")
    assert error is not None
    assert (error.get("type"), error.get("message")) == ("exit 2", BROKEN.headline)


def test_hundreds_of_findings_are_counted_where_they_are_not_shown() -> None:
    text = render([judged(large(900, ("x",)))])
    validated(text)
    assert "… and 25 more, in report.json" in text
