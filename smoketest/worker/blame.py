"""Whose doing an error is: the user's, where plain CPU raises in the same step too."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from smoketest.devices.cpu import CpuDevice
from smoketest.errors import SmoketestError
from smoketest.worker.job import Job
from smoketest.workload import build
from smoketest.workload.parts import parts_in
from smoketest.workload.usercode import blame_user
from smoketest.workload.workload import StepPhase

__all__ = ["blame_user_code"]


def blame_user_code(job: Job, error: BaseException, index: int | None, phase: str | None) -> None:
    """Return where plain CPU makes the step that raised: then the error is about the device.

    Args:
        job: the eager part.
        error: what the step raised.
        index: of the step; None where it raised before the first.
        phase: in which it raised.

    Raises:
        UserCodeError: plain CPU raises as well.
    """
    if job.device.kind == "cpu":
        raise blame_user(error, _work(phase)) from error
    here: list[StepPhase] = ["setup"]

    @contextmanager
    def marker(entered: StepPhase) -> Iterator[None]:
        here[:] = [entered]
        yield

    parts = parts_in(job.check) if job.ranks is not None else 1  # an op may refuse the shapes of a part alone
    try:
        with warnings.catch_warnings():  # what the user's code warned of, it warns of again
            build(job.check, CpuDevice(), parts=parts).step(index or 0, marker)
    except SmoketestError:
        raise
    except BaseException as on_cpu:
        raise blame_user(on_cpu, f"{_work(here[0])}, on plain CPU,") from on_cpu


def _work(phase: str | None) -> str:
    """What was being done in a phase, for a message."""
    return "moving the batch to the device" if phase == "setup" else "the training step"
