"""What reports say of the comparison with plain CPU."""

from __future__ import annotations

import pytest
from sample_reports import base, judged

from smoketest.findings import Observation, merge
from smoketest.findings.report import ParityPart
from smoketest.render import render


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            ParityPart(status="ran", max_relative_error=2.5e-7, steps=5, tensors=305),
            "Comparison with CPU: ran; losses of 5 steps, largest relative error 2.5e-07; 305 tensors of the traced"
            " step.",
        ),
        (
            ParityPart(status="ran", max_relative_error=0.0, steps=5),
            "Comparison with CPU: ran; losses of 5 steps, largest relative error 0.0e+00; no tensors.",
        ),
        (
            ParityPart(status="ran", max_relative_error=7e-3, steps=5, tolerance=2e-2, precision="bfloat16"),
            "Comparison with CPU: ran; losses of 5 steps, largest relative error 7.0e-03; no tensors; 2.0e-02 is"
            " tolerated, and what rounding of bfloat16 does.",
        ),
        (ParityPart(status="crashed", reason="the reference worker crashed"), "Comparison with CPU: crashed"),
    ],
)
def test_it_is_said_how_much_was_compared(part: ParityPart, said: str) -> None:
    assert said in render(judged(base("p", parity=part)), "markdown")


def test_a_difference_is_no_matter_of_counts() -> None:
    found = merge([Observation(rule="NST106", phase="backward", module="h.0.mlp", message="the gradient differs")])
    out = render(judged(base("p", findings=found)), "terminal", width=120)
    assert "count not known" not in out
    assert "in the whole run" in out
