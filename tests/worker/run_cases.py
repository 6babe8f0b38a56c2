"""Runs the eager part of many workload files in one process; prints what came of each as JSON. For test_cases.py."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from smoketest.config.models import Check
from smoketest.devices.base import open_device
from smoketest.findings import SitePolicy
from smoketest.worker import eager, reference
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.environment import read_environment
from smoketest.worker.job import Job


def outcome(file: Path, kind: Any) -> dict[str, Any]:
    events: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("state", "record"):
            (Path(folder) / name).touch()
        job = Job(
            check=Check(name=file.stem, workload=file),
            device=open_device(kind, continue_past_errors=True),
            policy=SitePolicy(file.parent),
            environment=read_environment({}),
            emit=events.append,
            breadcrumb=BreadcrumbFile(Path(folder) / "crumb"),
            state_file=Path(folder) / "state",
            record_file=Path(folder) / "record",
        )
        with contextlib.redirect_stdout(sys.stderr):
            eager.run(job)
        found = [event.findings for event in events if event.event == "findings"]
        (part,) = [event.eager for event in events if event.event == "result"]
        notes = {event.not_checked.what: event.not_checked.why for event in events if event.event == "note"}
        events.clear()
        if kind != "cpu":
            with contextlib.redirect_stdout(sys.stderr):
                reference.run(replace(job, device=open_device("cpu")))
    return {
        "status": part.status,
        "losses": [step.loss for step in part.steps],
        "findings": [finding.model_dump(by_alias=True) for finding in (found[-1] if found else ())],
        "notes": notes,
        "parity": [event.parity.model_dump() for event in events if event.event == "result"],
        "differs": [
            f.model_dump(by_alias=True) for event in events if event.event == "findings" for f in event.findings
        ],
    }


def meta(file: Path) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location(f"meta_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.META
    return found


if __name__ == "__main__":
    files = sorted(Path(sys.argv[1]).glob("[0-9]*.py"))
    # The device first: autograd's engine counts devices in the first backward of a process.
    device = {file.stem: outcome(file, "emulated") for file in files}
    cpu = {file.stem: outcome(file, "cpu") for file in files}
    result = {stem: {"cpu": cpu[stem], "device": device[stem]} for stem in cpu}
    print(json.dumps(result | {"meta": {file.stem: meta(file) for file in files}}))  # noqa: T201
