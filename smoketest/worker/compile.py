"""The compile part: what torch.compile and the lowering make of the training step."""

from __future__ import annotations

from dataclasses import replace

import torch

from smoketest.findings.report import CompilePart, DeviceInfo, Finding, OperatorRow
from smoketest.operators.profile import load_profile
from smoketest.probe import repro
from smoketest.probe.batch_shapes import observation, study
from smoketest.probe.compat import dynamo_is_off
from smoketest.probe.probe import ProbeResult, probe
from smoketest.supervise.protocol import Facts, FindingsSoFar, Note, PhaseStarted, Progress, Result
from smoketest.worker import describe
from smoketest.worker.job import Job
from smoketest.worker.on_device import with_device
from smoketest.workload import Workload, build
from smoketest.workload.build import loader_of
from smoketest.workload.loader import sampled_shapes
from smoketest.workload.targets import defined_at
from smoketest.workload.usercode import blame_user

__all__ = ["ProbePhase", "run", "send_probed", "with_loader"]

_MOST_STEPS = 8
"""More batches cost time and rarely show another shape."""


def run(job: Job) -> None:
    """Run the compile part of a check and send its result.

    Raises:
        UserCodeError: the user's code gives no workload.
    """
    job.emit(PhaseStarted(name="setup"))
    torch.manual_seed(job.check.training.seed)
    made = build(job.check, job.device)
    profile = job.device.profile or load_profile(job.check.profile)
    device = DeviceInfo(kind=job.device.kind, profile=profile.name, profile_note=profile.note)
    job.emit(Facts(environment=job.environment, device=device, workload=describe.workload(made, job.check)))
    switched_off = dynamo_is_off()
    if switched_off is not None:
        job.emit(Result(compile=CompilePart(status="skipped", reason=switched_off)))
        return
    _warm_up(made)
    phase = ProbePhase(job)
    steps = min(job.check.training.steps, _MOST_STEPS)
    result = probe(
        made.model,
        made.forward_backward,
        profile=profile,
        site_policy=job.policy,
        steps=steps,
        fullgraph=job.check.compile.fullgraph,
        op_timeout=job.check.compile.op_timeout,
        on_progress=phase.tell,
    )
    result = with_device(job, made, result, steps)
    planned = job.check.training.warmup + job.check.training.steps + 1
    if planned > steps and (result.recompiles or job.check.training.steps > _MOST_STEPS):
        why = f"the compile probe takes the first {steps} batches of the {planned} that the steps take"
        job.note("recompiles that later batches cause", why)
    send_probed(job, with_loader(job, result))


def send_probed(job: Job, result: ProbeResult) -> None:
    """Send all that a probe has found."""
    if not result.graphs:
        job.note("what the compiler makes of the model", "Dynamo captured no graph of it: nothing was lowered")
    for note in result.not_checked:
        job.emit(Note(not_checked=note))
    job.emit(FindingsSoFar(findings=_with_repros(job, result)))
    job.emit(Result(compile=_part(result), operators=_rows(result)))


def with_loader(job: Job, result: ProbeResult) -> ProbeResult:
    """The result, and what the shapes of the check's data loader mean for it; the model is not run."""
    loader = loader_of(job.check)
    batch = job.check.batch
    if loader is None or batch is None or batch.loader is None:
        return result
    name = batch.loader.rpartition(":")[2]
    if batch.sample == 0:
        job.note(f"shapes of the batches of {name}", "batch.sample is 0")
        return result
    job.emit(PhaseStarted(name="sampling the loader"))
    shapes = sampled_shapes(loader.epoch(batch.sample))
    if len(shapes) == batch.sample:
        why = f"the first {batch.sample} were looked at (batch.sample)"
        job.note(f"shapes of further batches of {name}, if there are more", why)
    seen = observation(study(shapes), name, job.policy.choose(defined_at(batch.loader)))
    return result if seen is None else replace(result, observations=(*result.observations, seen))


def _with_repros(job: Job, result: ProbeResult) -> tuple[Finding, ...]:
    """The findings, with a file each for what fails, if there is a folder for them."""
    findings = result.findings
    if job.output is None:
        return findings
    try:
        return repro.write(findings, result.failing, job.output)
    except OSError as error:
        job.note("repro files", f"they cannot be written: {error.strerror or error}")
        return findings


def _warm_up(made: Workload) -> None:
    """One step without torch.compile.

    It gives lazy modules their parameters and fills the caches that libraries fill in a first step. What it raises is
    told by the capture, which runs the same step again.

    Raises:
        UserCodeError: it raises what is no `Exception`, such as SystemExit.
    """
    try:
        made.forward_backward(made.model, 0)
    except Exception:
        return
    except BaseException as error:  # of the user's code, and nothing that the capture could go on after
        raise blame_user(error, "the training step") from error


class ProbePhase:
    """Passes progress on, and tells when another piece of work begins."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._what: str | None = None

    def tell(self, what: str, done: int, total: int) -> None:
        """So much is done of a piece of work."""
        if what != self._what:
            self._what = what
            self._job.emit(PhaseStarted(name=what))
        self._job.emit(Progress(what=what, done=done, total=total))


def _part(result: ProbeResult) -> CompilePart:
    """The part of the report. Without torch-mlir it is skipped, and what Dynamo said is still told.

    Where the first step raises without torch.compile too it failed: what comes after was not looked at.
    """
    skipped = result.lowering_skipped is not None
    return CompilePart(
        status="failed" if result.failed else "skipped" if skipped else "ran",
        reason=result.failed or result.lowering_skipped,
        graphs=result.graphs,
        ops_probed=None if skipped else result.ops_probed,
        ops_failed=None if skipped else result.ops_failed,
        ops_unknown=None if skipped else result.ops_unknown,
        graph_breaks=result.graph_breaks,
        skipped_frames=result.skipped_frames,
        recompiles=result.recompiles,
    )


def _rows(result: ProbeResult) -> tuple[OperatorRow, ...]:
    return tuple(OperatorRow(op=op, eager="not_reached", compile=said) for op, said in result.operators.items())
