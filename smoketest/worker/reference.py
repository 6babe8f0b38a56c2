"""The reference part: the same steps on plain CPU, and where the device's differ from them (NST106).

Losses of all steps are compared from the same seed. The traced step is compared tensor by tensor from the same state,
the device's, so that a difference of that step is no echo of an earlier one, and an optimizer's noise is not in it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from smoketest.config.models import Parity
from smoketest.devices.cpu import CpuDevice
from smoketest.findings import Observation, merge
from smoketest.findings.report import ParityPart
from smoketest.supervise.protocol import FindingsSoFar, PhaseStarted, Progress, Result
from smoketest.witness.digest import Digest
from smoketest.witness.parity import (
    Difference,
    Seen,
    Tolerances,
    differences,
    losses_apart,
    precision,
    relative_errors,
    tolerances_for,
)
from smoketest.witness.sites import StackWalker
from smoketest.worker import exchange, snapshot
from smoketest.worker.compared import seen_of
from smoketest.worker.job import Job
from smoketest.worker.record import Record, record_step
from smoketest.workload import build
from smoketest.workload.optimizers import names_of
from smoketest.workload.parts import parts_in
from smoketest.workload.usercode import summary_of
from smoketest.workload.workload import StepPhase, loss_value

__all__ = ["run"]

ROUNDINGS = 2
"""How often the step is made with parameters off by a rounding error, where something is to be judged by it."""


_OTHERWISE = (
    "plain CPU does not make the recorded step the same when it begins again in the same state: it depends on what is"
    " kept elsewhere (a global, an object of a class of its own, the clock); its loss was not compared either"
)


class _Incomparable(Exception):
    """Why the two runs cannot be compared at all."""


@dataclass
class _Compared:
    """What was compared.

    Attributes:
        losses: of plain CPU.
        steps: how many of them were.
        tensors: of the traced step.
        error: the largest relative one of a loss.
        first_loss: the first step whose loss differs; None where none does.
        differing: tensors of the traced step that differ, in order.
        apart: why the traced step was not compared tensor by tensor; None where it was.
        losses_unsure: why nothing can be said of losses though tensors differ; None where it can.
        tolerances: that they were compared with.
    """

    losses: list[float | None] = field(default_factory=list)
    steps: int = 0
    tensors: int | None = None
    error: float | None = None
    first_loss: int | None = None
    differing: list[Difference] = field(default_factory=list)
    apart: str | None = None
    losses_unsure: str | None = None
    tolerances: Tolerances = field(default_factory=lambda: tolerances_for(torch.float32))


def run(job: Job) -> None:
    """Run the reference part of a check, whose eager part is over, and send its result."""
    told = exchange.read(job.record_file) if job.record_file is not None else None
    if told is None or job.state_file is None:
        _skip(job, "the eager part left nothing to compare with")
        return
    if job.losses is not None:
        told.losses = list(job.losses)
    job.emit(PhaseStarted(name="setup"))
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))  # the compile probe runs beside it
    try:
        reference = _Reference(job, told, job.state_file)
        compared = reference.compare()
    except _Incomparable as reason:
        _skip(job, str(reason))
        return
    except BaseException as error:  # user code that only the device runs
        _skip(job, f"plain CPU does not make these steps: {summary_of(error)}")
        return
    if compared.apart is not None:
        job.note("parity of single tensors", compared.apart)
    job.emit(FindingsSoFar(findings=merge(reference.observations(compared))))
    part = ParityPart(
        status="ran",
        max_relative_error=compared.error,
        steps=compared.steps,
        tensors=compared.tensors,
        tolerance=compared.tolerances.rtol,
        precision=str(compared.tolerances.dtype).removeprefix("torch."),
    )
    job.emit(Result(parity=part))


def _skip(job: Job, reason: str) -> None:
    job.emit(Result(parity=ParityPart(status="skipped", reason=reason)))


class _Reference:
    """The check's steps on plain CPU."""

    def __init__(self, job: Job, told: exchange.FromDevice, state: Path) -> None:
        self._job, self._told, self._state = job, told, state
        self._settings: Parity = job.check.parity
        training = job.check.training
        self._planned = training.warmup + training.steps + 1
        self._walker = StackWalker(job.policy)
        self._repeated: bool | None = None  # see `_repeats`
        self._draws = False  # whether any step drew random numbers
        self._weights: dict[str, torch.Tensor] = {}
        self._parts = parts_in(job.check) if job.losses is not None else 1
        self._workload = build(job.check, CpuDevice(), self._moving, parts=self._parts)
        self._workload.make_batch(0)  # as the eager part does before its first step

    def compare(self) -> _Compared:
        """Make the steps, and compare.

        Raises:
            _Incomparable: they begin with other weights, draw other random numbers, have other batches, or are not the
                same when they are made again.
        """
        told = self._told
        other = exchange.other_weight(self._weights, told.weights) if told.weights is not None else None
        if other is not None:
            raise _Incomparable(
                f"make_model gives other weights in another process ({other}): seed what it draws, and make modules in"
                " an order that is always the same"
            )
        losses, record = self._steps(self._planned - 1)
        if self._job.losses is not None and (reason := self._of_ranks()) is not None:
            raise _Incomparable(reason)
        if self._draws and told.kind == "neuron":
            raise _Incomparable(
                "the steps draw random numbers (dropout?), and the device's are not the CPU's: switch them off for a"
                " comparison, by the model's options or model.eval() in make_model"
            )
        compared = _Compared(losses)
        tolerances = self._tolerances(record)
        if record is None or told.record is None:
            compared.apart = told.problem or "the device left no record of it"
        elif record.loss is None:
            compared.apart = f"plain CPU's loss of step {told.index + 1} is not finite either"
        else:
            self._tensors(compared, record, told.record, tolerances)
        compared.steps = len(losses) if self._is_last_sure(compared, record, tolerances) else len(losses) - 1
        errors = relative_errors(told.losses[: compared.steps], losses)
        compared.error = max((error for error in errors if math.isfinite(error)), default=None)
        try:
            compared.first_loss = self._first_loss(losses[: compared.steps], tolerances)
        except _Incomparable as reason:
            if not compared.differing:
                raise
            compared.losses_unsure = str(reason)
        compared.tolerances = tolerances
        return compared

    def _of_ranks(self) -> str | None:
        """Why several ranks need not give what one process gives for their parts; None where they must."""
        if self._draws:
            return (
                "the steps draw random numbers (dropout?), and every rank draws its own: switch them off for a"
                " comparison, by the model's options or model.eval() in make_model"
            )
        parallel = self._job.check.parallel
        modules = self._workload.model.modules()
        if parallel is not None and parallel.kind != "tp" and any(_takes_statistics(module) for module in modules):
            return (
                "batch norm takes the statistics of each rank's part of the batch: one process on the whole batch has"
                " other losses"
            )
        return None

    def _moving(self, model: torch.nn.Module) -> contextlib.AbstractContextManager[object]:
        self._weights = exchange.weights_of(model)
        return contextlib.nullcontext()

    def _is_last_sure(self, compared: _Compared, record: Record | None, tolerances: Tolerances) -> bool:
        """Whether the loss of the traced step may be compared.

        On the device that step was made before, untraced. So it is another step where it depends on what the state that
        was put back does not hold.
        """
        told, last = self._told, len(compared.losses) - 1
        if told.index != last or record is None:  # not made from the same state: the device tells of itself
            if told.unlike is None or None in told.losses:
                return True
            reason = f"nor was its loss, for the same step made untraced gave another: {told.unlike}"
            compared.apart = f"{compared.apart}; {reason}" if compared.apart is not None else reason
            return False
        error = relative_errors(told.losses, compared.losses)[last]
        if record is not None and error > tolerances.rtol and not self._repeats(record, tolerances):
            compared.apart, compared.tensors, compared.differing = _OTHERWISE, None, []
        return compared.apart != _OTHERWISE

    def _repeats(self, record: Record, tolerances: Tolerances) -> bool:
        """Whether plain CPU makes the recorded step the same again, from the same state."""
        if self._repeated is None:
            again = self._recorded(self._told.index)
            optimizer = names_of(self._workload.optimizer)
            ours = {seen.key: seen.digest for seen in seen_of(again, optimizer)}
            apart = losses_apart([again.loss], [record.loss], [tolerances.rtol])
            self._repeated = apart is None and not differences(ours, seen_of(record, optimizer), tolerances)
        return self._repeated

    def _steps(self, last: int) -> tuple[list[float | None], Record | None]:
        """The losses of all steps, and the record of the one that the device recorded."""
        told = self._told
        losses: list[float | None] = []
        record = None
        for index in range(last + 1):
            if index == last and not exchange.same(exchange.batch_of(self._workload, last), told.batch):
                raise _Incomparable(
                    "make_batch gives other values in another process: seed what it draws, by its argument `step`"
                )
            made = None
            if told.record is not None and index == told.index:
                made = record = self._devices_step(index) if index == last else self._own_step(index)
            losses.append(made.loss if made is not None else self._step(index))
        return losses, record

    def observations(self, compared: _Compared) -> list[Observation]:
        """NST106: what differs first, if anything does."""
        if compared.differing:
            return [self._tensor_differs(compared)]
        return [self._loss_differs(compared)] if compared.first_loss is not None else []

    def _step(self, index: int) -> float | None:
        self._job.emit(Progress(what="step", done=index + 1, total=self._planned))
        self._job.breadcrumb.enter(index, self._planned, "reference", None)
        before: list[torch.Tensor] = []

        @contextlib.contextmanager
        def marker(phase: StepPhase) -> Iterator[None]:
            if phase != "setup" and not before:
                before.append(torch.get_rng_state())
            yield

        loss = loss_value(self._workload.step(index, marker))
        self._draws |= bool(before) and not torch.equal(before[0], torch.get_rng_state())
        return loss

    def _devices_step(self, index: int) -> Record | None:
        """The traced step from the device's state; None where that cannot be had."""
        try:
            return self._checked(self._recorded(index))
        except snapshot.NotKept as reason:
            self._told.problem, self._told.record = str(reason), None
            return None

    def _own_step(self, index: int) -> Record | None:
        """A step from this run's own state, which is kept for making it again."""
        try:
            self._workload.prepare(index)
            snapshot.keep(self._workload, self._state)
            return self._checked(self._recorded(index))
        except snapshot.NotKept as reason:
            self._told.problem, self._told.record = str(reason), None
            return None

    def _checked(self, record: Record) -> Record:
        self._draws |= record.draws
        device = self._told.record
        same = device is not None and record.random_after == device.random_after
        if record.draws and self._told.kind != "neuron" and not same:
            raise _Incomparable("the step draws other random numbers on the device than on plain CPU")
        return record

    def _recorded(self, index: int, spread: float = 0.0, seed: int = 0) -> Record:
        self._job.emit(PhaseStarted(name="rounding" if spread else "compare"))
        snapshot.put_back(self._workload, self._state, spread, seed)
        self._job.breadcrumb.enter(index, self._planned, "compared", None)
        return record_step(self._workload, index, self._walker.line)

    def _tolerances(self, record: Record | None) -> Tolerances:
        """Those of the coarsest dtype of the step: autocast of the user's own shows in the ops that the device ran."""
        dtypes = {parameter.dtype for parameter in self._workload.model.parameters()} | self._told.dtypes
        for one in (record, self._told.record):
            dtypes |= one.dtypes if one is not None else set()
        autocast = self._job.check.training.autocast
        if autocast is not None:
            dtypes.add(getattr(torch, autocast))
        parallel = self._job.check.parallel
        if self._job.losses is not None and parallel is not None and parallel.mixed_precision is not None:
            dtypes.add(getattr(torch, parallel.mixed_precision))
        given = self._settings
        return tolerances_for(precision(dtypes), given.rtol, given.atol, given.rounding)

    def _first_loss(self, losses: Sequence[float | None], tolerances: Tolerances) -> int | None:
        """The first step whose loss differs by more than the model's own sensitivity explains.

        Raises:
            _Incomparable: the same run made again gives other losses, so nothing tells of that sensitivity.
        """
        allowed = [tolerances.rtol] * len(losses)
        first = losses_apart(self._told.losses, losses, allowed)
        if first is None:
            return None
        if self._parts > 1 and not self._workload.is_split:
            raise _Incomparable(
                f"the loss of step {first + 1} is not that of one process on the whole batch: a custom train_step"
                " cannot be made of the ranks' parts there, and the step's loss may not be a plain mean over the batch;"
                " not compared"
            )
        self._job.emit(PhaseStarted(name="rounding"))
        own = len(losses) - (self._told.record is not None and self._told.index < len(losses))
        again = self._other_losses(own, None, tolerances)
        changed = losses_apart(again, losses[:own], allowed)
        if changed is not None:
            raise _Incomparable(
                f"the loss of step {first + 1} differs from plain CPU's, but plain CPU does not give the same losses"
                f" either when the run is made again (step {changed + 1}): the steps depend on a global, the clock or"
                " the like; keep such state in the model"
            )
        for seed in range(1, ROUNDINGS + 1):
            other = self._other_losses(len(losses), seed, tolerances)
            for index, error in enumerate(relative_errors(other, losses)):
                allowed[index] = max(allowed[index], tolerances.rounding * error)
        # A model that spreads rounding errors does so from step to step: a later step is no surer than an earlier one.
        return losses_apart(self._told.losses, losses, list(itertools.accumulate(allowed, max)))

    def _other_losses(self, count: int, seed: int | None, tolerances: Tolerances) -> list[float | None]:
        """Losses of a run that begins with parameters off by a rounding error; the same ones where `seed` is None."""
        workload = build(self._job.check, CpuDevice(), parts=self._parts)
        workload.make_batch(0)
        generator = torch.Generator("cpu").manual_seed(seed or 0)
        with torch.no_grad():
            for parameter in workload.model.parameters() if seed is not None else ():
                if parameter.is_floating_point():
                    noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
                    parameter.copy_(parameter.double() * (1 + tolerances.unit * noise.double()))
        return [loss_value(workload.step(index)) for index in range(count)]

    def _tensors(self, compared: _Compared, reference: Record, device: Record, tolerances: Tolerances) -> None:
        optimizer = names_of(self._workload.optimizer)
        ours = {seen.key: seen.digest for seen in seen_of(device, optimizer)}
        theirs = seen_of(reference, optimizer)
        compared.tensors = sum(seen.key in ours for seen in theirs)
        if device.full or reference.full:
            self._job.note("parity of single tensors, all of them", "there are too many to keep: the rest was left out")
        if device.transformed or reference.transformed:
            self._job.note(
                "parity of what modules take and give within torch.func transforms",
                "vmap, grad and the like hand modules tensors whose values cannot be read; losses, gradients and"
                " updates of parameters are compared",
            )
        found = differences(ours, theirs, tolerances)
        if found and not self._repeats(reference, tolerances):
            compared.apart, compared.tensors, found = _OTHERWISE, None, []
        if found:
            rounded = [self._rounded(seed, tolerances, optimizer) for seed in range(1, ROUNDINGS + 1)]
            found = differences(ours, theirs, tolerances, rounded)
        compared.differing = found

    def _rounded(self, seed: int, tolerances: Tolerances, optimizer: str) -> dict[str, Digest]:
        record = self._recorded(self._told.index, tolerances.unit, seed)
        return {seen.key: seen.digest for seen in seen_of(record, optimizer)}

    def _tensor_differs(self, compared: _Compared) -> Observation:
        first = compared.differing[0]
        seen: Seen = first.seen
        index = self._told.index
        step = f"step {index + 1} of {self._planned}" + (" (traced)" if index == self._planned - 1 else "")
        parts = [f"{step}: {seen.what} differs from plain CPU's, {_by(first)}"]
        if len(compared.differing) > 1:
            parts.append(f"it is the first of {len(compared.differing):,} among {compared.tensors:,} tensors compared")
        parts.append(self._about_losses(compared))
        return Observation(
            rule="NST106",
            phase=seen.phase,
            site=self._job.policy.site(*seen.line) if seen.line is not None else None,
            module=(seen.module or type(self._workload.model).__name__) if seen.module is not None else None,
            witnesses=frozenset({"reference"}),
            message="; ".join(parts),
        )

    def _about_losses(self, compared: _Compared) -> str:
        first = compared.first_loss
        if compared.losses_unsure is not None:
            return f"of the losses nothing is known: {compared.losses_unsure}"
        if first is None:
            return "the losses of all steps agree within the tolerance"
        return f"the loss differs from step {first + 1} of {self._planned} on"

    def _loss_differs(self, compared: _Compared) -> Observation:
        """No tensor of the traced step differs, or none was compared: nothing but the step is known."""
        first = compared.first_loss
        assert first is not None
        step = f"step {first + 1} of {self._planned}"
        error = relative_errors(self._told.losses, compared.losses)[first]
        by = "is finite on one of them only" if math.isinf(error) else f"differs from plain CPU's by {error:.1e} of it"
        if compared.tensors is not None:
            why = "the traced step agrees where it begins with the device's own weights: look at what came before it, "
            why += "at the move and at steps with other shapes"
        else:
            why = f"tensors were not compared: {compared.apart}"
        return Observation(
            rule="NST106",
            phase="forward" if first == 0 else None,
            witnesses=frozenset({"reference"}),
            message=f"the loss of {step} {by}; {why}",
        )


def _takes_statistics(module: torch.nn.Module) -> bool:
    norms = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm)
    return isinstance(module, norms) and module.training


def _by(difference: Difference) -> str:
    if math.isinf(difference.error):
        return "in values that are not finite, or in shape"
    return f"by {difference.error:.1e} of its size, where {difference.tolerated:.1e} is tolerated"
