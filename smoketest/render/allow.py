"""The entry of ``gate.allow`` that accepts findings: what a reader pastes into the check."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable

from smoketest.findings.report import Finding
from smoketest.render.words import clean

__all__ = ["entries"]

_NEVER = ("NST301", "NST303")
"""Without a device there is no run: nothing can be accepted (their pages say so)."""

_MOST = 4
_LONGEST = 300


def entries(findings: Iterable[Finding]) -> list[str]:
    """Lines of YAML that accept `findings`, an entry for each file they are in; the reason is left to the reader.

    None where they cannot be accepted, or where a name in them cannot be written down as it is.

    Args:
        findings: alike in rule and op. What is accepted already needs no entry.
    """
    asked = [finding for finding in findings if finding.verdict != "allow" and finding.rule not in _NEVER]
    lines = list(dict.fromkeys(line for finding in asked if (line := _entry(finding)) is not None))
    if not lines:
        return []
    more = [f"    # and {len(lines) - _MOST:,} more files"] if len(lines) > _MOST else []
    return ["gate:", "  allow:", *lines[:_MOST], *more]


def _entry(finding: Finding) -> str | None:
    if not finding.rule.isalnum():  # written down as it is; a report of elsewhere may hold any text
        return None
    given = {"op": finding.op, "rule": finding.rule, **_where(finding)}
    patterns = {key: value if key == "rule" else glob.escape(value) for key, value in given.items() if value}
    if any(clean(text, _LONGEST) != text for text in patterns.values()):
        return None
    written = ", ".join(
        f"{key}: {text if key == 'rule' else json.dumps(text, ensure_ascii=False)}" for key, text in patterns.items()
    )
    return f'    - {{{written}, reason: ""}}  # say why'


def _where(finding: Finding) -> dict[str, str]:
    """The file; of a finding without one its module, where there is one alone."""
    if finding.site is not None:
        return {"site": finding.site.file}
    return {"module": finding.modules[0].pattern} if len(finding.modules) == 1 else {}
