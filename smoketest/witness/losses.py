"""Losses that are not finite: NST105."""

from __future__ import annotations

from collections.abc import Sequence

from smoketest.findings import Observation
from smoketest.findings.report import Step

__all__ = ["first_not_finite", "not_finite"]


def first_not_finite(steps: Sequence[Step]) -> Step | None:
    """The first step whose loss is NaN or infinite; a `Step` has no loss then."""
    return next((step for step in steps if step.loss is None), None)


def not_finite(steps: Sequence[Step], planned: int, on_cpu: str) -> list[Observation]:
    """The observation for steps whose loss is not finite; none where all are.

    Args:
        steps: those that are over.
        planned: how many the run makes.
        on_cpu: what plain CPU gives in the first of them, a clause.
    """
    first = first_not_finite(steps)
    if first is None:
        return []
    count = sum(step.loss is None for step in steps)
    return [
        Observation(
            rule="NST105",
            phase="forward",
            witnesses=frozenset({"loss"}),
            message=(
                f"the loss is NaN or infinite in {count} of {len(steps)} steps, first in step {first.index + 1} of "
                f"{planned} ({first.role}); {on_cpu}. Which op made the value is not looked for in this version"
            ),
        )
    ]
