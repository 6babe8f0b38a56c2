"""The step with the first value that is not finite, made again to find the op that made it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import Tensor

from smoketest.devices.base import Device
from smoketest.devices.cpu import CpuDevice
from smoketest.witness.context import Context
from smoketest.witness.losses import Cause
from smoketest.witness.nonfinite import NonFinite
from smoketest.witness.sites import ModuleStack, Origins, StackWalker
from smoketest.worker.job import Job
from smoketest.workload import Workload, build
from smoketest.workload.usercode import summary_of
from smoketest.workload.workload import StepPhase, loss_value

__all__ = ["MOST_STEPS", "find_cause", "on_plain_cpu"]

MOST_STEPS = 64
"""Steps that are made again to come to one."""


def find_cause(job: Job, index: int, context: Context) -> Cause:
    """Make the check's steps again in this process, the last two watched, and tell what made the first such value.

    The one before the step counts too: a gradient that is not finite there spoils the weights, and the loss after it.

    Args:
        job: the eager part.
        index: of the step whose loss, or one of whose gradients, is not finite.
        context: told the phase.
    """
    if index >= MOST_STEPS:
        return Cause(problem=f"it came after {index} steps, too many to make again")
    try:
        workload = build(job.check, job.device)
        for before in range(index - 1):
            workload.step(before)
        return _watched(job, workload, range(max(0, index - 1), index + 1), context)
    except BaseException as error:  # user code that cannot be run twice
        return Cause(problem=f"the steps made again for it raised {summary_of(error)}")


def on_plain_cpu(job: Job, index: int) -> str:
    """What plain CPU gives up to step `index`, whose loss is not finite on the device: a clause."""
    if index >= MOST_STEPS:
        return "that step was not compared with plain CPU"
    try:
        device: Device = CpuDevice()
        workload = build(job.check, device)
        values = [loss_value(workload.step(step)) for step in range(index + 1)]
    except BaseException as error:
        return f"that step could not be made again on plain CPU: {summary_of(error)}"
    if values[-1] is not None:
        return "plain CPU's loss of that step is finite"
    first = values.index(None)
    return "plain CPU gives the same" if first == index else f"on plain CPU it is so from step {first + 1} on"


def _watched(job: Job, workload: Workload, steps: range, context: Context) -> Cause:
    modules = ModuleStack(workload.model)
    witness = NonFinite(Origins(StackWalker(job.policy), modules), context)
    for step in steps:
        found: list[Cause] = []

        @contextlib.contextmanager
        def marker(phase: StepPhase, found: list[Cause] = found) -> Iterator[None]:
            context.phase = "setup"  # our own reading is none of the step's ops
            if phase == "optimizer":
                found += _gradients(workload, witness)
            context.phase = None if phase == "step" else phase
            yield

        with modules, witness:
            losses = workload.step(step, marker)
        context.phase = None
        bad = next((loss for loss in losses if isinstance(loss, Tensor) and not bool(loss.isfinite().all())), None)
        if bad is not None:
            maker = witness.maker_of(bad)
            return Cause(maker=maker, problem=None if maker else "no op that PyTorch dispatches made it")
        if found:
            return found[0]
    if loss_value(losses) is None:
        return Cause(problem="train_step returned it as a number")
    return Cause(problem="made again, the values were finite")


def _gradients(workload: Workload, witness: NonFinite) -> Iterator[Cause]:
    """The gradients that are not finite; in backward the last parameter comes first."""
    for name, parameter in reversed(list(workload.model.named_parameters())):
        gradient = parameter.grad
        if gradient is not None and not gradient.is_sparse and not bool(gradient.isfinite().all()):
            maker = witness.maker_of(gradient)
            yield Cause(name, maker, None if maker else "no op that PyTorch dispatches made it")
