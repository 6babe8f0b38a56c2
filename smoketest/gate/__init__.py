"""The verdict: what a check's policy makes of its findings. Pure functions."""

from smoketest.gate.policy import Judgement, judge, judge_report

__all__ = ["Judgement", "judge", "judge_report"]
