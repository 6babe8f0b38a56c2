"""Small reports, their findings made from observations as in a run, so that ids and ordinals are real."""

from __future__ import annotations

import datetime as dt
from typing import Any

from smoketest.findings import Observation, Report, Site, merge
from smoketest.findings.report import (
    CompilePart,
    DeviceInfo,
    EagerPart,
    Environment,
    GraphInfo,
    ParityPart,
    WorkloadInfo,
)

TODAY = dt.date(2026, 12, 1)


def sort(line: int = 3, calls: int | None = 4, **given: Any) -> Observation:
    defaults: dict[str, Any] = {
        "rule": "NST101",
        "op": "aten::sort.values_stable",
        "phase": "forward",
        "site": Site(file="model/router.py", line=line, code="x.sort()"),
        "module": "h.0.router",
        "calls": calls,
        "bytes": 1000,
        "exact": True,
        "grounds": "measured",
        "message": "Ran on the CPU.",
    }
    return Observation(**(defaults | given))


def report(*seen: Observation, **given: Any) -> Report:
    defaults: dict[str, Any] = {
        "device": DeviceInfo(kind="emulated"),
        "eager": EagerPart(status="ran", op_calls=10),
        "compile": CompilePart(
            status="ran", graphs=(GraphInfo(id="0", direction="forward", nodes=3, status="lowered"),)
        ),
        "parity": ParityPart(status="ran"),
        "environment": Environment(),
        "workload": WorkloadInfo(),
    }
    return Report(
        name="gpt2",
        created="2026-12-01T00:00:00Z",
        status="error",
        exit_code=5,
        headline="",
        findings=merge(seen),
        **(defaults | given),
    )
