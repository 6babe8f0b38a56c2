"""The eager run: setup, warm-up steps, timed steps, one traced step."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Literal

from torch import Tensor, nn

from smoketest.config import Check
from smoketest.config.models import Loss
from smoketest.devices.emulated.adapter import EmulatedAdapter
from smoketest.errors import SmoketestError
from smoketest.findings import Observation, merge
from smoketest.findings.report import DeviceInfo, EagerPart, Finding, Phase, Step
from smoketest.findings.wordings import OWN_LOSS
from smoketest.supervise.protocol import (
    Facts,
    FindingsSoFar,
    PhaseStarted,
    Result,
    StepDone,
    TimedPartOver,
)
from smoketest.witness import failures, hidden, losses, reconcile
from smoketest.witness.context import Context
from smoketest.witness.dispatch import DispatchWitness, FailedOp, dtypes_of
from smoketest.witness.kernels import Kernels
from smoketest.witness.moved import Move, StrayUse
from smoketest.witness.printing import Prints
from smoketest.witness.registry import Registry
from smoketest.witness.signatures import Signatures
from smoketest.witness.sites import ModuleStack, Origins, StackWalker
from smoketest.witness.threads import FollowThreads
from smoketest.witness.tracker import Tracker
from smoketest.witness.untraced import Waits, artefacts, believed, unseen_waits
from smoketest.witness.warnings import FallbackWarnings
from smoketest.worker import badvalues, copied, describe, exchange, sizing
from smoketest.worker.again import StepAgain
from smoketest.worker.blame import blame_ranks, blame_user_code
from smoketest.worker.clock import StepClock
from smoketest.worker.compilations import compilations, has_compiled
from smoketest.worker.indices import written_indices
from smoketest.worker.job import Job
from smoketest.worker.lastop import LastOp
from smoketest.worker.unheard import not_heard
from smoketest.worker.unseen import let_past, not_shown
from smoketest.workload import Workload, build
from smoketest.workload.moving import tensors_in
from smoketest.workload.optimizers import each
from smoketest.workload.usercode import of_user_code, summary_of, users_line
from smoketest.workload.workload import StepPhase, loss_value

__all__ = ["EagerRun", "run"]

Role = Literal["warmup", "timed", "traced"]


def run(job: Job) -> None:
    """Run the eager part of a check and send its result.

    Raises:
        UserCodeError: the user's code gives no workload, or fails on plain CPU as well.
    """
    context = Context()
    warned = FallbackWarnings(context)
    with warned if job.check.witnesses.warnings else nullcontext():
        EagerRun(job, context, warned).run()


class EagerRun:
    """The steps of one check, and what the witnesses say of them.

    Args:
        job: what to run.
        context: told the phase.
        warned: entered unless the check switches it off, with the same context.
    """

    def __init__(self, job: Job, context: Context, warned: FallbackWarnings) -> None:
        self.job = job
        self.context = context
        self.warned = warned
        self.tracker = Tracker(job.device, on=job.check.witnesses.tracker)
        self.past_before = frozenset(job.device.continued_past())
        self.evidence = reconcile.Evidence(warned=warned.seen, registry=Registry(job.check.witnesses.registry))
        self.with_copies: reconcile.TracedCalls = {}
        self.steps: list[Step] = []
        self.raised: list[Observation] = []
        self.sent: tuple[Finding, ...] = ()
        self.known: tuple[int, ...] = ()
        self.on_cpu = "that step was not compared with plain CPU"
        self.error: str | None = None  # what ended the run
        self.cause: losses.Cause | None = None
        self.move: Move | None = None
        self.weights: dict[str, Tensor] | None = None
        self.again: StepAgain | None = None
        self.kernels: Kernels | None = None  # of the traced step
        self.unseen: list[Observation] = []  # host syncs of the untraced step alone
        self.stray_use: dict[str, str] = {}
        self.blamed: tuple[FailedOp | None, BaseException | None] = (None, None)
        self.hidden_threads = 0
        self.process = os.getpid()
        self.signatures: Signatures | None = None
        self.evidence.timed = job.device.kind == "neuron" and self.tracker.exists
        self.planned = job.check.training.warmup + job.check.training.steps + 1

    def run(self) -> None:
        """Make all steps, and send the result."""
        workload: Workload | None = None
        index: int | None = None
        role: Role | None = None
        try:
            workload = self.set_up()
            for index, role in _schedule(self.job):
                if role == "traced":
                    self.traced_step(workload, index)
                else:
                    self.one_step(workload, index, role)
        except SmoketestError:
            raise
        except BaseException as error:  # Ctrl-C does not raise here: whatever comes is of the user's code
            if os.getpid() != self.process or not of_user_code(error):
                raise  # a process that the user's code forked; or our own mistake, which is none of the device's
            self.give_up(error, workload, index, role)
        else:
            if self.job.ranks is None:
                self.look_again(workload)
            self.finish("ran")

    def look_again(self, workload: Workload) -> None:
        """Make more steps, for what one alone does not tell."""
        self.explain_bad_values()
        self.count_once_more(workload)
        self.count_copies(workload)

    def count_once_more(self, workload: Workload) -> None:
        """Have one step more counted for the estimate whether the job fits; what falls back in it is evidence too."""
        clock = StepClock(self.job.device, self.context, self.tracker, _say_nothing, _say_nothing)
        sizing.one_step_more(self.job, workload, self.planned, self.signatures, clock.phase)
        self.gather(clock, "traced")  # under a mode, too, which can change the names
        self.send_findings()

    def traced_step(self, workload: Workload, index: int) -> None:
        """Make the traced step between an untraced one and a recorded one, all three from the same state."""
        assert self.move is not None
        self.move.look_at_shared_buffers()
        with StepAgain(self.job, workload, index, self.context, self.off_the_record) as self.again:
            clock = StepClock(self.job.device, self.context, self.tracker, _say_nothing, _say_nothing)
            with self.waits_untraced() as waits:
                self.again.make_untraced(clock)
            self.gather(clock, "timed")
            try:
                self.one_step(workload, index, "traced")
            except Exception as error:
                if self.again.untraced is None:
                    raise
                self.note_that_watching_raises(error)
            else:
                traced = self.evidence.traced
                fell_back = {name for key in traced for name in key.fell_back}
                self.again.compare(self.steps[-1].loss, fell_back, dtypes_of(traced.values()))
                if self.again.untraced is not None:
                    self.believe_the_untraced(waits)
            self.again.record([step.loss for step in self.steps], self.weights)

    def note_that_watching_raises(self, error: Exception) -> None:
        """Where the same step came to its end unwatched, its exception is the dispatch mode's, and no finding."""
        if os.getpid() != self.process:
            raise error
        self.job.note(
            "what the traced step would have shown",
            f"it raised {summary_of(error)}; made from the same state with no dispatch mode it came to its end",
        )

    def waits_untraced(self) -> AbstractContextManager[Waits | None]:
        """Around the step that nobody watches: the emulated device's own kernels tell where the host waits in it."""
        device, asked = self.job.device, self.job.check.witnesses
        if not (isinstance(device, EmulatedAdapter) and asked.kernels and asked.dispatch):
            return nullcontext()
        _, origins = self.origins(None)
        return Waits(device.device, self.context, origins)

    def believe_the_untraced(self, waits: Waits | None) -> None:
        """Where the step made from the same state without a mode took another way, that one is the user's step."""
        if self.tracker.exists:
            self.evidence.untrue = artefacts(self.evidence.traced, self.evidence.tracked)
            self.evidence.traced = believed(self.evidence.traced, self.evidence.untrue)
        if waits is not None and self.kernels is not None:
            traced = self.evidence.traced
            self.unseen = unseen_waits(waits.seen, self.kernels.waits, traced, self.job.policy)
        if self.evidence.untrue:
            names = ", ".join(f"{op} in {phase}" for op, phase in sorted(self.evidence.untrue, key=str))
            self.job.note(
                "fallbacks that only the traced step met, which are no findings",
                f"PyTorch takes another way under a dispatch mode; no untraced step ran these on the CPU: {names}",
            )
        if self.evidence.untrue or self.unseen:
            self.known = ()
            self.send_findings()

    @contextmanager
    def off_the_record(self) -> Iterator[None]:
        """Around steps that are made again for another purpose: what falls back in them is no evidence."""
        heard = Counter(self.warned.seen)
        try:
            yield
        finally:
            self.context.phase = None
            self.warned.seen.clear()
            self.warned.seen.update(heard)
            self.tracker.take()

    def explain_bad_values(self) -> None:
        """Find the op that made the first loss or gradient that is not finite, and what plain CPU makes of it."""
        first = losses.first_not_finite(self.steps)
        if first is None and not (self.again is not None and self.again.has_bad_gradients):
            return
        index = first.index if first is not None else self.planned - 1
        self.job.emit(PhaseStarted(name="looking for the first value that is not finite"))
        with self.off_the_record():
            self.cause = badvalues.find_cause(self.job, index, self.context)
            if first is not None and self.job.device.kind != "cpu":
                self.on_cpu = badvalues.on_plain_cpu(self.job, index)
        self.known = ()
        self.send_findings()

    def moving(self, model: nn.Module) -> Move:
        """What watches the move of the model."""
        if self.job.record_file is not None:
            self.weights = exchange.weights_of(model)
        self.move = Move(model, self.job.device.torch_device, self.job.policy)
        return self.move

    def look_at_the_move(self, workload: Workload) -> None:
        """See what moved with the model: its optimizers' parameters, and a batch."""
        assert self.move is not None
        self.move.look_at(each(workload.optimizer))
        with suppress(Exception):  # the first step tells of it
            given = list(tensors_in(workload.taken(0)))
            self.move.look_at_batch(given, tensors_in(workload.batch(0)))

    def count_copies(self, workload: Workload) -> None:
        """Have the copies witness look at one step more."""
        self.with_copies = copied.one_step_more(self.job, workload, self.planned - 1, self.context, self.tracker)
        self.known = ()
        self.send_findings()

    def set_up(self) -> Workload:
        """Make the workload, and tell what it is and what is not checked."""
        job = self.job
        device = DeviceInfo(
            kind=job.device.kind,
            profile=job.device.profile.name if job.device.profile else None,
            profile_note=job.device.note(),
        )
        facts = Facts(environment=job.environment, device=device, workload=describe.nothing())
        job.emit(facts)  # already now: a crash while the model is made is a report too
        job.breadcrumb.enter(None, None, None, "setup")
        job.emit(PhaseStarted(name="setup"))
        sizing.before_it_is_built(job)
        with LastOp(job):
            workload = build(job.check, job.device, self.moving, job.ranks)
        self.look_at_the_move(workload)
        self.evidence.tracked.update((name, "setup") for name in self.tracker.take())
        job.emit(facts.model_copy(update={"workload": describe.workload(workload, job.check)}))
        for what, why in (
            *describe.not_checked(job.device, workload),
            *not_heard(job.device, job.check.witnesses),
            *(written_indices(job.device, job.check.files) if job.ranks is not None else ()),
        ):
            job.note(what, why)
        return workload

    def one_step(self, workload: Workload, index: int, role: Role) -> None:
        """Make step `index` (from 0), watched as its role asks, and send what is known after it."""
        self.warned.ensure()
        told: set[StepPhase] = set()
        observer = self.observer(workload, role)

        def entering(phase: StepPhase) -> None:
            if isinstance(observer, LastOp):
                observer.begin_phase(phase)
            if role == "traced" and self.again is not None:
                self.again.entering(phase)
            self.job.breadcrumb.enter(index, self.planned, role, phase)
            if phase not in told:  # micro-batches repeat phases
                self.job.emit(PhaseStarted(name=phase, step=index, role=role))
            told.add(phase)

        def left(phase: StepPhase) -> None:
            """Tell what is known already: the next phase may be the process's last."""
            if isinstance(observer, _Tracing):
                observer.show()
            self.gather(clock, role)
            if phase != "setup":
                self.send_findings()

        clock = StepClock(self.job.device, self.context, self.tracker, entering, left)
        compiled = compilations(self.job.device)
        try:
            with observer:
                made = workload.step(index, clock.phase)
        finally:
            self.gather(clock, role)
            if isinstance(observer, LastOp):
                self.blamed = (observer.failed, observer.error)
        loss = loss_value(made)
        self.tracker.take()  # reading the loss is our own work
        times = {f"{name}_ms": clock.milliseconds.get(name) for name in ("forward", "backward", "optimizer")}
        compiling = has_compiled(self.job.device, compiled)
        step = Step(index=index, role=role, loss=loss, compiling=compiling, **(times if workload.is_split else {}))
        self.steps.append(step)
        self.job.emit(StepDone(step=step))
        self.send_findings()
        if role == "timed" and len(self.steps) == self.job.check.training.warmup + self.job.check.training.steps:
            self.job.emit(TimedPartOver())

    def gather(self, clock: StepClock, role: Role) -> None:
        """Add to the evidence what the tracker said in the phases of a step."""
        met = {name for key in self.evidence.traced for name in key.fell_back}  # a mode can change the names
        met |= {name for name, _ in self.evidence.untrue}
        if role != "warmup":
            self.evidence.steady = (self.evidence.steady or set()) | clock.recorded
        self.evidence.tracked |= {seen for seen in clock.recorded if role != "traced" or seen[0] not in met}

    def observer(self, workload: Workload, role: Role) -> AbstractContextManager[object]:
        """What to enter around a step of this role."""
        if role == "timed" or (role == "traced" and not self.job.check.witnesses.dispatch):
            return nullcontext()
        return LastOp(self.job, workload.model) if role == "warmup" else self.tracing(workload)

    def tracing(self, workload: Workload | None) -> AbstractContextManager[object]:
        """The witnesses of the traced step."""
        modules, origins = self.origins(workload)
        device = self.job.device
        asked = self.job.check.witnesses.kernels
        kernels = Kernels(device.device, self.context) if asked and isinstance(device, EmulatedAdapter) else None
        self.kernels = kernels
        taken = kernels.take if kernels is not None else self.tracker.take
        self.signatures = Signatures(device.torch_device) if device.kind != "cpu" else None
        witness = DispatchWitness(
            origins,
            self.context,
            device.torch_device,
            taken,
            before=self.job.breadcrumb.op,
            noted=self.signatures.note if self.signatures is not None else None,
            waited=kernels.waited if kernels is not None else None,
        )
        strays = self.move.strays if self.move is not None else []
        use = StrayUse(strays, device.torch_device) if strays else None
        self.stray_use = use.use if use is not None else {}
        also = (FollowThreads(witness, modules), Prints(witness))
        return _Tracing(self, witness, [part for part in (modules, kernels, use, *also) if part is not None])

    def origins(self, workload: Workload | None) -> tuple[ModuleStack, Origins]:
        """What finds module and line of an op; the module stack is not entered yet."""
        modules = ModuleStack(workload.model if workload is not None else None)
        return modules, Origins(StackWalker(self.job.policy), modules)

    def send_findings(self) -> None:
        """Send all findings up to now, where they differ from what was sent."""
        seen = self.evidence
        steady = -1 if seen.steady is None else len(seen.steady)
        known = (
            len(seen.tracked),
            steady,
            len(seen.warned),
            len(seen.traced),
            len(self.continued_past()),
            len(self.raised),
            sum(step.loss is None for step in self.steps),
            seen.complete,
        )
        if known == self.known:  # evidence only grows
            return
        self.known = known
        findings = self.findings()
        if findings != self.sent:
            self.job.emit(FindingsSoFar(findings=findings))
            self.sent = findings

    def findings(self) -> tuple[Finding, ...]:
        """All findings up to now."""
        device, policy = self.job.device, self.job.policy
        past = self.continued_past()
        broken = [*past, *(seen.op for seen in self.raised if seen.op)]
        seen = [] if device.kind == "cpu" else reconcile.observations(self.evidence, device.profile, policy, broken)
        waits = [] if device.kind == "cpu" else reconcile.host_syncs(self.evidence.traced, policy)
        if device.kind != "cpu":
            waits += hidden.doubles(self.evidence.traced, policy) + hidden.host_arguments(self.evidence.traced, policy)
            waits += hidden.copies(self.with_copies, policy)
            waits += self.unseen
        past_ops = failures.continued(past, self.evidence.traced, policy)
        on_cpu = self.on_cpu if device.kind != "cpu" else "on plain CPU"
        not_finite = losses.not_finite(self.told_losses(), self.planned, on_cpu, self.cause, policy)
        moved = self.move.observations(self.stray_use, self.error) if self.move is not None else []
        found = [*seen, *waits, *past_ops, *self.raised, *not_finite, *moved]
        return merge(_in_own_loss(one, self.job.check) for one in found)

    def told_losses(self) -> Sequence[Step]:
        """The steps whose loss is known, or known not to be finite."""
        return self.steps

    def continued_past(self) -> tuple[str, ...]:
        """Ops of this run that the emulated device computed another way."""
        return tuple(op for op in self.job.device.continued_past() if op not in self.past_before)

    def give_up(self, error: BaseException, workload: Workload | None, index: int | None, role: Role | None) -> None:
        """The step raised. The user's mistake if plain CPU raises too, else a finding about the device."""
        phase = self.context.phase
        blame_user_code(self.job, error, index, phase)
        if self.job.ranks is not None:
            trained = workload.model.named_parameters() if workload is not None else ()
            named = [name for name, tensor in trained if tensor.requires_grad]
            by_plan = self.job.ranks.parallel.kind == "tp" and isinstance(self.job.device, EmulatedAdapter)
            blame_ranks(error, self.op_of(error), named, by_plan=by_plan)
        if workload is not None and index is not None and role != "traced" and self.op_of(error) is None:
            self.tell_failure(error, phase)  # already now: making the step again may be the process's last work
            self.locate(workload, index)
        seen = self.tell_failure(error, phase)
        where = "setup"
        if index is not None:
            where = f"step {index + 1} of {self.planned} ({role}), {seen.phase or phase or 'no known phase'}"
        self.finish("failed", f"{seen.op or 'the user code'} raised in {where}: {summary_of(error)}", seen.op)

    def tell_failure(self, error: BaseException, phase: Phase | None) -> Observation:
        """Send the finding about what the device raised, by what is known of it now."""
        is_code = failures.raised_by_code(error)
        device = "the emulated device" if self.job.device.kind == "emulated" else "the device"
        seen = failures.raised(
            summary_of(error), self.op_of(error), is_code, users_line(error), phase, self.job.policy, device
        )
        self.raised, self.known, self.error = [seen], (), summary_of(error)
        self.send_findings()
        return seen

    def op_of(self, error: BaseException) -> FailedOp | None:
        """The op that `error` came out of, where a witness saw this very exception, or one like it in the same step."""
        op, seen = self.blamed
        return op if seen is not None and (seen is error or _words(seen) == _words(error)) else None

    def locate(self, workload: Workload, index: int) -> None:
        """Make the step again on the emulated device under the witnesses: an untraced step does not tell op and line.

        Not on a real one: it may hang or be unusable after an error, and a dispatch mode cannot pass on an exception
        from autograd's device thread. Nor with several ranks: the others do not make it again.
        """
        if not isinstance(self.job.device, EmulatedAdapter) or self.job.ranks is not None:
            return
        clock = StepClock(self.job.device, self.context, self.tracker, _say_nothing, _say_nothing)
        try:
            with self.tracing(workload):
                workload.step(index, clock.phase)
        except BaseException:  # it raises as the first time; `op_of` compares
            pass
        self.evidence.complete = False

    def finish(self, status: Literal["ran", "failed"], reason: str | None = None, failed_op: str | None = None) -> None:
        """Send the result."""
        traced = self.evidence.traced
        over = self.job.check.witnesses.dispatch and any(step.role == "traced" for step in self.steps)
        if self.job.device.kind != "cpu":
            stayed = self.move.harmless(self.stray_use) if self.move is not None else None
            for what, why in (
                *not_shown(self.job.check.witnesses, traced, over, self.hidden_threads, stayed),
                *let_past(self.job.device),
            ):
                self.job.note(what, why)
        self.blamed = (None, None)  # an exception keeps tensors alive
        calls = sum(seen.count for seen in traced.values())
        of_the_host = sum(seen.count for key, seen in traced.items() if not key.on_device)
        whole = over and not self.hidden_threads
        past = self.continued_past()
        broken = [*past, *([failed_op] if failed_op else [])]
        self.job.emit(
            Result(
                eager=EagerPart(
                    status=status,
                    reason=reason,
                    steps=tuple(self.steps),
                    op_calls=calls if whole else None,
                    host_calls=of_the_host if whole else None,
                    distinct_ops=len({key.op for key in traced}) if whole else None,
                    continued_past=past,
                ),
                operators=reconcile.operator_rows(traced, self.job.device.torch_device, broken, told=self.could_tell()),
            )
        )

    def could_tell(self) -> bool:
        """Whether any witness knew where each call of the traced step ran."""
        return self.tracker.exists or self.evidence.counted_by == "kernels" or self.job.device.kind == "cpu"


class _Tracing:
    """The traced step: the dispatch mode and all it asks, and afterwards what they saw."""

    def __init__(
        self, run: EagerRun, witness: DispatchWitness, parts: Sequence[AbstractContextManager[object]]
    ) -> None:
        self.run, self.witness, self.parts = run, witness, parts
        self.entered = ExitStack()

    def __enter__(self) -> None:
        for part in self.parts:
            self.entered.enter_context(part)
        self.entered.enter_context(self.witness)

    def __exit__(self, *exception: object) -> None:
        self.entered.close()
        self.show()
        self.run.evidence.complete = exception[0] is None
        self.run.blamed = (self.witness.failed, self.witness.error)
        for part in self.parts:
            if isinstance(part, Kernels):
                self.run.hidden_threads = len(part.threads - self.witness.threads)

    def show(self) -> None:
        """Make what was seen up to now evidence."""
        evidence = self.run.evidence
        if any(isinstance(part, Kernels) for part in self.parts):
            evidence.counted_by = "kernels"
        evidence.tracked |= self.witness.strays
        evidence.traced = self.witness.calls
        evidence.complete = False


def _schedule(job: Job) -> Iterator[tuple[int, Role]]:
    """Index and role of every step."""
    training = job.check.training
    roles: list[Role] = [*["warmup"] * training.warmup, *["timed"] * training.steps, "traced"]  # type: ignore[list-item]
    return enumerate(roles)


def _say_nothing(phase: StepPhase) -> None:
    del phase


def _words(error: BaseException) -> tuple[type, str]:
    return type(error), summary_of(error)


def _in_own_loss(seen: Observation, check: Check) -> Observation:
    """The observation, saying so where the op is of a loss that the YAML names: no line of Python calls it."""
    in_step = seen.phase in ("forward", "backward") and seen.calls is not None
    if not isinstance(check.loss, Loss) or not in_step or seen.site is not None or seen.module:
        return seen
    return replace(seen, message=f"{seen.message}, in {OWN_LOSS} ({check.loss.name})")
