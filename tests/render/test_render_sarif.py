"""SARIF 2.1.0: what the standard wants of a log, and what a service does with ours.

`STRUCTURE` is the part of the standard that is used, closed: a key that it has not, or a value of another kind, is a
failure. It was itself held against OASIS's schema, with the same reports.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import pytest
from jsonschema import Draft202012Validator
from sample_reports import SAMPLES, large

from smoketest.findings.report import Report
from smoketest.render.sarif import render


def closed(required: list[str], **keys: Any) -> dict[str, Any]:
    return {"type": "object", "properties": keys, "required": required, "additionalProperties": False}


def several(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


TEXT = {"type": "string"}
MESSAGE = closed(["text"], text=TEXT)
LEVEL = {"enum": ["none", "note", "warning", "error"]}
REGION = closed([], startLine={"type": "integer", "minimum": 1}, snippet=MESSAGE)
PHYSICAL = closed(
    ["artifactLocation"],
    artifactLocation=closed(["uri"], uri={"type": "string", "pattern": "^([A-Za-z0-9._~/-]|%[0-9A-F]{2})*$"}),
    region=REGION,
)
LOCATION = closed(
    [],
    physicalLocation=PHYSICAL,
    logicalLocations=several(
        closed(["fullyQualifiedName"], fullyQualifiedName=TEXT, kind={"const": "module"}), minItems=1
    ),
)
RESULT = closed(
    ["message", "ruleId", "level", "partialFingerprints", "locations"],
    ruleId=TEXT, ruleIndex={"type": "integer", "minimum": 0}, level=LEVEL, message=MESSAGE,
    locations=several(LOCATION), partialFingerprints={"type": "object", "additionalProperties": TEXT},
    suppressions=several(closed(["kind"], kind={"enum": ["inSource", "external"]}, status={"const": "accepted"})),
    baselineState={"enum": ["new", "unchanged", "updated", "absent"]},
)  # fmt: skip
RULE = closed(
    ["id"], id=TEXT, shortDescription=MESSAGE, help=MESSAGE, defaultConfiguration=closed(["level"], level=LEVEL),
    properties={"type": "object"},
)  # fmt: skip
INVOCATION = closed(
    ["executionSuccessful"], executionSuccessful={"type": "boolean"}, exitCode={"type": "integer"}, commandLine=TEXT,
    toolExecutionNotifications=several(closed(["message"], level=LEVEL, message=MESSAGE)),
)  # fmt: skip
RUN = closed(
    ["tool", "results"],
    tool=closed(["driver"], driver=closed(["name"], name=TEXT, version=TEXT, rules=several(RULE, uniqueItems=True))),
    automationDetails=closed([], id=TEXT), invocations=several(INVOCATION),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]}, results=several(RESULT),
    properties={"type": "object"},
)  # fmt: skip
STRUCTURE = closed(
    ["version", "runs"], **{"$schema": TEXT}, version={"const": "2.1.0"}, runs=several(RUN, minItems=1, maxItems=1)
)


def log(report: Report) -> Any:
    return json.loads(render(report))["runs"][0]


@pytest.mark.parametrize("name", [*SAMPLES, "large"])
def test_every_report_has_the_structure_of_the_standard(name: str) -> None:
    text = render(large() if name == "large" else SAMPLES[name]())
    assert text.endswith("}\n")
    text.encode("utf-8")
    found = json.loads(text)
    assert [error.message for error in Draft202012Validator(STRUCTURE).iter_errors(found)] == []
    rules = found["runs"][0]["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in found["runs"][0]["results"])


def test_a_finding_is_a_result_with_its_line_and_what_to_write_instead() -> None:
    run = log(SAMPLES["equivariant"]())
    (found,) = [result for result in run["results"] if "atan2" in result["message"]["text"]]
    assert found["level"] == "error"
    assert found["ruleId"] == "NST101"
    assert found["message"]["text"].startswith("aten::atan2.out: predicted fallback in forward, 4 calls per step. ")
    assert " Instead: " in found["message"]["text"]
    (place,) = found["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "configs/workloads/equivariant.py"},
        "region": {"startLine": 41, "snippet": {"text": "azimuth = torch.atan2(edges[:, 1], edges[:, 0])"}},
    }
    assert place["logicalLocations"] == [{"fullyQualifiedName": "interactions.*.angles", "kind": "module"}]


def test_verdicts_are_levels_and_what_is_allowed_is_suppressed() -> None:
    report = SAMPLES["equivariant"]()
    run = log(report)
    levels = {"deny": "error", "warn": "warning", "allow": "note"}
    by_id = {finding.id: finding for finding in report.findings}
    assert len(run["results"]) == len(report.findings)
    for result in run["results"]:
        finding = by_id[result["partialFingerprints"]["smoketestId/v1"]]
        assert result["level"] == levels[str(finding.verdict)]
        assert ("suppressions" in result) == (finding.verdict == "allow")


def test_a_baseline_shows_in_the_state_of_each_result() -> None:
    report = SAMPLES["equivariant"]()
    first, second, third, *rest = report.findings
    states = [first.model_copy(update={"status": "new"}), second.model_copy(update={"status": "known"}),
              third.model_copy(update={"status": "worse"})]  # fmt: skip
    run = log(report.model_copy(update={"findings": (*states, *rest)}))
    found = {r["partialFingerprints"]["smoketestId/v1"]: r.get("baselineState") for r in run["results"]}
    assert [found[one.id] for one in states] == ["new", "unchanged", "updated"]
    assert [found[one.id] for one in rest] == [None] * len(rest)


def test_a_run_that_broke_off_was_not_executed() -> None:
    assert log(SAMPLES["equivariant"]())["invocations"][0]["executionSuccessful"] is True
    (crashed,) = log(SAMPLES["crashed"]())["invocations"]
    assert (crashed["executionSuccessful"], crashed["exitCode"]) == (False, 5)
    assert "SIGKILL" in crashed["toolExecutionNotifications"][0]["message"]["text"]


def test_no_file_name_makes_another_address() -> None:
    (result,) = log(SAMPLES["hostile"]())["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert unquote(uri).startswith("dir|`code`")
    assert not set(uri) & set("<>|`#?:\\ @")
