"""What a run looked at: of anything else neither "clean" nor "fixed" may be said."""

from __future__ import annotations

from dataclasses import dataclass

from smoketest.findings.parts import PARTS, PartName, part_of
from smoketest.findings.report import Report

__all__ = ["FALLBACKS_NOT_CHECKED", "Coverage"]

FALLBACKS_NOT_CHECKED = "fallbacks"
"""A `NotChecked` whose ``what`` begins with this says that no witness could tell where ops ran: never "clean"."""

_OF_GRAPHS = ("NST201", "NST202", "NST203", "NST206", "NST207")


@dataclass(frozen=True)
class Coverage:
    """Which parts ran to their ends.

    Attributes:
        eager: the eager part did.
        compile: the compile probe did.
        parity: the comparison with plain CPU did.
        fallbacks: it could be told where ops ran.
        graphs: the compile probe had a graph to lower.
    """

    eager: bool
    compile: bool
    parity: bool
    fallbacks: bool = True
    graphs: bool = True

    def sees(self, rule: str) -> bool:
        """Whether a finding of this rule would have been found, had there been one."""
        if rule in ("NST101", "NST102") and not self.fallbacks:
            return False
        if rule in _OF_GRAPHS and not self.graphs:
            return False
        return bool(getattr(self, part_of(rule)))

    @property
    def parts(self) -> tuple[PartName, ...]:
        """The parts that ran to their ends."""
        return tuple(name for name in PARTS if getattr(self, name))

    @classmethod
    def of(cls, report: Report) -> Coverage:
        """What a report covers."""
        unseen = any(entry.what.startswith(FALLBACKS_NOT_CHECKED) for entry in report.not_checked)
        return cls(
            eager=report.eager.status == "ran",
            compile=report.compile.status == "ran",
            parity=report.parity.status == "ran",
            fallbacks=report.device.kind != "cpu" and not unseen,
            graphs=bool(report.compile.graphs),
        )
