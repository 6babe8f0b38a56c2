"""Whether the model fits this machine, before it is built: what is larger is not started."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

import torch

from smoketest.config.models import Check
from smoketest.errors import DoesNotFit, SmoketestError, UserCodeError
from smoketest.findings.fit import Sizes, Steps, estimate
from smoketest.supervise.protocol import Estimated, PhaseStarted
from smoketest.witness.compat import refuses_saved_tensors_hooks
from smoketest.witness.saved import SavedTensors
from smoketest.witness.signatures import SignatureMode, Signatures, moved
from smoketest.worker.forked import Done, NotDone, run_forked
from smoketest.worker.job import Job
from smoketest.worker.memory import machine_memory
from smoketest.workload.build import load
from smoketest.workload.meta import Layers, layers, sizes_of, sizes_on_meta
from smoketest.workload.usercode import summary_of
from smoketest.workload.workload import PhaseMarker, StepPhase, Workload, no_marker

__all__ = ["before_it_is_built", "host_bytes", "one_step_more", "refusal"]

_T = TypeVar("_T")

_SECONDS = 40.0
_MEMORY = 2**30
_WHAT = "whether the model fits"
_SMALLER_BUFFERS = (
    "{} are buffers: moving a model to a device copies each one whole, an expanded one or a view too; register the"
    " small tensor, and expand it in forward"
)
_TRANSFORMS = (
    "the step uses transforms of torch.func (grad, vjp and the like), which are not seen into: PyTorch lets nobody see"
    " what they keep for backward"
)
_STEP = "activations kept for backward, and whether shapes move"


def before_it_is_built(job: Job, limit: int | None = None) -> None:
    """Size the check's model on the meta device, tell the estimate, and stop what this machine cannot hold.

    A model that cannot be built there is not sized, which is noted; so is one whose imports fail, which building it for
    real will tell of.

    Args:
        job: the eager part.
        limit: bytes this machine has; what the machine tells where None.

    Raises:
        DoesNotFit: model, gradients and optimizer state need more memory than there is.
    """
    try:
        load(job.check)
    except UserCodeError:
        return
    _load_what_optimizers_load()
    sizes = _sizes(job.check)
    if isinstance(sizes, NotDone):
        job.note(_WHAT, f"it cannot be built on PyTorch's meta device to size it first: {sizes.why}")
        return
    limit = limit if limit is not None else machine_memory()
    needed = host_bytes(sizes, job.device.kind)
    job.emit(Estimated(fit=estimate(sizes, built=False, host_bytes=needed, host_limit=limit)))
    if limit is not None and needed > limit:
        raise refusal(sizes, needed, limit, _layers(job.check), model_only=job.device.kind == "neuron")


def one_step_more(
    job: Job, workload: Workload, index: int, traced: Signatures | None, marker: PhaseMarker = no_marker
) -> None:
    """Make one step after all that count, see what it keeps for backward and which signatures are new, and tell.

    A step of its own, since the hooks that see what autograd saves change what it notices (see `SavedTensors`). What it
    raises is noted: all that the check is about is known by now.

    Args:
        job: the eager part.
        workload: has made its steps.
        index: of the step, whose batch is another than the traced one's.
        traced: signatures of the traced step; None where the device compiles nothing.
        marker: around each phase.
    """
    saved, again = SavedTensors(workload.model), Signatures(job.device.torch_device)
    process = os.getpid()

    @contextmanager
    def watched(phase: StepPhase) -> Iterator[None]:
        with marker(phase), ExitStack() as entered:
            if phase != "setup":
                entered.enter_context(saved)
                entered.enter_context(SignatureMode(again))
            yield

    job.breadcrumb.enter(None, None, None, "counting")
    job.emit(PhaseStarted(name="counting"))
    steps: Steps | None = None
    try:
        workload.step(index, watched)
    except BaseException as error:  # of the user's code, or of the device
        if os.getpid() != process:
            raise  # a process that the user's code forked
        if refuses_saved_tensors_hooks(error):
            job.note(_STEP, _TRANSFORMS)
        else:
            job.note(_STEP, f"the step that counts them raised {summary_of(error)}")
    else:
        steps = _counted(saved, again, traced)
    sizes = sizes_of(workload.model, workload.optimizer)
    needed = host_bytes(sizes, job.device.kind)
    job.emit(Estimated(fit=estimate(sizes, steps, built=True, host_bytes=needed, host_limit=machine_memory())))


def host_bytes(sizes: Sizes, kind: str) -> int:
    """What the host holds, activations apart: on a real device only the model, on its way there.

    The emulated device is in this memory, and each weight and buffer is copied to it whole.
    """
    if kind == "neuron":
        return sizes.held_bytes
    return sizes.training_bytes - (sizes.model_bytes - sizes.held_bytes if kind == "cpu" else 0)


def refusal(sizes: Sizes, needed: int, limit: int, by_layers: Layers | None, *, model_only: bool) -> SmoketestError:
    """The error that says how much is needed, what there is, and how many layers would fit.

    As many layers are told as fit in half of the memory: the activations, and what runs beside the eager part, need the
    other half.

    Args:
        sizes: of the model.
        needed: bytes of the host.
        limit: bytes there are.
        by_layers: how the size follows from a number in the check; None where no such number is known.
        model_only: whether the host holds the weights alone.
    """
    known = [] if sizes.optimizer_bytes is None else [f"{sizes.optimizer} state"]
    buffers = sizes.buffer_bytes > sizes.parameter_bytes
    model = ["weights", "buffers"] if buffers else ["weights"]
    parts = model if model_only else [*model, "gradients", *known]
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    least = "at least " if not model_only and sizes.optimizer_bytes is None else ""
    message = (
        f"the model was not started: its {sizes.parameters:,} parameters need {least}{_gib(needed)} for {listed},"
        f" and this machine has {_gib(limit)}"
    )
    if buffers and not model_only:
        return DoesNotFit(message, hint=_SMALLER_BUFFERS.format(_gib(sizes.buffer_bytes)))
    return DoesNotFit(message, hint=_smaller(limit, by_layers, model_only))


def _smaller(limit: int, by_layers: Layers | None, model_only: bool) -> str:
    larger = "or run it on a larger machine"
    if by_layers is None:
        return f"make the model smaller in the check, with the same structure: fewer layers, or narrower; {larger}"
    base, each = (values[0 if model_only else 1] for values in (by_layers.base, by_layers.each))
    most = max(0, (limit // 2 - base) // each)
    if by_layers.now is not None:
        most = min(most, by_layers.now - 1)
    if most >= 1:
        return (
            f"--set {by_layers.key}={most} fits: it takes {_gib(base + most * each)}, half of the memory left for"
            f" activations and for what runs beside it; {larger}"
        )
    return (
        f"no number of layers fits well: with --set {by_layers.key}=1 it takes {_gib(base + each)}. Make it narrower"
        f" too, or its vocabulary smaller; {larger}"
    )


def _counted(saved: SavedTensors, again: Signatures, traced: Signatures | None) -> Steps:
    if traced is None:
        return Steps(saved.peak, saved.unsized)
    before = traced.compiled()
    new = [seen for seen in again.compiled(traced.fell_back) if seen not in traced.seen]
    return Steps(saved.peak, saved.unsized, len(before), len(new), moved(new, before))


def _sizes(check: Check) -> Sizes | NotDone:
    answer = run_forked(partial(_sized, check), seconds=_SECONDS, memory=_MEMORY)
    return _read(answer, lambda found: Sizes(**found))


def _sized(check: Check) -> bytes:
    return json.dumps(asdict(sizes_on_meta(check))).encode()


def _layers(check: Check) -> Layers | None:
    answer = run_forked(partial(_by_layers, check), seconds=_SECONDS / 4, memory=_MEMORY)
    found = _read(answer, lambda found: found and Layers(**found | {k: tuple(found[k]) for k in ("base", "each")}))
    return found if isinstance(found, Layers) else None


def _read(answer: Done | NotDone, make: Callable[[Any], _T]) -> _T | NotDone:
    """What a child answered; what user code wrote in its place is no answer."""
    if isinstance(answer, NotDone):
        return answer
    try:
        return make(json.loads(answer.data))
    except (ValueError, TypeError, KeyError, RecursionError):
        return NotDone("the process that did it gave no answer that can be read")


def _by_layers(check: Check) -> bytes:
    found = layers(check)
    return json.dumps(asdict(found) if found is not None else None).encode()


def _load_what_optimizers_load() -> None:
    """Have the first optimizer of this process import what it imports (Dynamo, a second): here and not in the child."""
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0)


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB"
