"""Whole checks, eager part and reference, each in a process that this one forks. For test_state_elsewhere.py.

As a script: ``python tests/worker/state_runs.py ASKED.json``, where that holds a list of checks; one with ``broken``
is run with a mistake in the package itself. The answers are JSON on stdout.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parity_runs import quiet

from smoketest.config.models import Check
from smoketest.devices.cpu import CpuDevice
from smoketest.findings import SitePolicy
from smoketest.worker import again, eager, reference
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.environment import read_environment
from smoketest.worker.job import Job


def forked(work: Callable[[Callable[[Any], None]], None]) -> list[Any]:
    """What `work` emitted in a process of its own; the last is what it raised, as text, where it did."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            events: list[Any] = []
            try:
                work(events.append)
            except BaseException as error:
                traceback.print_exc()
                events.append(f"raised {error!r}")
            file.write(pickle.dumps(events))
            file.flush()
            os._exit(0)
        os.waitpid(child, 0)
        file.seek(0)
        return list(pickle.loads(file.read()))


def whole(check: dict[str, Any], device: Any, broken: bool) -> dict[str, Any]:
    """The answer of a check: the eager part's and the reference's findings and notes, and how they ended."""
    with contextlib.ExitStack() as files:
        state, record, crumb = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))

        def job(device: Any, emit: Callable[[Any], None]) -> Job:
            return Job(
                check=Check.model_validate(check), device=device, policy=SitePolicy(Path(check["workload"]).parent),
                environment=read_environment({}), emit=emit,
                breadcrumb=BreadcrumbFile(Path(f"/dev/fd/{crumb.fileno()}")),
                state_file=Path(f"/dev/fd/{state.fileno()}"), record_file=Path(f"/dev/fd/{record.fileno()}"),
            )  # fmt: skip

        def first(emit: Callable[[Any], None]) -> None:
            if broken:
                again.StepAgain.compare = len  # type: ignore[method-assign, assignment]
            eager.run(job(device, emit))

        events = forked(first)
        raised = [event for event in events if isinstance(event, str)]
        if not raised:
            events += forked(lambda emit: reference.run(job(CpuDevice(), emit)))
    told = [event for event in events if not isinstance(event, str)]
    parts = [event.parity for event in told if event.event == "result" and event.parity is not None]
    ended = [event.eager for event in told if event.event == "result" and event.eager is not None]
    notes = {event.not_checked.what: event.not_checked.why for event in told if event.event == "note"}
    rules = {finding.rule: finding.message for event in told if event.event == "findings" for finding in event.findings}
    return {
        "raised": raised,
        "eager": ended[-1].status if ended else None,
        "steps_made": [step.role for step in ended[-1].steps] if ended else [],
        "parity": parts[-1].model_dump() if parts else None,
        "notes": notes,
        "rules": rules,
    }


if __name__ == "__main__":
    opened = quiet()
    with contextlib.redirect_stdout(sys.stderr):
        asked = json.loads(Path(sys.argv[1]).read_text())
        answers = [whole(one["check"], opened, one["broken"]) for one in asked]
    print(json.dumps(answers))  # noqa: T201
    sys.stdout.flush()
    os._exit(0)
