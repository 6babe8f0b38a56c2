"""Checks as JUnit XML, for the test views of CI systems: one suite a check, one case a part and finding class.

The form is the one that Jenkins' xunit plugin describes as junit-10, which pytest and Maven write too.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence

from smoketest.findings.parts import PARTS, PartName, part_of
from smoketest.findings.report import Finding, Report
from smoketest.findings.rules import RULES
from smoketest.render import words
from smoketest.render.summary import Row

__all__ = ["render"]

_MOST_ROWS = 200
_NOT_CHECKED = 4_000
"""Characters of what was not checked: reports say why."""
_RUNS = "runs to its end"
_SPOKEN = {"failed": "failed", "crashed": "crashed", "timed_out": "timed out", "skipped": "was skipped"}


def render(results: Sequence[Report | Row]) -> str:
    """The checks of a run as one document, ending in a newline.

    A case fails where a finding of its class is denied; warnings and allowed findings are told in its output. A part
    that came to no end is an error, and the classes it would have looked for are skipped, never passed.

    Args:
        results: a report each; of a check that came to none its row in the summary.
    """
    suites = ET.Element("testsuites", name="smoketest")
    for result in results:
        suites.append(_suite(result) if isinstance(result, Report) else _without_report(result))
    for name in ("tests", "failures", "errors"):
        suites.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _suite(report: Report) -> ET.Element:
    name = words.clean(report.name, 200)
    suite = ET.Element("testsuite", name=name, timestamp=words.clean(report.created.removesuffix("Z"), 40))
    properties = ET.SubElement(suite, "properties")
    for key, value in _properties(report):
        ET.SubElement(properties, "property", name=key, value=words.clean(value, 600))
    for part in PARTS:
        suite.extend(_part(report, part, f"{name}.{part}"))
    return _counted(suite)


def _without_report(row: Row) -> ET.Element:
    name = words.clean(row.name, 200)
    suite = ET.Element("testsuite", name=name)
    case = ET.SubElement(suite, "testcase", classname=name, name="has a report")
    ET.SubElement(case, "error", type=f"exit {row.exit_code}", message=words.clean(row.headline, 600))
    return _counted(suite)


def _counted(suite: ET.Element) -> ET.Element:
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(tag) is not None for case in cases)))
    return suite


def _properties(report: Report) -> list[tuple[str, str]]:
    told = {
        "headline": report.headline,
        "status": report.status,
        "exit_code": str(report.exit_code),
        "device": words.device(report),
        "torch": report.environment.torch,
        "torch_neuronx": report.environment.torch_neuronx,
        "command": report.command,
        "not_checked": words.clean("; ".join(entry.what for entry in report.not_checked), _NOT_CHECKED),
    }
    return [(key, value) for key, value in told.items() if value]


def _part(report: Report, part: PartName, classname: str) -> list[ET.Element]:
    """The case of the part itself, then one for each class of findings it looks for."""
    status, reason = getattr(report, part).status, getattr(report, part).reason or ""
    cases = [ET.Element("testcase", classname=classname, name=_RUNS)]
    first = words.clean(reason.partition("\n")[0], 600)
    if status == "skipped":
        ET.SubElement(cases[0], "skipped", message=first)
    elif status != "ran":
        error = ET.SubElement(cases[0], "error", type=status, message=first)
        error.text = "\n".join(words.clean(line, 300) for line in reason.splitlines()[:200])
    for class_ in dict.fromkeys(rule.class_ for rule in RULES.values() if part_of(rule.id) == part):
        found = [f for f in words.worst_first(report.findings) if f.class_ == class_ and part_of(f.rule) == part]
        if not found and not _looked_for(part, class_, report):
            continue
        case = ET.Element("testcase", classname=classname, name=class_)
        not_run = f"the {part} part {_SPOKEN[status]}" if status != "ran" else _not_checked(class_, report)
        _fill(case, found, report, not_run)
        cases.append(case)
    return cases


def _looked_for(part: PartName, class_: str, report: Report) -> bool:
    """Whether a run looks for a class at all: a case that passes would claim it.

    The machine is examined for a real device only, and compiled results (NST208) are compared there, and not always.
    """
    return (part, class_) != ("compile", "parity") and (class_ != "environment" or report.device.kind == "neuron")


def _not_checked(class_: str, report: Report) -> str | None:
    """Why nobody looked for findings of a class in a part that ran; None where somebody did."""
    if class_ not in ("fallback", "hidden"):
        return None
    if report.device.kind == "cpu":
        return "plain CPU runs every op"
    why = (entry.why for entry in report.not_checked if entry.what.startswith("fallbacks"))
    return next((f"where ops ran was not checked: {reason}" for reason in why), None)


def _fill(case: ET.Element, found: Sequence[Finding], report: Report, not_run: str | None) -> None:
    denied = [finding for finding in found if finding.verdict == "deny"]
    rest = [finding for finding in found if finding.verdict != "deny"]
    if denied:
        rules = words.clean(", ".join(sorted({finding.rule for finding in denied})), 200)
        message = f"{words.counted(len(denied), 'finding')} denied ({rules})"
        failure = ET.SubElement(case, "failure", type=rules, message=message)
        failure.text = _rows(denied, report)
    elif not_run is not None:
        ET.SubElement(case, "skipped", message=not_run)
    if rest:
        counts: Counter[str] = Counter(finding.verdict or "not judged" for finding in rest)
        told = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())
        ET.SubElement(case, "system-out").text = f"{told}\n{_rows(rest, report)}"


def _rows(findings: Sequence[Finding], report: Report) -> str:
    shown = ["\n".join(words.row(finding, report.device.kind)) for finding in findings[:_MOST_ROWS]]
    left = len(findings) - len(shown)
    return "\n".join([*shown, *([f"… and {left:,} more, in report.json"] if left else [])])
