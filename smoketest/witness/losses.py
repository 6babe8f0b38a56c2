"""Losses and gradients that are not finite: NST105."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smoketest.findings import Observation, SitePolicy
from smoketest.findings.report import Step
from smoketest.witness.nonfinite import Maker

__all__ = ["Cause", "first_not_finite", "not_finite"]


@dataclass(frozen=True)
class Cause:
    """What a step that was made again for it showed of a value that is not finite.

    Attributes:
        gradient: the parameter whose gradient it is; None for the loss.
        maker: the first op that made it; None where that was not found.
        problem: why it was not found.
    """

    gradient: str | None = None
    maker: Maker | None = None
    problem: str | None = None


def first_not_finite(steps: Sequence[Step]) -> Step | None:
    """The first step whose loss is NaN or infinite; a `Step` has no loss then."""
    return next((step for step in steps if step.loss is None), None)


def not_finite(
    steps: Sequence[Step], planned: int, on_cpu: str, cause: Cause | None, policy: SitePolicy
) -> list[Observation]:
    """The observation for steps whose loss or gradients are not finite; none where all are.

    Args:
        steps: those that are over.
        planned: how many the run makes.
        on_cpu: what plain CPU gives in the first of them, a clause.
        cause: what is known of how it came about; it alone tells of gradients.
        policy: makes a site out of a line.
    """
    first = first_not_finite(steps)
    if first is None and (cause is None or cause.gradient is None):
        return []
    maker = cause.maker if cause is not None else None
    return [
        Observation(
            rule="NST105",
            op=maker.op if maker is not None else None,
            called_as=maker.op if maker is not None else None,
            phase="forward" if maker is None else maker.phase,
            site=policy.site(*maker.line) if maker is not None and maker.line is not None else None,
            module=maker.module if maker is not None else None,
            witnesses=frozenset({"loss" if first is not None else "gradient"} | ({"dispatch"} if maker else set())),
            message=f"{_what(steps, first, planned, on_cpu, cause)}; {_how(cause)}",
        )
    ]


def _what(steps: Sequence[Step], first: Step | None, planned: int, on_cpu: str, cause: Cause | None) -> str:
    if first is None:
        name = cause.gradient if cause is not None else None
        return f"the gradient of {name} is NaN or infinite in step {planned} of {planned} (traced), and the loss is not"
    count = sum(step.loss is None for step in steps)
    return (
        f"the loss is NaN or infinite in {count} of {len(steps)} steps, first in step {first.index + 1} of "
        f"{planned} ({first.role}); {on_cpu}"
    )


def _how(cause: Cause | None) -> str:
    if cause is None:
        return "which op made the value has not been looked for yet"
    if cause.maker is None:
        return f"which op made the value is not known: {cause.problem}"
    maker = cause.maker
    made = "a NaN" if maker.is_nan else "an infinity"
    where = "" if cause.gradient is None else f", which reached the gradient of {cause.gradient}"
    return f"{maker.op} was the first op to make {made}, out of {maker.out_of}{where}"
