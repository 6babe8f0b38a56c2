"""Findings of one cause: an op that falls back, its backward, and its lowering are mended by one change of a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from smoketest.findings.identity import functional_base
from smoketest.findings.report import Finding

__all__ = ["dependents", "leads", "tied"]

_ABOUT_AN_OP = ("NST101", "NST104", "NST201", "NST206", "NST207")
_PHASES = ("setup", "forward", "backward", "optimizer", None)
_BACKWARD = re.compile(r"_(backward|double_backward)(_\w+)?$|_forward$")

_Key = tuple[str, str, int]
"""Family of the op, file and line."""


def leads(findings: Iterable[Finding]) -> dict[str, Finding]:
    """By the id of a finding, the one of the same op and line that is to be mended first; the first ones are not there.

    Ops are the same whatever their overload, and the backward of an op goes with it. The first is a denied one where
    there is one, that of the earliest phase, in eager mode before under torch.compile. Findings that are allowed, or
    have no line, are tied to none.
    """
    given = sorted((f for f in findings if _counts(f)), key=_order)
    first: dict[_Key, Finding] = {}
    found: dict[str, Finding] = {}
    for finding in given:
        keys = _keys(finding)
        lead = next((first[key] for key in keys if key in first), finding)
        for key in keys:
            first.setdefault(key, lead)
        if lead is not finding:
            found[finding.id] = lead
    return found


def dependents(findings: Sequence[Finding], tied_to: Mapping[str, Finding]) -> dict[str, list[Finding]]:
    """By the id of a finding, those of the same verdict that it is to be mended before, in the order given.

    Args:
        findings: all of a report.
        tied_to: of them, as `leads` gives it.
    """
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        lead = tied_to.get(finding.id)
        if lead is not None and lead.verdict == finding.verdict:
            found.setdefault(lead.id, []).append(finding)
    return found


def tied(numbers: Iterable[int]) -> str:
    """What is said of findings that others of these numbers are to be mended before."""
    shown = ", ".join(f"{number:,}" for number in sorted(set(numbers)))
    return f"same op and line as {shown}: mend that first, and see whether this one is gone with it"


def _order(finding: Finding) -> tuple[bool, int, str, str, str]:
    return (finding.verdict != "deny", _PHASES.index(finding.phase), finding.rule, finding.op or "", finding.id)


def _counts(finding: Finding) -> bool:
    about_an_op = finding.rule in _ABOUT_AN_OP and finding.op is not None
    return about_an_op and finding.site is not None and finding.verdict != "allow"


def _keys(finding: Finding) -> list[_Key]:
    assert finding.site is not None
    names = dict.fromkeys(_family(name) for name in (finding.op, finding.called_as) if name)
    return [(name, finding.site.file, finding.site.line) for name in names]


def _family(op: str) -> str:
    """``aten::_ctc_loss_backward.Tensor`` and ``aten::_ctc_loss`` are of ``aten::ctc_loss``."""
    namespace, _, name = functional_base(op).partition("::")
    return f"{namespace}::{_BACKWARD.sub('', name).strip('_')}"
