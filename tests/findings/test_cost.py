"""What fallbacks cost, out of a report's numbers."""

from __future__ import annotations

from typing import Any

import pytest

from smoketest.findings import Observation, merge
from smoketest.findings.cost import Plan, cost
from smoketest.findings.report import DeviceInfo, EagerPart, Finding, Step

NEURON, EMULATED = DeviceInfo(kind="neuron"), DeviceInfo(kind="emulated")


def fallback(op: str = "aten::sort", **given: Any) -> Observation:
    defaults: dict[str, Any] = {"phase": "forward", "calls": 2, "bytes": 1000, "exact": True, "ms": 30.0}
    return Observation("NST101", op=op, **(defaults | given))


def eager(*milliseconds: float | None, traced: bool = True) -> EagerPart:
    """An eager part whose timed steps took these times, a tenth of each in the optimizer."""
    steps = [Step(index=0, role="warmup", forward_ms=9e9, backward_ms=9e9, optimizer_ms=9e9)]
    for ms in milliseconds:
        parts = (None, None, None) if ms is None else (ms * 0.4, ms * 0.5, ms * 0.1)
        steps.append(
            Step(index=len(steps), role="timed", forward_ms=parts[0], backward_ms=parts[1], optimizer_ms=parts[2])
        )
    if traced:
        steps.append(Step(index=len(steps), role="traced", forward_ms=9e9, backward_ms=9e9, optimizer_ms=9e9))
    return EagerPart(status="ran", steps=tuple(steps))


def found(*observations: Observation) -> tuple[Finding, ...]:
    return merge(observations)


def test_calls_and_bytes_are_those_of_the_fallbacks_in_the_step() -> None:
    findings = found(
        fallback(),
        fallback("aten::atan2", phase="backward", calls=3, bytes=500),
        fallback("aten::uniform_", phase="setup", calls=100, bytes=10**9),
        Observation("NST103", op="aten::_local_scalar_dense", phase="forward", calls=4, exact=True),
        Observation("NST201", op="aten::sort", calls=7),
    )
    part = cost(EMULATED, eager(100.0), findings)
    assert (part.calls_per_step, part.bytes_per_step, part.exact, part.host_syncs_per_step) == (5, 1500, True, 4)


def test_without_fallbacks_the_cost_is_zero_and_without_a_traced_step_it_is_not_known() -> None:
    part = cost(EMULATED, eager(100.0), ())
    assert (part.calls_per_step, part.bytes_per_step, part.exact, part.host_syncs_per_step) == (0, 0, True, 0)
    part = cost(EMULATED, eager(100.0, traced=False), ())
    assert (part.calls_per_step, part.bytes_per_step, part.exact, part.host_syncs_per_step) == (None, None, None, None)


def test_what_was_counted_in_a_step_that_did_not_come_to_its_end_is_a_lower_bound() -> None:
    part = cost(EMULATED, eager(100.0, traced=False), found(fallback()))
    assert (part.calls_per_step, part.bytes_per_step, part.exact) == (2, 1000, False)


@pytest.mark.parametrize("missing", [{"calls": None}, {"bytes": None}, {"exact": False}])
def test_a_count_that_is_missing_or_a_lower_bound_makes_the_sum_one(missing: dict[str, Any]) -> None:
    part = cost(EMULATED, eager(100.0), found(fallback(), fallback("aten::atan2", **missing)))
    assert part.exact is False
    assert part.calls_per_step in (2, 4)


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (EMULATED, "times of the emulated device are this machine's, and tell nothing of a Trainium's"),
        (DeviceInfo(kind="cpu"), "times of plain CPU tell nothing of a Trainium's"),
    ],
)
def test_only_a_device_run_gives_time_and_money_and_the_part_says_why(device: DeviceInfo, why: str) -> None:
    part = cost(device, eager(100.0), found(fallback()), Plan(10_000, 20.0))
    times = (part.step_ms, part.fallback_ms, part.share, part.hours, part.money, part.fallback_hours)
    assert times == (None,) * 6
    assert part.fallback_money is None
    assert part.why_not == why
    assert (part.plan_steps, part.price_per_hour) == (10_000, 20.0)


def test_hours_and_money_follow_from_the_median_of_the_timed_steps() -> None:
    findings = found(fallback(ms=30.0), fallback("aten::atan2", ms=20.0))
    part = cost(NEURON, eager(190.0, 200.0, 5000.0), findings, Plan(360_000, 21.5))
    assert part.step_ms == pytest.approx(200.0)
    assert part.fallback_ms == 50.0
    assert part.share == pytest.approx(0.25)
    assert part.hours == pytest.approx(20.0)  # 360,000 steps of 0.2 s
    assert part.money == pytest.approx(430.0)
    assert part.fallback_hours == pytest.approx(5.0)
    assert part.fallback_money == pytest.approx(107.5)
    assert part.why_not is None


def test_more_time_in_fallbacks_than_the_step_takes_is_all_of_it() -> None:
    part = cost(NEURON, eager(20.0), found(fallback(ms=30.0)))
    assert (part.fallback_ms, part.share) == (30.0, 1.0)


def test_what_was_not_told_or_not_timed_is_named() -> None:
    part = cost(NEURON, eager(200.0), found(fallback(ms=None)), Plan(100, None))
    assert (part.fallback_ms, part.share, part.fallback_hours) == (None, None, None)
    assert part.hours == pytest.approx(100 * 0.2 / 3600)
    assert part.money is None
    assert part.why_not == "the time of the fallbacks was not taken for each of them; money needs --price-per-hour"
    part = cost(NEURON, eager(200.0), ())
    assert part.why_not == "hours and money need --plan-steps and --price-per-hour"
    assert (part.fallback_ms, part.share) == (0, 0.0)


def test_a_step_that_is_not_split_or_was_not_made_has_no_time() -> None:
    part = cost(NEURON, eager(None), (), Plan(1, 1.0))
    assert part.why_not == "a custom train_step is not split, and its phases are not timed"
    part = cost(NEURON, eager(), (), Plan(1, 1.0))
    assert part.why_not == "no timed step came to its end"
    assert part.hours is None
