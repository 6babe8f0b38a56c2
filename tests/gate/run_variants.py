"""Runs the eager part of one workload in its variants, in one process; prints reports as JSON. For test_ids_in_runs.py.

``python run_variants.py FILE...``: each is a JSON object of the check, and its folder is the project's.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from smoketest.config.models import Check
from smoketest.devices.base import open_device
from smoketest.findings import SitePolicy
from smoketest.worker import eager
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.environment import read_environment
from smoketest.worker.job import Job


def run(file: Path) -> dict[str, Any]:
    events: list[Any] = []
    check = json.loads(file.read_text())
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        job = Job(
            check=Check.model_validate(check | {"workload": file.parent / check["workload"]}),
            device=open_device("emulated", continue_past_errors=True),
            policy=SitePolicy(file.parent),
            environment=read_environment({}),
            emit=events.append,
            breadcrumb=BreadcrumbFile(Path(folder) / "crumb"),
        )
        eager.run(job)
    found = [event.findings for event in events if event.event == "findings"]
    (result,) = [event for event in events if event.event == "result"]
    return {
        "eager": result.eager.model_dump(),
        "operators": [row.model_dump() for row in result.operators],
        "findings": [finding.model_dump(by_alias=True) for finding in (found[-1] if found else ())],
    }


if __name__ == "__main__":
    print(json.dumps([run(Path(name)) for name in sys.argv[1:]]))  # noqa: T201
