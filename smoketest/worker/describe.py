"""What was run, in words and sizes; and what an eager run does not tell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch.nn.parameter import is_lazy

from smoketest.config.models import Check
from smoketest.devices.base import Device
from smoketest.devices.neuron import NeuronDevice
from smoketest.findings.report import WorkloadInfo
from smoketest.witness.dispatch import signature_text
from smoketest.workload import Workload
from smoketest.workload.batches import call_for
from smoketest.workload.moving import tensors_in
from smoketest.workload.optimizers import names_of

if TYPE_CHECKING:
    from smoketest.workload.ranks import Ranks

__all__ = ["not_checked", "not_checked_on", "nothing", "shapes", "workload"]


def nothing() -> WorkloadInfo:
    """Before the workload stands."""
    return WorkloadInfo()


def workload(made: Workload, check: Check) -> WorkloadInfo:
    """Names and sizes of a workload, never a value."""
    return WorkloadInfo(
        model=type(made.model).__name__,
        parameters=sum(parameter.numel() for parameter in made.model.parameters() if not is_lazy(parameter)),
        batch={name: shapes(value) for name, value in _given(made).items()},
        optimizer=names_of(made.optimizer),
        training=check.training.model_dump(),
        parallel=check.parallel.model_dump() | made.ranks.split(made.make_batch(0))
        if made.ranks is not None and check.parallel is not None
        else None,
    )


def _given(made: Workload) -> dict[str, Any]:
    """What the model is called with, by name or place; a custom train_step may call it with anything, or not at all."""
    batch = made.make_batch(0)
    if made.is_split:
        call = call_for(batch, made.batch_spec, made.model)
        return {str(place): value for place, value in enumerate(call.args)} | call.kwargs
    return {str(name): value for name, value in batch.items()} if isinstance(batch, Mapping) else {"batch": batch}


def not_checked(device: Device, made: Workload) -> Iterator[tuple[str, str]]:
    """(what, why) of all an eager run on this device says nothing about."""
    if made.lazy:
        yield (
            "how lazy modules get their parameters on the device",
            f"one forward on the CPU, before the move and the optimizer, made those of {_listed(made.lazy)}; your own"
            " program has to do the same",
        )
    yield from not_checked_on(device)
    if made.ranks is not None:
        yield from _not_checked_of_ranks(device, made.ranks)
    if not made.is_split:
        yield "times of forward, backward and optimizer", "a custom train_step is not split"
        yield "autocast, clip_grad_norm and accumulate of the check", "a custom train_step replaces the whole step"


def _not_checked_of_ranks(device: Device, ranks: Ranks) -> Iterator[tuple[str, str]]:
    """(what, why) of all that is left out where several ranks make the steps."""
    kind, count = ranks.parallel.kind, ranks.size
    yield (
        f"lowering of the step as {count} ranks make it",
        f"the compile probe takes the model of one process, without {kind}: no collective is lowered",
    )
    more = "memory of activations, whether shapes move, the op that first gives what is not finite"
    copies = ", copies to the host inside native ops" if device.kind == "neuron" else ""
    yield f"what takes a step more: {more}{copies}", "with several ranks none is made"
    yield "whether one rank's share fits", "the model is sized as one process has it, before it is spread over ranks"


def not_checked_on(device: Device) -> Iterator[tuple[str, str]]:
    """(what, why) of all that no eager run on this device says anything about, whatever it runs."""
    if device.kind == "cpu":
        yield "fallbacks", "on plain CPU every op runs on the CPU: nothing can fall back"
    if device.kind == "emulated":
        yield "neuronx-cc failures", "the emulated device compiles nothing"
        yield "kernels that refuse shapes or dtypes", "the emulated device takes whatever the CPU takes"
        yield "numerics of the hardware", "the emulated device computes on the CPU"
        yield "memory of the device", "it is estimated, not measured: the emulated device uses the host's memory"
        yield "speed", "times of the emulated device are the CPU's"
    if isinstance(device, NeuronDevice) and device.untracked is not None:
        yield (
            "fallbacks the device does not warn about",
            f"{device.untracked}: no fallback seen does not mean that there was none",
        )
    if device.kind == "neuron" and os.environ.get("NEURON_LAUNCH_BLOCKING") == "1":
        yield "speed when the device works asynchronously", "with NEURON_LAUNCH_BLOCKING=1 the host waits for each op"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def shapes(value: Any) -> str:
    """Dtypes and sizes of the tensors in a value, else the name of its class."""
    signature = tuple((tensor.dtype, tuple(tensor.shape)) for tensor in tensors_in(value))
    return signature_text(signature) if signature else type(value).__name__
