"""What the doctor tells of a run's machine: the environment section of its report, and findings NST301 to NST304.

A run on the emulated device or on plain CPU asks it nothing: the machine needs no torch-neuronx for those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from smoketest.doctor import Diagnosis, Line, Topic, changing_settings, examine, examine_quickly
from smoketest.doctor.facts import ABSENT
from smoketest.findings import RULES, Finding, Report
from smoketest.findings.identity import finding_id
from smoketest.findings.report import EnvironmentLine
from smoketest.supervise.outcome import Failed, Record

__all__ = ["Surroundings", "is_unfit", "look_around"]

_UNFIT = 3
_PRODUCT, _VERSIONS, _DEVICE, _SETTING = "NST301", "NST302", "NST303", "NST304"
_RULES = {
    Topic.NEURONX: _PRODUCT,
    Topic.PAIR: _VERSIONS,
    Topic.BESIDE: _VERSIONS,
    Topic.PYTHON: _VERSIONS,
    Topic.TORCH: _VERSIONS,
}
_WITHOUT_EFFECT = ("TORCH_DEVICE_BACKEND_AUTOLOAD",)
"""A run imports torch_neuronx itself."""


@dataclass(frozen=True)
class Surroundings:
    """What was found around a run.

    Attributes:
        lines: of the doctor, for the report's environment section.
        findings: not judged yet.
        diagnosis: the doctor's whole one, where the device could not be used; else None.
    """

    lines: tuple[EnvironmentLine, ...] = ()
    findings: tuple[Finding, ...] = ()
    diagnosis: Diagnosis | None = None

    def told(self, eager: Record) -> Record:
        """The eager part with these findings beside its own."""
        if not self.findings:
            return eager
        return replace(eager, seen=replace(eager.seen, findings=(*eager.seen.findings, *self.findings)))

    def on(self, report: Report) -> Report:
        """The report with these lines in its environment section."""
        if not self.lines:
            return report
        return report.model_copy(update={"environment": report.environment.model_copy(update={"lines": self.lines})})


def is_unfit(record: Record) -> bool:
    """Whether the part ended since its device cannot be used here, and the worker left the advice to the doctor."""
    outcome = record.outcome
    return isinstance(outcome, Failed) and outcome.error.exit_code == _UNFIT and not outcome.error.is_advised


def look_around(
    eager: Record,
    compiled: Record,
    *,
    environ: Mapping[str, str] = os.environ,
    whole: Callable[[], Diagnosis] = examine,
    quick: Callable[..., tuple[Line, ...]] = examine_quickly,
) -> Surroundings:
    """Ask the doctor where the real device was used, or could not be.

    Args:
        eager: over.
        compiled: the compile probe, over; speaks for the run where the eager part was left out.
        environ: the run's environment variables.
        whole: examines the machine; takes seconds.
        quick: examines what needs neither torch nor the device; a fraction of a second.
    """
    if is_unfit(eager):
        diagnosis = whole()
        return Surroundings(_shown(diagnosis.lines), _unfit_findings(eager, diagnosis), diagnosis)
    facts = eager.seen.facts or compiled.seen.facts
    if facts is None or facts.device.kind != "neuron":
        return Surroundings()
    lines = quick(environ, torch=facts.environment.torch, usable=True)
    faults = tuple(_of_line(rule, line) for line in lines if (rule := _rule(line)))
    return Surroundings(_shown(lines), faults + _settings(environ, facts.environment.set_by_run))


def _unfit_findings(eager: Record, diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """What torch-neuronx is, or is not fit for; where it is the right one, that the device does not work."""
    if any(line.topic == Topic.NEURONX and line.found == ABSENT for line in diagnosis.lines):
        return (_of_device(eager, diagnosis),)
    faults = tuple(_of_line(rule, line) for line in diagnosis.lines if (rule := _rule(line)))
    return faults or (_of_device(eager, diagnosis),)


def _rule(line: Line) -> str | None:
    return _RULES.get(line.topic) if line.verdict == "fail" else None


def _of_line(rule: str, line: Line) -> Finding:
    return _finding(rule, line.topic, line.found, line.advice)


def _of_device(eager: Record, diagnosis: Diagnosis) -> Finding:
    assert isinstance(eager.outcome, Failed)
    cause = diagnosis.cause
    advice = cause.advice if cause is not None else eager.outcome.error.hint or ""
    return _finding(_DEVICE, Topic.USABLE, eager.outcome.error.message, advice)


def _settings(environ: Mapping[str, str], set_by_run: Mapping[str, str]) -> tuple[Finding, ...]:
    return tuple(
        _finding(_SETTING, setting.name, f"{setting.name}={value}: {setting.effect}", RULES[_SETTING].remedy)
        for setting, value in changing_settings(environ)
        if setting.name not in (*set_by_run, *_WITHOUT_EFFECT)
    )


def _finding(rule: str, about: str, message: str, advice: str) -> Finding:
    """A finding about the machine: it has no op and no line, and is told from its like by what it is about."""
    return Finding(
        id=finding_id(rule, None, None, None, about, 0),
        rule=rule,
        class_=RULES[rule].class_,
        witnesses=("doctor",),
        message=message,
        remedy=advice or RULES[rule].remedy,
    )


def _shown(lines: tuple[Line, ...]) -> tuple[EnvironmentLine, ...]:
    return tuple(
        EnvironmentLine(
            topic=line.topic, found=line.found, expected=line.expected, verdict=line.verdict, advice=line.advice
        )
        for line in lines
    )
