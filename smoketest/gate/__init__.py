"""The verdict: what a check's policy and its baseline make of its findings. Pure functions."""

from smoketest.gate.baseline import Baseline
from smoketest.gate.policy import Judgement, judge, judge_report, new_baseline

__all__ = ["Baseline", "Judgement", "judge", "judge_report", "new_baseline"]
