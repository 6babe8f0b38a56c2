"""A report as SARIF 2.1.0 (OASIS), which code scanning services and editors read: one run, one result a finding."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from smoketest import __version__
from smoketest.findings.report import Finding, Report, Site
from smoketest.findings.rules import RULES, Rule
from smoketest.render import words

__all__ = ["render"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"deny": "error", "warn": "warning", "allow": "note"}
_DEFAULTS = {"deny": "error", "warn": "warning", "by_grounds": "error"}
_BASELINE = {"new": "new", "known": "unchanged", "worse": "updated"}


def render(report: Report) -> str:
    """The report as SARIF, indented, ending in a newline.

    Denied findings are errors, warnings are warnings, and allowed ones are notes with a suppression. The fingerprint of
    a result is the finding's id, so that a service knows it again. Paths are relative to the root of the project.

    Args:
        report: as judged and scrubbed.
    """
    findings = words.worst_first(report.findings)
    ids = sorted({finding.rule for finding in findings})
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": _driver(ids)},
                "automationDetails": {"id": f"smoketest/{_line(report.name, 200)}"},
                "invocations": [_invocation(report)],
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, ids, report) for finding in findings],
                "properties": {
                    "device": words.device(report),
                    "headline": _line(report.headline),
                    "status": report.status,
                    "notChecked": [f"{_line(entry.what)}: {_line(entry.why)}" for entry in report.not_checked],
                },
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace").decode() + "\n"


def _line(text: str, limit: int = 1000) -> str:
    return words.clean(text, limit)


def _driver(ids: Sequence[str]) -> dict[str, Any]:
    return {"name": "smoketest", "version": __version__, "rules": [_rule(name, RULES.get(name)) for name in ids]}


def _rule(name: str, rule: Rule | None) -> dict[str, Any]:
    if rule is None:  # of a report that a later version wrote
        return {"id": _line(name, 40)}
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "help": {"text": f"{rule.remedy} `smoketest explain {rule.id}` tells more."},
        "defaultConfiguration": {"level": _DEFAULTS[rule.default]},
        "properties": {"tags": [rule.class_]},
    }


def _invocation(report: Report) -> dict[str, Any]:
    """How the check ended: a run that found something was executed, one that broke off was not."""
    done: dict[str, Any] = {"executionSuccessful": report.status != "error", "exitCode": report.exit_code}
    if report.command is not None:
        done["commandLine"] = _line(report.command)
    if report.status == "error":
        done["toolExecutionNotifications"] = [
            {"level": "error", "message": {"text": _line(report.headline) or "error"}}
        ]
    return done


def _result(finding: Finding, ids: Sequence[str], report: Report) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": _line(finding.rule, 40),
        "ruleIndex": ids.index(finding.rule),
        "level": _LEVELS.get(finding.verdict or "warn", "warning"),
        "message": {"text": _message(finding, report)},
        "locations": _locations(finding),
        "partialFingerprints": {"smoketestId/v1": _line(finding.id, 200)},
    }
    if finding.verdict == "allow":
        result["suppressions"] = [{"kind": "external", "status": "accepted"}]
    if finding.status is not None:
        result["baselineState"] = _BASELINE[finding.status]
    return result


def _message(finding: Finding, report: Report) -> str:
    op = f"{_line(finding.op, 200)}: " if finding.op else ""
    phase = f" in {finding.phase}" if finding.phase else ""
    cause = f" {_sentence(words.cause(finding))}" if finding.message else ""
    remedy = f" Instead: {_sentence(finding.remedy)}" if finding.remedy and finding.verdict != "allow" else ""
    return f"{op}{words.title(finding, report)}{phase}, {words.amount(finding)}.{cause}{remedy}"


def _sentence(text: str) -> str:
    line = _line(text)
    return line if line.endswith((".", "…", "!", "?")) else f"{line}."


def _locations(finding: Finding) -> list[dict[str, Any]]:
    """The line, and the modules; of what has no line the modules alone."""
    location: dict[str, Any] = {}
    if finding.site is not None:
        location["physicalLocation"] = _physical(finding.site)
    if finding.modules:
        location["logicalLocations"] = [
            {"fullyQualifiedName": _line(words.module_name(calls.pattern), 200), "kind": "module"}
            for calls in finding.modules[:20]
        ]
    return [location] if location else []


def _physical(site: Site) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(_line(site.file, 400), safe="/")}}
    if site.line >= 1:
        place["region"] = {"startLine": site.line}
        if site.code:
            place["region"]["snippet"] = {"text": _line(site.code, 400)}
    return place
