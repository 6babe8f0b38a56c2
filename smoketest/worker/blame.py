"""Whose doing an error is: the user's, where plain CPU raises in the same step too, or where the ranks make it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from smoketest.devices.cpu import CpuDevice
from smoketest.errors import SmoketestError, UserCodeError
from smoketest.witness.dispatch import FailedOp
from smoketest.witness.failures import raised_by_code, raised_by_device, raised_by_ranks
from smoketest.worker.job import Job
from smoketest.workload import build
from smoketest.workload.parts import parts_in
from smoketest.workload.usercode import blame_user
from smoketest.workload.workload import StepPhase

__all__ = ["blame_ranks", "blame_user_code", "unused_parameters"]

_WITHOUT_GRADIENT = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")
_MOST_NAMED = 8
_PLAN = (
    "a colwise layer gives each rank its part of the features: a rowwise layer has to take them up, with nothing"
    " between that needs all of them (a norm, a view into all heads, the loss)"
)


def blame_user_code(job: Job, error: BaseException, index: int | None, phase: str | None) -> None:
    """Return where plain CPU makes the step that raised: then the error is about the device.

    Args:
        job: the eager part.
        error: what the step raised.
        index: of the step; None where it raised before the first.
        phase: in which it raised.

    Raises:
        UserCodeError: plain CPU raises as well; or the code names a device by an index that is not this process's, of
            which plain CPU tells nothing.
    """
    if job.device.kind == "cpu" or _names_a_device(error):
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


def blame_ranks(
    error: BaseException, failed: FailedOp | None, parameters: Sequence[str], *, by_plan: bool = False
) -> None:
    """Return where an op of the device raised, in one of several ranks.

    Args:
        error: what the step raised, which one process on plain CPU makes: that is no control for what ranks do.
        failed: the op it came out of, as far as a witness saw.
        parameters: names of those that the model trains, in its order.
        by_plan: whether a plan splits the weights, on a device whose kernels raise what the CPU's do.

    Raises:
        UserCodeError: the ranks, or the way in which they share the work, are what it came from.
    """
    if by_plan and _is_of_shapes(error):
        blamed = blame_user(error, "the training step")
        raise UserCodeError(
            f"{blamed.message}; one process on plain CPU runs the same step: the tensor-parallel plan does not fit the"
            " model",
            traceback=blamed.traceback,
            place=blamed.place,
            hint=_PLAN,
        ) from error
    if not raised_by_ranks(error, failed):
        return
    blamed = blame_user(error, "the training step")
    unused = unused_parameters(str(error), parameters)
    hint = f"{blamed.hint}; here: {unused}" if unused and blamed.hint else blamed.hint
    raise UserCodeError(
        f"{blamed.message}; one process on plain CPU runs the same step: what differs is the ranks (or `parallel:`),"
        " unless the line looks at the device",
        traceback=blamed.traceback,
        place=blamed.place,
        hint=hint,
    ) from error


def _names_a_device(error: BaseException) -> bool:
    return isinstance(error, ValueError) and "Invalid device id" in str(error) and raised_by_device(error)


def _is_of_shapes(error: BaseException) -> bool:
    """Whether a kernel could not do with what it was given: there is one, and no rule of the device was broken."""
    if isinstance(error, NotImplementedError) or "Could not run" in str(error) or raised_by_device(error):
        return False
    return isinstance(error, RuntimeError | IndexError) and not raised_by_code(error)


def unused_parameters(text: str, parameters: Sequence[str]) -> str | None:
    """Names of the parameters that DDP's message tells by number as unused; None where it tells none.

    Args:
        text: of the exception.
        parameters: names of those that the model trains, in its order, which is DDP's.
    """
    found = _WITHOUT_GRADIENT.search(text)
    numbers = [int(number) for number in found[1].split()] if found else []
    names = [parameters[number] for number in numbers if number < len(parameters)]
    return ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "") if names else None


def _work(phase: str | None) -> str:
    """What was being done in a phase, for a message."""
    return "moving the batch to the device" if phase == "setup" else "the training step"
