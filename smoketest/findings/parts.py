"""Which part of a check makes the findings of a rule."""

from __future__ import annotations

from typing import Literal

__all__ = ["LIMITS_MET", "PARTS", "STEPS_NOT_COMPILED", "PartName", "part_of"]

PartName = Literal["eager", "compile", "parity"]
PARTS: tuple[PartName, ...] = ("eager", "compile", "parity")
LIMITS_MET = "limits of the device that this model met, possible problems"
"""What is not checked where a step met a limit that was not let act; why ends with ``: `` and each of them."""
STEPS_NOT_COMPILED = "compiling the rest of the steps"
"""What is not checked where a step of the compile probe raises; why begins with ``in step 1 of 3``."""


def part_of(rule: str) -> PartName:
    """The part that makes findings of a rule; those about the environment are the eager part's."""
    if rule == "NST106":
        return "parity"
    return "compile" if rule.startswith("NST2") else "eager"
