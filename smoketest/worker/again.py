"""The traced step made again from the same state: unwatched before it, recorded after it.

The observer must not change the result (design, section 4): the state is kept, the step runs untraced, the state is put
back, the step runs traced, and both must agree in loss, gradients and fallbacks. For the comparison with plain CPU the
state is put back once more and the step recorded, by hooks on modules and without a dispatch mode.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from smoketest.devices.emulated.adapter import EmulatedAdapter
from smoketest.errors import SmoketestError
from smoketest.findings.identity import functional_base
from smoketest.findings.report import Phase
from smoketest.witness.context import Context
from smoketest.witness.digest import Digest, distance
from smoketest.witness.parity import precision, tolerances_for
from smoketest.worker import exchange, snapshot
from smoketest.worker.badvalues import MOST_STEPS
from smoketest.worker.clock import StepClock
from smoketest.worker.job import Job
from smoketest.worker.record import gradients_of, record_step
from smoketest.workload import Workload, build
from smoketest.workload.usercode import summary_of
from smoketest.workload.workload import PhaseMarker, StepPhase, loss_value

__all__ = ["Outcome", "StepAgain", "disagreement"]

WHAT = "whether tracing changes the step"
OF_RANKS = "with several ranks the state before the traced step is not kept, and no step is made again"
_MOST_NAMED = 5


@dataclass
class Outcome:
    """What one making of the step gave.

    Attributes:
        loss: None where it is not finite.
        gradients: by parameter's name, as the optimizer found them.
        fell_back: names of ops recorded on the CPU.
        executed: names of the kernels that ran on the device; empty where it does not tell.
        dtypes: that its ops were given; empty where no witness saw them.
    """

    loss: float | None = None
    gradients: dict[str, Digest] = field(default_factory=dict)
    fell_back: frozenset[str] = frozenset()
    executed: frozenset[str] = frozenset()
    dtypes: frozenset[torch.dtype] = frozenset()


class StepAgain:
    """Makes one step of a workload again and again, from the state it has when this is entered.

    What keeps it from that is noted and no error: the traced step is made all the same.

    Args:
        job: the eager part.
        workload: has made all steps before this one.
        index: of the step.
        context: told the phase.
        off_the_record: entered around the recorded step, which is no evidence.
    """

    def __init__(
        self,
        job: Job,
        workload: Workload,
        index: int,
        context: Context,
        off_the_record: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._job = job
        self._workload = workload
        self._index = index
        self._context = context
        self._off_the_record = off_the_record
        self._file = contextlib.ExitStack()
        self._state: Path | None = None
        self._process = os.getpid()
        self._unlike: str | None = None
        self._lost: str | None = None  # why the state is gone
        self.untraced: Outcome | None = None
        self.traced = Outcome()

    def __enter__(self) -> StepAgain:
        if not self._workload.is_split:
            self._job.note(WHAT, "a custom train_step keeps state of its own, which cannot be put back")
            return self
        if self._job.ranks is not None:
            self._job.note(WHAT, OF_RANKS)
            return self
        try:
            file = self._job.state_file or self._file_of_its_own()
            self._workload.prepare(self._index)  # the batch is made once, whatever it draws
            snapshot.keep(self._workload, file)
        except snapshot.NotKept as reason:
            self._job.note(WHAT, str(reason))
        except OSError as error:  # of making the file: what goes wrong with the state is told otherwise
            self._job.note(WHAT, f"there is nowhere to keep the state: {error.strerror}")
        else:
            self._state = file
        return self

    def _file_of_its_own(self) -> Path:
        return Path(f"/dev/fd/{self._file.enter_context(tempfile.TemporaryFile()).fileno()}")

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def make_untraced(self, clock: StepClock) -> None:
        """Make the step with nobody watching, and put the state back."""
        if self._state is None:
            return
        self._clear()
        outcome = Outcome()

        @contextlib.contextmanager
        def marker(phase: StepPhase) -> Iterator[None]:
            if phase == "optimizer":
                outcome.gradients = gradients_of(self._workload)
            self._job.breadcrumb.enter(self._index, None, "untraced", phase)
            with clock.phase(phase):
                yield

        problem = self._attempt(outcome, marker)
        outcome.fell_back = frozenset(name for name, phase in clock.recorded if phase != "setup")
        if problem is None and outcome.loss is not None:
            self.untraced = outcome
        elif problem is None:
            self._job.note(WHAT, "the loss is not finite")
        else:
            self._job.note(WHAT, f"the step made untraced for it raised {problem}")

    def entering(self, phase: StepPhase) -> None:
        """A phase of the traced step begins."""
        if phase == "setup":
            self._clear()
        elif phase == "optimizer" and self.untraced is not None:
            self._context.phase = "setup"  # our own reading: the dispatch witness does not count it
            try:
                self.traced.gradients = gradients_of(self._workload)
            except Exception as error:  # the untraced step's could be read
                self.untraced = None
                self._job.note(WHAT, f"the gradients of the traced step cannot be read: {summary_of(error)}")

    def compare(
        self, loss: float | None, fell_back: Iterable[str], dtypes: frozenset[torch.dtype] = frozenset()
    ) -> None:
        """The traced step is over: say so where it is not the untraced one.

        Args:
            loss: of the traced step.
            fell_back: names of ops that any witness of it saw on the CPU.
            dtypes: that its ops were given.
        """
        self.traced.dtypes = dtypes
        if self.untraced is None:
            return
        self.traced.loss, self.traced.fell_back = loss, frozenset(fell_back)
        self.traced.executed = self._executed()
        self._unlike = values_apart(self.untraced, self.traced)
        said = disagreement(self.untraced, self.traced)
        if said is not None:
            self._job.note("what an untraced step does, where it is not what the traced one showed", said)

    def record(self, losses: list[float | None], weights: dict[str, Tensor] | None = None) -> None:
        """Make the step once more and leave its record for the reference.

        Args:
            losses: of all steps.
            weights: what the model was made with, see `exchange.weights_of`.
        """
        file = self._job.record_file
        if file is None:
            return
        told = exchange.FromDevice(self._job.device.kind, losses, weights=weights, unlike=self._unlike or self._lost)
        told.dtypes = self.traced.dtypes
        with self._off_the_record():
            if self._job.ranks is not None:
                told.problem = OF_RANKS
            elif None in losses:
                self._record_first_bad_step(told, losses.index(None))
            elif self._state is not None:
                self._record_step(told)
            else:
                told.problem = self._lost or "the state before the traced step was not kept"
        try:
            told.batch = exchange.batch_of(self._workload, self._index)
            exchange.write(told, file)
        except Exception as error:  # make_batch is the user's; a full disk is a RuntimeError of PyTorch's writer
            self._raise_if_not_ours(error)
            self._job.note("parity", f"what to compare cannot be written: {error}")

    def _record_step(self, told: exchange.FromDevice) -> None:
        assert self._state is not None
        try:
            snapshot.put_back(self._workload, self._state)
            told.record = record_step(self._workload, self._index, marker=self._marker("recorded"))
            told.index = self._index
        except snapshot.NotKept as reason:
            told.problem = str(reason)
        except BaseException as error:
            self._raise_if_not_ours(error)
            told.problem = f"the step made again to record it raised {summary_of(error)}"

    def _record_first_bad_step(self, told: exchange.FromDevice, index: int) -> None:
        """Record the step that spoiled the weights, in a run from the start: what comes after it tells nothing."""
        if index >= MOST_STEPS or not self._workload.is_split:
            told.problem = f"the loss of step {index + 1} is not finite"
            return
        try:
            workload = build(self._job.check, self._job.device)
            for step in range(index + 1):
                if step < index - 1:
                    workload.step(step)
                    continue
                told.index, told.record = step, record_step(workload, step, marker=self._marker("recorded"))
                if any(gradient.not_finite for gradient in told.record.gradients.values()):
                    return
        except BaseException as error:
            self._raise_if_not_ours(error)
            told.record, told.problem = None, f"the steps made again to record one raised {summary_of(error)}"

    @property
    def has_bad_gradients(self) -> bool:
        """Whether a gradient of the step was not finite, in any making of it."""
        made = [self.traced, *([self.untraced] if self.untraced is not None else [])]
        return any(digest.not_finite for outcome in made for digest in outcome.gradients.values())

    def _attempt(self, outcome: Outcome, marker: PhaseMarker) -> str | None:
        """Make the step and put the state back; what went wrong, if anything did."""
        assert self._state is not None
        problem = None
        try:
            made = self._workload.step(self._index, marker)
            self._context.phase = None  # the loss is read by us
            outcome.loss = loss_value(made)
        except BaseException as error:
            self._raise_if_not_ours(error)
            problem = summary_of(error)
        outcome.executed = self._executed()
        try:
            snapshot.put_back(self._workload, self._state)
        except snapshot.NotKept as reason:
            problem = problem or str(reason)
            self._state, self._lost = None, f"after the step made untraced {reason}"
        return problem

    def _marker(self, role: str) -> PhaseMarker:
        @contextlib.contextmanager
        def marker(phase: StepPhase) -> Iterator[None]:
            self._job.breadcrumb.enter(self._index, None, role, phase)
            self._context.phase = _as_in_findings(phase)
            yield

        return marker

    def _raise_if_not_ours(self, error: BaseException) -> None:
        if isinstance(error, SmoketestError) or os.getpid() != self._process:
            raise error

    def _clear(self) -> None:
        if isinstance(self._job.device, EmulatedAdapter):
            self._job.device.clear_tracking()

    def _executed(self) -> frozenset[str]:
        """Names of kernels, from the one device that surely tells."""
        device = self._job.device
        return frozenset(device.device.get_executed_ops()) if isinstance(device, EmulatedAdapter) else frozenset()


def disagreement(untraced: Outcome, traced: Outcome) -> str | None:
    """How the traced step differs from the untraced one, and in which ops; None where they agree.

    Loss and gradients may differ by rounding: some kernels add in another order each time.
    """
    parts, names = _values_apart(untraced, traced)
    only_untraced = _bases(untraced.fell_back) - _bases(traced.fell_back)
    only_traced = _bases(traced.fell_back) - _bases(untraced.fell_back)
    for ops, which in ((only_untraced, "untraced"), (only_traced, "traced")):
        if ops:
            parts.append(f"{_listed(sorted(ops))} ran on the CPU in the {which} step only")
    if not parts:
        return None
    ran = _bases(untraced.executed) ^ _bases(traced.executed)
    if ran and names:
        parts.append(f"kernels that ran in only one of them: {_listed(sorted(ran))}")
    elif names or not (only_untraced or only_traced):
        parts.append("which op makes the difference is not known; does the step draw random numbers of its own?")
    return "; ".join(parts)


def values_apart(untraced: Outcome, traced: Outcome) -> str | None:
    """How loss and gradients of the two differ by more than rounding; None where they do not."""
    return "; ".join(_values_apart(untraced, traced)[0]) or None


def _values_apart(untraced: Outcome, traced: Outcome) -> tuple[list[str], list[str]]:
    """What to say of it, and the parameters whose gradients differ."""
    parts = []
    dtypes = {digest.dtype for digest in untraced.gradients.values()} | traced.dtypes
    tolerances = tolerances_for(precision(dtypes))
    if untraced.loss is None or traced.loss is None:
        parts += ["the loss is finite in one of them only"] if untraced.loss != traced.loss else []
    elif abs(untraced.loss - traced.loss) > tolerances.rtol * abs(untraced.loss):
        apart = abs(untraced.loss - traced.loss) / max(abs(untraced.loss), 1e-30)
        parts.append(f"the traced step's loss is off by {apart:.1e} of the untraced one's")
    largest = max((digest.size for digest in untraced.gradients.values()), default=0.0)
    names = [
        name
        for name, digest in untraced.gradients.items()
        if (other := traced.gradients.get(name)) is None
        or distance(other, digest) > tolerances.rtol * digest.size + 16 * tolerances.unit * largest
    ]
    if names:
        parts.append(f"the gradients of {_listed(names)} differ")
    return parts, names


def _bases(names: Iterable[str]) -> set[str]:
    return {functional_base(name) for name in names if "::" in name}


def _as_in_findings(phase: StepPhase) -> Phase | None:
    return None if phase == "step" else phase


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
