"""The compile part on a real device: what the probe predicted, beside what the device's own compiler does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from smoketest.findings import NotChecked, merge
from smoketest.findings.report import GraphInfo
from smoketest.probe.compat import lookup_backend
from smoketest.probe.on_device import CannotWrap, DeviceRun, GraphRun, run_on_device
from smoketest.probe.probe import ProbeResult
from smoketest.probe.repro import FailingGraph, Key
from smoketest.supervise.protocol import FindingsSoFar, PhaseStarted
from smoketest.worker.job import Job
from smoketest.workload import Workload

__all__ = ["with_device"]

_BACKEND = "neuron"
_PREDICTED = ("NST201", "NST202", "NST207")
"""Rules by which the probe foretells what a device's compiler does."""

_NO_DEVICE = NotChecked(
    what="what the Neuron compiler makes of the graphs, and whether its code gives what eager code gives",
    why="only a device runs it: what runs here is the CPU's code",
)


def with_device(job: Job, made: Workload, predicted: ProbeResult, steps: int) -> ProbeResult:
    """The probe's result, and on a real device what came of compiling and running the step there.

    What was predicted is sent first: the device's compiler may take the process down, or never end.

    Args:
        job: the part.
        made: what is compiled.
        predicted: what the probe says.
        steps: how many batches are run.
    """
    if job.device.kind != "neuron":
        return _noting(predicted, [_NO_DEVICE])
    job.emit(FindingsSoFar(findings=merge(predicted.observations)))
    job.emit(PhaseStarted(name="compile on the device"))
    backend = lookup_backend(_BACKEND)
    if backend is None:
        why = f"torch.compile knows no backend {_BACKEND!r}: this torch-neuronx registers none"
        return _noting(predicted, [NotChecked(what="the compiled step on the device", why=why)])
    try:
        ran = run_on_device(
            made.model,
            made.forward_backward,
            backend=backend,
            synchronize=job.device.synchronize,
            site_policy=job.policy,
            steps=steps,
            fullgraph=job.check.compile.fullgraph,
            repeatable=made.is_split,
            entering=lambda where: job.breadcrumb.enter(None, None, None, where),
        )
    except CannotWrap as error:
        why = f"torch.compile cannot wrap the model: {error}"
        return _noting(predicted, [NotChecked(what="the compiled step on the device", why=why)])
    return _joined(predicted, ran)


def _joined(predicted: ProbeResult, ran: DeviceRun) -> ProbeResult:
    """Predictions and measurements; a prediction that the device proves wrong becomes a note."""
    observations, notes = list(predicted.observations), list(ran.not_checked)
    if ran.all_ran:
        wrong = sorted({str(seen.op) for seen in observations if seen.rule in _PREDICTED})
        observations = [seen for seen in observations if seen.rule not in _PREDICTED]
        if wrong:
            why = f"the device compiled and ran every graph of the step; what was predicted against {', '.join(wrong)}"
            notes.append(NotChecked(what="predictions that did not hold", why=f"{why} is left out"))
    joined = replace(
        predicted,
        observations=(*observations, *ran.observations),
        graphs=tuple(_measured(info, ran.graphs) for info in predicted.graphs),
        lowering_skipped=None if ran.graphs else predicted.lowering_skipped,
        failing={**_failing(predicted, ran), **predicted.failing},
    )
    return _noting(joined, notes)


def _failing(predicted: ProbeResult, ran: DeviceRun) -> dict[Key, FailingGraph]:
    """The graphs that the device refused as they were captured, each for a file that has the device compile it."""
    return {
        one.key: FailingGraph(
            what=f"graph {one.graph}",
            graph=predicted.specs[one.graph],
            stage=one.stage,
            sentence=one.sentence,
            engine="the Neuron compiler",
            backend="neuron",
            trouble=one.trouble,
        )
        for one in ran.refused
        if one.graph in predicted.specs
    }


def _measured(info: GraphInfo, runs: Iterable[GraphRun]) -> GraphInfo:
    """What is known of a graph, with what the device did with it."""
    run = next((run for run in runs if run.id == info.id), None)
    if run is None:
        return info
    times = {"first_ms": run.first_ms, "steady_ms": run.steady_ms}
    if run.failed:
        return info.model_copy(update={"status": "failed", **times})
    if run.first_ms is None:
        return info
    return info.model_copy(update={"status": "lowered", "stage": "executed", **times})


def _noting(result: ProbeResult, notes: Iterable[NotChecked]) -> ProbeResult:
    return replace(result, not_checked=(*result.not_checked, *notes))
