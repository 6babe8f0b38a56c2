"""Lowering failures that users met on a real device (``smoketest/operators/data/reported_lowering.yaml``).

That an op ran on the CPU in eager mode is another matter, kept in ``reported.yaml``.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from smoketest.operators.evidence import base_name

__all__ = ["LoweringReport", "lowering_reports", "reported_lowering"]


class LoweringReport(BaseModel):
    """A lowering failure that somebody saw on a real device.

    Attributes:
        op: base name of the op; None where the report names none and only what the compiler said tells it.
        sentence: part of what torch-mlir must say for the report to apply; None where the op is enough.
        said: what the device's compiler said, as reported.
        release: of torch-neuronx.
        source: who reported it.
        grade: evidence grade.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: str | None = None
    sentence: str | None = None
    said: str
    release: str
    source: str
    grade: Literal["USER", "USER-B3", "USER-B4", "PUB"]


@cache
def lowering_reports() -> tuple[LoweringReport, ...]:
    """The reports that ship with this package."""
    text = (resources.files("smoketest.operators") / "data" / "reported_lowering.yaml").read_text(encoding="utf-8")
    return tuple(LoweringReport.model_validate(entry) for entry in yaml.safe_load(text))


def reported_lowering(op: str | None, sentence: str) -> LoweringReport | None:
    """The report that a refusal by torch-mlir agrees with.

    Args:
        op: overload name; None for a graph that is refused without naming one.
        sentence: what torch-mlir said.
    """
    base = None if op is None else base_name(op)
    for report in lowering_reports():
        if (report.op is None or report.op == base) and (report.sentence is None or report.sentence in sentence):
            return report
    return None
