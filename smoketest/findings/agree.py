"""One truth in one report: what the compile probe showed of an op holds for its fallback in the eager part too."""

from __future__ import annotations

from collections.abc import Sequence

from smoketest.findings.identity import functional_base
from smoketest.findings.report import Finding
from smoketest.findings.wordings import POSSIBLE_FALLBACK, UNLOWERABLE_FALLBACK

__all__ = ["agreed"]


def agreed(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, possible fallbacks (NST101) of ops that the same run showed not to lower on these grounds.

    The table of ops that cannot be lowered is made of samples, and lacks those that no sample reaches: random ops,
    and backward ops that no forward sample has. Without a compile probe such a fallback stays possible. Ids, order and
    number of the findings are as before.

    Args:
        findings: of all parts of one run.
    """
    refused = {
        functional_base(found.op)
        for found in findings
        if found.rule == "NST201" and found.op is not None and found.grounds == "cannot_lower"
    }
    return tuple(_refused(found) if _is_possible(found, refused) else found for found in findings)


def _is_possible(found: Finding, refused: set[str]) -> bool:
    possible = found.rule == "NST101" and found.grounds == "no_kernel_known"
    return possible and found.op is not None and functional_base(found.op) in refused


def _refused(found: Finding) -> Finding:
    message = found.message
    for before, after in zip(POSSIBLE_FALLBACK, UNLOWERABLE_FALLBACK, strict=True):
        message = message.replace(before, after)
    return found.model_copy(update={"grounds": "cannot_lower", "message": message})
