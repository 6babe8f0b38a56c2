"""What a run looked at: of anything else neither "clean" nor "fixed" may be said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from smoketest.findings.report import Report

__all__ = ["FALLBACKS_NOT_CHECKED", "Coverage", "Part", "part_of"]

FALLBACKS_NOT_CHECKED = "fallbacks"
"""A `NotChecked` whose ``what`` begins with this says that no witness could tell where ops ran: never "clean"."""

Part = Literal["eager", "compile", "parity"]


def part_of(rule: str) -> Part:
    """The part of a check that makes findings of a rule."""
    if rule == "NST106":
        return "parity"
    return "compile" if rule.startswith("NST2") else "eager"


@dataclass(frozen=True)
class Coverage:
    """Which parts ran to their ends.

    Attributes:
        eager: the eager part did.
        compile: the compile probe did.
        parity: the comparison with plain CPU did.
        fallbacks: it could be told where ops ran.
    """

    eager: bool
    compile: bool
    parity: bool
    fallbacks: bool = True

    def sees(self, rule: str) -> bool:
        """Whether a finding of this rule would have been found, had there been one."""
        if rule in ("NST101", "NST102") and not self.fallbacks:
            return False
        return bool(getattr(self, part_of(rule)))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that ran to their ends."""
        names: tuple[Part, ...] = ("eager", "compile", "parity")
        return tuple(name for name in names if getattr(self, name))

    @classmethod
    def of(cls, report: Report) -> Coverage:
        """What a report covers."""
        unseen = any(entry.what.startswith(FALLBACKS_NOT_CHECKED) for entry in report.not_checked)
        return cls(
            eager=report.eager.status == "ran",
            compile=report.compile.status == "ran",
            parity=report.parity.status == "ran",
            fallbacks=report.device.kind != "cpu" and not unseen,
        )
