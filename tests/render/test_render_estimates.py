"""Fit and cost in sentences."""

from __future__ import annotations

import pytest
from sample_reports import base, equivariant_findings, steps

from smoketest.findings.cost import Plan, cost
from smoketest.findings.fit import Sizes, Steps, estimate
from smoketest.findings.report import DeviceInfo, EagerPart, FitPart
from smoketest.render import estimates, render

GIB = 2**30
SIZES = Sizes(2**30, 4 * GIB, 0, 4 * GIB, 8 * GIB, "AdamW")


def fit(sizes: Sizes = SIZES, of_a_step: Steps | None = None) -> list[str]:
    part = estimate(sizes, of_a_step, built=True, host_bytes=0, host_limit=None)
    return estimates.fit(base("x", fit=part))


def test_memory_is_told_by_what_holds_it() -> None:
    assert fit(of_a_step=Steps(2 * GIB)) == [
        "Memory (estimate): weights and buffers 4.0 GiB, gradients 4.0 GiB, optimizer state 8.0 GiB, activations"
        " 2.0 GiB: 18.0 GiB, 75 % of the 24.0 GiB of a logical core."
    ]
    assert fit(of_a_step=Steps(9 * GIB)) == [
        "Memory (estimate): weights and buffers 4.0 GiB, gradients 4.0 GiB, optimizer state 8.0 GiB, activations"
        " 9.0 GiB: 25.0 GiB, which does not fit in the 24.0 GiB of a logical core."
    ]


def test_what_is_not_known_is_said_and_nothing_is_said_to_fit() -> None:
    assert fit() == [
        "Memory (estimate): weights and buffers 4.0 GiB, gradients 4.0 GiB, optimizer state 8.0 GiB (not known:"
        " activations): 16.0 GiB, 67 % of the 24.0 GiB of a logical core by what is known."
    ]


def test_little_memory_is_not_said_to_be_none() -> None:
    (sentence,) = fit(Sizes(4, 16, 0, 16, 32, "AdamW"), Steps(100))
    assert sentence.endswith("164 B, less than 1 % of the 24.0 GiB of a logical core.")


def test_kernels_are_told_with_how_long_they_may_take_and_whether_shapes_move() -> None:
    start = "First step (estimate): 50 kernels to compile, by distinct op, shapes and dtypes; 100 s to 50 min if each"
    start += " takes the 2 to 60 s that people reported for one."
    assert fit(of_a_step=Steps(0, 0, 50, 0))[1] == f"{start} The step after needs no new ones."
    moving = ("aten::mm on f32[8, 4], f32[4, 4], after f32[6, 4], f32[4, 4]", "b", "c", "d")
    assert fit(of_a_step=Steps(0, 0, 50, 6, moving))[1] == (
        f"{start} The step after, with another batch, needs 6 new: {moving[0]}; b; c; and 3 more."
    )


def test_a_model_that_was_not_sized_is_not_spoken_of() -> None:
    report = base("x", fit=FitPart(reason="not sized"))
    assert estimates.lines(report) == []
    assert "Fit and cost" not in render(report, "terminal") + render(report, "markdown") + render(report, "html")


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_every_form_for_people_tells_the_memory(form: str) -> None:
    part = estimate(SIZES, Steps(2 * GIB), built=True, host_bytes=0, host_limit=None)
    assert "75 % of the" in render(base("x", fit=part), form)  # type: ignore[arg-type]


def test_cost_on_the_emulated_device_is_counts_and_why_there_is_no_money() -> None:
    report = base("x")
    counted = cost(report.device, report.eager, equivariant_findings(), Plan(100, 2.0))
    assert estimates.cost(report.model_copy(update={"cost": counted})) == [
        "Cost of the fallbacks (predicted): at least 16 calls per step on the CPU, at least 18.6 MiB per step to and"
        " from the host.",
        "No milliseconds, hours or money: times of the emulated device are this machine's, and tell nothing of a"
        " Trainium's.",
    ]


def test_cost_on_a_device_is_time_and_with_a_plan_hours_and_money() -> None:
    device = DeviceInfo(kind="neuron")
    eager = EagerPart(status="ran", steps=steps("timed", "traced"))  # 33.75 ms
    findings = tuple(f.model_copy(update={"ms_per_step": 1.0}) for f in equivariant_findings() if f.rule == "NST101")
    report = base("x", device=device, eager=eager, cost=cost(device, eager, findings, Plan(1_000_000, 2.0)))
    assert estimates.cost(report)[1] == (
        "Time (measured): 33.8 ms per step, at most 5.0 ms (15 %) of it in fallbacks; 1,000,000 steps take 9.4 h and"
        " cost 18.75, of which fallbacks at most 1.4 h and 2.78."
    )
    report = base("x", device=device, eager=eager, cost=cost(device, eager, findings))
    assert estimates.cost(report)[1:] == [
        "Time (measured): 33.8 ms per step, at most 5.0 ms (15 %) of it in fallbacks.",
        "Not given: hours and money need --plan-steps and --price-per-hour.",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"), [(2.0, "2 s"), (119.0, "119 s"), (120.0, "2 min"), (7140.0, "119 min"), (9000.0, "2.5 h")]
)
def test_durations(seconds: float, words: str) -> None:
    assert estimates.duration(seconds) == words
