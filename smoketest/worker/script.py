"""The eager part and the compile probe of ``smoketest script``."""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from smoketest.errors import SmoketestError, UserCodeError
from smoketest.findings import Observation
from smoketest.findings.report import DeviceInfo, Phase, Step, WorkloadInfo
from smoketest.operators.profile import load_profile
from smoketest.probe.api import loss_of
from smoketest.probe.capture import unchanged
from smoketest.probe.probe import ProbeResult, probe
from smoketest.supervise.protocol import Facts, PhaseStarted, ScriptRun, StepDone, TimedPartOver
from smoketest.witness import failures
from smoketest.witness.context import Context
from smoketest.witness.sites import ModuleStack, Origins, StackWalker
from smoketest.witness.warnings import FallbackWarnings
from smoketest.worker import describe
from smoketest.worker.compile import ProbePhase, send_probed
from smoketest.worker.cuda_mapping import MapCuda
from smoketest.worker.eager import EagerRun
from smoketest.worker.indices import written_indices
from smoketest.worker.job import Job
from smoketest.worker.lastop import LastOp
from smoketest.worker.script_steps import RootCalls, Steps, Stopped, run_file
from smoketest.worker.unheard import not_heard
from smoketest.workload.usercode import blame_user, summary_of, users_line
from smoketest.workload.workload import loss_value

__all__ = ["run", "run_probe"]

Role = Literal["warmup", "timed", "traced"]


def run(job: Job, script: ScriptRun) -> None:
    """Run a script on the device, watch its steps, and send the result.

    Raises:
        UserCodeError: the script raises what is not of the device, ends with an error, or makes no optimizer step.
    """
    context = Context()
    warned = FallbackWarnings(context)
    with warned if job.check.witnesses.warnings else nullcontext():
        _Watched(job, context, warned, script).run()


class _Watched(EagerRun):
    """The steps of a script; what the witnesses make of them is as in a check."""

    def __init__(self, job: Job, context: Context, warned: FallbackWarnings, script: ScriptRun) -> None:
        super().__init__(job, context, warned)
        training = job.check.training
        self.script = script
        self.roots = RootCalls(first=lambda: self.entering("forward"))
        self.optimizers: dict[int, Optimizer] = {}
        self.losses: list[Tensor] = []
        self.without_loss: set[int] = set()
        self.observing: AbstractContextManager[object] = nullcontext()
        self.times: Counter[str] = Counter()
        self.phase_began = 0.0
        roles = ["warmup"] * training.warmup + ["timed"] * training.steps + ["traced"]
        self.roles: Sequence[Role] = roles  # type: ignore[assignment]

    def run(self) -> None:
        """Run the script until it has made all steps, or ends."""
        self.tell_facts()
        self.tell_what_is_not_checked()
        mapping = MapCuda(self.job.device.torch_device) if self.script.map_cuda else None
        try:
            with mapping or nullcontext(), self.roots, Steps(self):
                self.start_step()
                self.run_to_its_end()
        finally:
            if mapping is not None and os.getpid() == self.process:
                self.tell_mapped(mapping)

    def run_to_its_end(self) -> None:
        """Run the script, and make of its end what it is."""
        try:
            run_file(self.script.path, self.script.arguments)
        except Stopped:
            pass
        except SmoketestError:
            raise
        except BaseException as error:
            if os.getpid() != self.process:
                raise  # a process that the script forked
            self.stop_observing(Stopped)
            if len(self.steps) < self.planned:  # else it swallowed its end, and then missed something
                self.raised_by_script(error)
                return
        if os.getpid() != self.process:
            return
        self.stop_observing(Stopped)
        if not self.steps:
            raise UserCodeError(
                "the script ended without an optimizer step",
                hint="does it train with these arguments, and with an optimizer of torch.optim? They go behind `--`",
            )
        if len(self.steps) < self.planned:
            why = f"the script ended by itself after {len(self.steps)} of {self.planned} optimizer steps"
            self.job.note("the steps that were asked for, all of them", why)
        self.finish("ran")

    def raised_by_script(self, error: BaseException) -> None:
        """A finding where it came out of the device, as far as that can be told without running on plain CPU."""
        text = summary_of(error)
        named = None if failures.raised_by_code(error) else failures.op_in_error(text)
        refused = failures.raised_by_device(error) or failures.names_device(error, self.job.device.torch_device)
        if self.job.device.kind == "cpu" or (self.op_of(error) is None and named is None and not refused):
            raise blame_user(error, "the script") from error
        phase = self.context.phase
        seen = self.tell_failure(error, phase)
        where = f"step {len(self.steps) + 1} of {self.planned}, {seen.phase or phase or 'no known phase'}"
        self.finish("failed", f"{seen.op or 'the script'} raised in {where}: {text}", seen.op)

    def tell_failure(self, error: BaseException, phase: Phase | None) -> Observation:
        """Send the finding; nobody tried the script on plain CPU, and it does not say so."""
        failed, is_code = self.op_of(error), failures.raised_by_code(error)
        text = summary_of(error)
        device = "the emulated device" if self.job.device.kind == "emulated" else "the device"
        seen = failures.raised(text, failed, is_code, users_line(error), phase, self.job.policy)
        seen = dataclasses.replace(seen, message=f"{seen.op or 'the script'} raised on {device}: {text}")
        self.raised, self.known, self.error = [seen], (), text
        self.send_findings()
        return seen

    def stop_observing(self, unfinished: type[BaseException] | None) -> None:
        """Leave what was entered around a step; with a class of exception where it did not come to its end."""
        observing, self.observing = self.observing, nullcontext()
        observing.__exit__(unfinished, None, None)

    # What `Steps` tells

    def entering(self, phase: Phase) -> None:
        """Take the time of the phase before, and what was recorded in it."""
        self.job.device.synchronize()
        now = time.perf_counter()
        if self.context.phase is not None:
            self.times[self.context.phase] += (now - self.phase_began) * 1e3  # type: ignore[assignment]
        self.heard()
        if phase != self.context.phase:
            self.job.breadcrumb.enter(len(self.steps), self.planned, self.role, phase)
            if isinstance(self.observing, LastOp):
                self.observing.begin_phase(phase)
        self.context.phase = phase
        self.phase_began = time.perf_counter()

    def backward_of(self, losses: Sequence[Tensor]) -> None:
        """Keep what backward is called on: its sum is the step's loss."""
        self.losses += [loss.detach() for loss in losses if loss.numel() == 1 and not loss.is_complex()]

    def updating(self, optimizer: Optimizer) -> None:
        """Keep it: its parameters tell what the script trains."""
        self.optimizers[id(optimizer)] = optimizer

    def step_over(self) -> bool:
        """Tell of the step that is over, and begin the next."""
        role = self.role
        self.stop_observing(None)
        self.heard()
        index = len(self.steps)
        loss = loss_value([sum(self.losses)]) if self.losses else None
        if not self.losses:
            self.without_loss.add(index)
        self.losses = []
        self.tracker.take()  # reading the loss is our own work
        times = {f"{name}_ms": self.times.get(name) for name in ("backward", "optimizer")}
        step = Step(index=index, role=role, loss=loss, **times)
        self.steps.append(step)
        self.job.emit(StepDone(step=step))
        self.send_findings()
        if index < 2:  # in the second step all optimizers have stepped once
            self.tell_facts()
        training = self.job.check.training
        if len(self.steps) == training.warmup + training.steps:
            self.job.emit(TimedPartOver())
        if len(self.steps) == self.planned:
            return True
        if role == "warmup" and self.role != "warmup":
            self.roots.__exit__(None, None, None)  # timed steps carry no hooks of ours on modules
        self.start_step()
        return False

    # What that means here

    @property
    def role(self) -> Role:
        """Of the step that is being made."""
        return self.roles[len(self.steps)]

    def start_step(self) -> None:
        """Begin to watch the next step as its role asks."""
        self.warned.ensure()
        phase: Phase = "forward" if self.steps else "setup"
        self.job.breadcrumb.enter(len(self.steps), self.planned, self.role, phase)
        self.job.emit(PhaseStarted(name=phase, step=len(self.steps), role=self.role))
        if self.role == "warmup":
            self.observing = LastOp(self.job)
        elif self.role == "traced" and self.job.check.witnesses.dispatch:
            self.observing = self.tracing(None)
        self.context.phase = phase
        self.observing.__enter__()
        self.times.clear()
        self.phase_began = time.perf_counter()

    def heard(self) -> None:
        """Add what the tracker says to the evidence."""
        role, phase = self.role, self.context.phase
        seen = {(name, phase) for name in self.tracker.take()}
        if role != "warmup":
            self.evidence.steady = (self.evidence.steady or set()) | seen
        met = {name for key in self.evidence.traced for name in key.fell_back}  # a mode can change the names
        self.evidence.tracked |= {one for one in seen if role != "traced" or one[0] not in met}

    def origins(self, workload: Any) -> tuple[ModuleStack, Origins]:
        """As in a check, with the names of the modules that the script trains."""
        del workload
        modules = ModuleStack(self.trained())
        return modules, Origins(StackWalker(self.job.policy), modules)

    def trained(self) -> nn.Module | None:
        """What the script trains: one module, or a collection of several by their classes."""
        found = self.roots.trained_by(list(self.optimizers.values()))
        if len(found) < 2:
            return found[0] if found else None
        named: dict[str, nn.Module] = {}
        for model in found:
            name = type(model).__name__
            named[name if name not in named else f"{name}{len(named)}"] = model
        return nn.ModuleDict(named)

    def told_losses(self) -> Sequence[Step]:
        """Steps without a backward have no loss that could be wrong."""
        return [step for step in self.steps if step.index not in self.without_loss]

    # What is told

    def tell_facts(self) -> None:
        """Tell what is run where; again once it is known what the script trains."""
        device = DeviceInfo(
            kind=self.job.device.kind,
            profile=self.job.device.profile.name if self.job.device.profile else None,
            profile_note=self.job.device.note(),
        )
        training: dict[str, Any] = {
            "script": " ".join([self.script.path.name, *self.script.arguments]),
            "steps": self.job.check.training.steps,
            "warmup": self.job.check.training.warmup,
        }
        info = WorkloadInfo(training=training)
        if self.steps:
            models = self.roots.trained_by(list(self.optimizers.values()))
            given = [args for model, args, _ in self.roots.calls.values() if model in models]
            info = WorkloadInfo(
                model=", ".join(type(model).__name__ for model in models) or None,
                parameters=sum({id(p): p.numel() for model in models for p in model.parameters()}.values()),
                batch={str(place): describe.shapes(value) for place, value in enumerate(given[0] if given else ())},
                optimizer=", ".join(type(one).__name__ for one in self.optimizers.values()),
                training=training,
            )
        self.job.emit(Facts(environment=self.job.environment, device=device, workload=info))

    def tell_what_is_not_checked(self) -> None:
        """Tell what a script cannot be asked."""
        several = os.environ.get("WORLD_SIZE", "1") != "1"
        indices = written_indices(self.job.device, [self.script.path]) if several else ()
        for what, why in (*describe.not_checked_on(self.job.device), *indices):
            self.job.note(what, why)
        for what, _ in not_heard(self.job.device, self.job.check.witnesses):
            self.job.note(what, "that takes the step once more, and the state of a script is not ours to put back")
        for what, why in (
            ("whether the job fits", "a script cannot be sized before it runs"),
            ("time of forward", "in a script it cannot be told from what else is done between optimizer steps"),
            ("whether watching changes the step", "the state of a script is not ours to put back"),
        ):
            self.job.note(what, why)

    def tell_mapped(self, mapping: MapCuda) -> None:
        """Tell what ``--map-cuda`` replaced."""
        shown = ", ".join(f"{name} ({count})" for name, count in sorted(mapping.mapped.items()))
        why = f"--map-cuda gave the script {self.job.device.torch_device} instead, by "
        self.job.note("what the script does on CUDA itself", why + (shown or "nothing: it does not ask for CUDA"))


def run_probe(job: Job, script: ScriptRun) -> None:
    """Run a script up to its second optimizer step, and take the compile probe through the modules it trains.

    Raises:
        UserCodeError: the script raises, or trains no module.
    """
    job.emit(PhaseStarted(name="setup"))
    listener, roots = _FirstSteps(), RootCallsKept()
    with MapCuda(job.device.torch_device) if script.map_cuda else nullcontext(), roots:
        with Steps(listener):
            try:
                run_file(script.path, script.arguments)
            except Stopped:
                pass
            except SmoketestError:
                raise
            except BaseException as error:
                raise blame_user(error, "the script") from error
        roots.__exit__(None, None, None)
        models = roots.trained_by(list(listener.optimizers.values()))
        if not models:
            raise UserCodeError("the script trains no module: none was called that an optimizer's parameters are of")
    # Outside the mapping: under its function mode Dynamo captures next to nothing.
    results = [_probe_one(job, script.map_cuda, *roots.calls[id(model)]) for model in models]
    job.note("the script's loss under torch.compile", "its modules are compiled; the loss is output.loss, or a sum")
    send_probed(job, _joined(results))


class RootCallsKept(RootCalls):
    """As `RootCalls`, with named arguments, and with tensors as they were before the script went on."""

    def __enter__(self) -> RootCallsKept:
        from torch.nn.modules import module as hooks

        super().__enter__()
        original = hooks.Module.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._depth == 0 and torch.is_grad_enabled() and id(module) not in self.calls:
                self.calls[id(module)] = (module, *_copied((args, kwargs)))
            return original(module, *args, **kwargs)

        hooks.Module.__call__ = call  # type: ignore[method-assign]
        self._entered.callback(setattr, hooks.Module, "__call__", original)
        return self


class _FirstSteps:
    """A listener that stops a script after its second step, when all optimizers have stepped once."""

    def __init__(self) -> None:
        self.optimizers: dict[int, Optimizer] = {}
        self.steps = 0

    def entering(self, phase: Phase) -> None:
        """Nothing is to be done."""

    def backward_of(self, losses: Sequence[Tensor]) -> None:
        """Nothing is to be done."""

    def updating(self, optimizer: Optimizer) -> None:
        """Keep it."""
        self.optimizers[id(optimizer)] = optimizer

    def step_over(self) -> bool:
        """Stop, the second time."""
        self.steps += 1
        return self.steps == 2


def _copied(value: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda t: t.detach().clone().requires_grad_(t.requires_grad), value)


def _probe_one(job: Job, map_cuda: bool, model: nn.Module, args: Any, kwargs: Any) -> ProbeResult:
    """The probe of one module, called as the script called it first; mapped only where it asks for CUDA itself."""
    profile = job.device.profile or load_profile(job.check.profile)

    def step(call: Callable[..., Any], _index: int) -> None:
        loss = loss_of(call(*args, **kwargs))
        if loss is not None:
            loss.backward()  # type: ignore[no-untyped-call]

    mapping: AbstractContextManager[object] = nullcontext()
    with unchanged(model):
        try:
            step(model, 0)
        except Exception:
            if not map_cuda:
                raise
            with MapCuda(job.device.torch_device):
                step(model, 0)  # else it is not CUDA that it asks for, and this is told as it is without the option
            mapping = MapCuda(job.device.torch_device)
            why = "it asks for CUDA in its forward, and torch.compile captures next to nothing of what is mapped"
            job.note(f"graphs of {type(model).__name__}", why)
    with mapping:
        return probe(
            model, step, profile=profile, site_policy=job.policy, fullgraph=job.check.compile.fullgraph,
            op_timeout=job.check.compile.op_timeout, on_progress=ProbePhase(job).tell,
        )  # fmt: skip


def _joined(results: Sequence[ProbeResult]) -> ProbeResult:
    """The results of several modules as one; an op that fails in one of them fails."""
    if len(results) == 1:
        return results[0]
    worst = ("fails", "unknown", "decomposed", "lowers")
    operators: dict[str, Any] = {}
    for result in results:
        for op, said in result.operators.items():
            operators[op] = min(operators.get(op, said), said, key=lambda one: worst.index(one) if one in worst else 9)
    return ProbeResult(
        graphs=tuple(
            graph.model_copy(update={"id": f"{place}.{graph.id}"})
            for place, result in enumerate(results)
            for graph in result.graphs
        ),
        observations=tuple(seen for result in results for seen in result.observations),
        ops_probed=sum(result.ops_probed for result in results),
        ops_failed=sum(result.ops_failed for result in results),
        ops_unknown=sum(result.ops_unknown for result in results),
        operators=operators,
        graph_breaks=sum(result.graph_breaks for result in results),
        skipped_frames=sum(result.skipped_frames for result in results),
        recompiles=sum(result.recompiles for result in results),
        failing={key: graph for result in results for key, graph in result.failing.items()},
        lowering_skipped=next((result.lowering_skipped for result in results if result.lowering_skipped), None),
        not_checked=tuple(note for result in results for note in result.not_checked),
    )
