"""The strict part: one step in a fresh process in which the device may not recover on the CPU."""

from __future__ import annotations

import os

from smoketest.supervise.protocol import PhaseStarted, Result, Why
from smoketest.witness.strict import StrictWitness
from smoketest.worker.job import Job
from smoketest.workload import build
from smoketest.workload.usercode import summary_of

__all__ = ["run"]


def run(job: Job) -> None:
    """Make the first step of a check and tell which ops with a kernel would have fallen back, and why.

    The process was started with `smoketest.witness.strict.VARIABLE` set, before torch was imported. Only one step is
    made: what falls back later for the first time stays unexplained.
    """
    witness = StrictWitness()
    problem = None
    process = os.getpid()
    job.emit(PhaseStarted(name="setup"))
    try:
        work = build(job.check, job.device)
        job.emit(PhaseStarted(name="step"))
        with witness:
            work.step(0)
            job.device.synchronize()
    except BaseException as error:  # whatever comes is of the user's code, which ran to its end without the variable
        if os.getpid() != process:
            raise  # a process that the user's code forked
        problem = None if witness.note_error(error) else summary_of(error)
    job.emit(Why(kinds=witness.kinds, problem=problem))
    job.emit(Result())
