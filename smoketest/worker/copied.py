"""One step more for the copies witness: traffic between a real device and the host inside its native ops."""

from __future__ import annotations

import os

from smoketest.supervise.protocol import PhaseStarted
from smoketest.witness.context import Context
from smoketest.witness.copies import MarkingWitness
from smoketest.witness.reconcile import TracedCalls
from smoketest.witness.sites import ModuleStack, Origins, StackWalker
from smoketest.witness.tracker import Tracker
from smoketest.worker.clock import StepClock
from smoketest.worker.job import Job
from smoketest.workload import Workload
from smoketest.workload.usercode import summary_of
from smoketest.workload.workload import StepPhase

__all__ = ["one_step_more"]


def one_step_more(job: Job, workload: Workload, index: int, context: Context, tracker: Tracker) -> TracedCalls:
    """Calls of a step with the copies inside them; empty where nobody is to look, or nobody could.

    Args:
        job: of the check; told why nobody could look.
        workload: whose step is made; it changes the model as any other step does.
        index: of the step, which gives its batch: that of the traced step.
        context: told the phase.
        tracker: of the device.
    """
    if job.device.kind != "neuron" or not (job.check.witnesses.copies and job.check.witnesses.dispatch):
        return {}
    process = os.getpid()
    job.emit(PhaseStarted(name="copies"))
    modules = ModuleStack(workload.model)
    witness = MarkingWitness(Origins(StackWalker(job.policy), modules), context, job.device.torch_device, tracker.take)
    clock = StepClock(job.device, context, tracker, _say_nothing, _say_nothing)
    what = "copies to the host inside native ops"
    try:
        with modules, witness:
            workload.step(index, clock.phase)
    except BaseException as error:  # of the user's code, in a step that is none of the check's
        if os.getpid() != process:
            raise  # a process that the user's code forked
        job.note(what, f"the step made to look for them raised: {summary_of(error)}")
        return {}
    finally:
        context.phase = None
    if witness.problem is not None:
        job.note(what, witness.problem)
    return witness.calls


def _say_nothing(phase: StepPhase) -> None:
    del phase
