"""What the fallbacks of a step cost, out of a report's numbers: a pure function.

Calls and bytes are facts of any device. Time is not: an emulated device takes this machine's time. Milliseconds, hours
and money are therefore given from a device run only (design, section 2), and the part says why they are not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from smoketest.findings.report import CostPart, DeviceInfo, EagerPart, Finding, Step

__all__ = ["Plan", "cost"]

_FALLBACK, _HOST_SYNC = "NST101", "NST103"
_HOUR_MS = 3_600_000.0


@dataclass(frozen=True)
class Plan:
    """The job that is to be booked.

    Attributes:
        steps: optimizer steps it makes.
        price_per_hour: of the machine, in any currency.
    """

    steps: int | None = None
    price_per_hour: float | None = None


def cost(device: DeviceInfo, eager: EagerPart, findings: Iterable[Finding], plan: Plan | None = None) -> CostPart:
    """What the CPU takes over in a step, and what that means for the booked job.

    Args:
        device: which one ran the steps.
        eager: the eager part, for the times of its timed steps.
        findings: of the check; those of setup cost nothing per step.
        plan: the job to book, as far as it was told.
    """
    plan = plan or Plan()
    in_step = [finding for finding in findings if finding.phase != "setup"]
    fallbacks = [finding for finding in in_step if finding.rule == _FALLBACK]
    traced = any(step.role == "traced" for step in eager.steps)
    counts = [finding.calls_per_step for finding in fallbacks]
    part = CostPart(
        calls_per_step=_total(counts, traced),
        bytes_per_step=_total([finding.bytes_per_step for finding in fallbacks], traced),
        # Of a step that did not come to its end the counts are lower bounds, whatever each of them says.
        exact=_exact(fallbacks) if traced else False if fallbacks else None,
        host_syncs_per_step=_total([f.calls_per_step for f in in_step if f.rule == _HOST_SYNC], traced),
        plan_steps=plan.steps,
        price_per_hour=plan.price_per_hour,
    )
    step_ms = _step_ms(eager.steady())
    why_not = _why_not(device, eager, step_ms)
    if why_not is not None or step_ms is None:
        return part.model_copy(update={"why_not": why_not})
    return part.model_copy(update=_times(step_ms, fallbacks, traced, plan))


def _times(step_ms: float, fallbacks: Sequence[Finding], traced: bool, plan: Plan) -> dict[str, float | str | None]:
    """Milliseconds of a step and of its fallbacks, and the hours and money that follow from them."""
    known = [finding.ms_per_step for finding in fallbacks if finding.ms_per_step is not None]
    complete = traced and len(known) == len(fallbacks)
    lost = sum(known) if complete else None
    share = min(1.0, lost / step_ms) if lost is not None and step_ms > 0 else None
    hours = plan.steps * step_ms / _HOUR_MS if plan.steps is not None else None
    money = hours * plan.price_per_hour if hours is not None and plan.price_per_hour is not None else None
    missing = [] if complete else ["the time of the fallbacks was not taken for each of them"]
    if plan.steps is None:
        missing.append("hours and money need --plan-steps and --price-per-hour")
    elif plan.price_per_hour is None:
        missing.append("money needs --price-per-hour")
    return {
        "step_ms": step_ms,
        "fallback_ms": lost,
        "share": share,
        "hours": hours,
        "money": money,
        "fallback_hours": hours * share if hours is not None and share is not None else None,
        "fallback_money": money * share if money is not None and share is not None else None,
        "why_not": "; ".join(missing) or None,
    }


def _why_not(device: DeviceInfo, eager: EagerPart, step_ms: float | None) -> str | None:
    """Why there is no time at all to tell; None where there is."""
    if device.kind == "emulated":
        return "times of the emulated device are this machine's, and tell nothing of a Trainium's"
    if device.kind == "cpu":
        return "times of plain CPU tell nothing of a Trainium's"
    if not any(step.role == "timed" for step in eager.steps):
        return "no timed step came to its end"
    if step_ms is None:
        return "a custom train_step is not split, and its phases are not timed"
    return None


def _step_ms(steps: Iterable[Step]) -> float | None:
    """Median of the timed steps; None where a step was not split into phases."""
    whole = []
    for step in steps:
        parts = (step.forward_ms, step.backward_ms, step.optimizer_ms)
        if step.role == "timed":
            if any(part is None for part in parts):
                return None
            whole.append(sum(part for part in parts if part is not None))
    return median(whole) if whole else None


def _total(counts: Sequence[int | None], traced: bool) -> int | None:
    """The sum of what is known; 0 only where a traced step found nothing to count."""
    known = [count for count in counts if count is not None]
    if not known and (counts or not traced):
        return None
    return sum(known)


def _exact(fallbacks: Iterable[Finding]) -> bool:
    return all(
        finding.exact is not False and finding.calls_per_step is not None and finding.bytes_per_step is not None
        for finding in fallbacks
    )
