"""The worker that tries a target on plain CPU for ``smoketest init``: its start, its time limit, its answer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from smoketest.config.draft import Draft, TrialRequest
from smoketest.supervise.files import scratch_folder

__all__ = ["try_target"]

_GRACE = 15.0
"""Seconds beyond its own limit in which a worker may come to an end of what it is at."""


def try_target(target: str | None, workload: Path | None, seconds: float) -> tuple[Draft, str]:
    """What a worker process found out about a target, and the end of what it printed.

    However the worker ends, there is a draft: of one that died or took too long, what it had written down by then.

    Args:
        target: what makes the model, or its config class; its file's path absolute.
        workload: a file that defines the whole workload, instead.
        seconds: how long it may look for inputs.
    """
    with scratch_folder() as scratch:
        answer, request, printed = (scratch / name for name in ("answer.json", "request.json", "printed"))
        asked = TrialRequest(target=target, workload=workload, answer=answer, seconds=seconds)
        request.write_text(asked.model_dump_json(), encoding="utf-8")
        with printed.open("wb") as output:
            ended = _run(request, output.fileno(), seconds + _GRACE)
        found = Draft(target=target, workload=workload and str(workload))
        with contextlib.suppress(OSError, ValueError):
            found = Draft.model_validate_json(answer.read_bytes())
        if ended is not None:
            found = found.model_copy(update={"problem": ended})
        return found, printed.read_bytes()[-4000:].decode("utf-8", "replace")


def _run(request: Path, output: int, limit: float) -> str | None:
    """Run the worker in a session of its own; None where it came to its end, else how it ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "smoketest.worker.trial", str(request)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        code = process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        return f"the trial was stopped after {limit:.0f} s; a smaller model, or --timeout, gives it a chance"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if code < 0:
        return f"the trial crashed with {signal.Signals(-code).name}"
    return None if code == 0 else f"the trial ended with exit code {code}"
