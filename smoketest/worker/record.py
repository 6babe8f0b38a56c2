"""One training step as a record: what crossed the borders of modules, gradients, updates. Two records are compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch.nn.parameter import is_lazy

from smoketest.witness.digest import Digest, digest_of, picked
from smoketest.witness.recorder import Crossing, Event, Recorder
from smoketest.witness.sites import Line
from smoketest.workload import Workload
from smoketest.workload.moving import tensors_in
from smoketest.workload.workload import PhaseMarker, StepPhase, loss_value, no_marker

__all__ = ["Record", "gradients_of", "record_step"]


@dataclass
class Record:
    """What one step gave.

    Attributes:
        loss: None where it is not finite.
        events: what crossed the borders of modules, in order.
        gradients: of parameters, as the optimizer finds them, by name.
        updates: what the optimizer adds to parameters, by name.
        buffers: what the step adds to buffers, by name.
        stored: Euclidean norms of the parameters before it, of the values that are compared.
        full: whether events were left out for their size.
        transformed: whether events were left out since they were within a transform of `torch.func`.
        random_before: state of the CPU's generator when the first forward begins.
        random_after: the same when the step is over.
    """

    loss: float | None = None
    events: dict[Crossing, Event] = field(default_factory=dict)
    gradients: dict[str, Digest] = field(default_factory=dict)
    updates: dict[str, Digest] = field(default_factory=dict)
    buffers: dict[str, Digest] = field(default_factory=dict)
    stored: dict[str, float] = field(default_factory=dict)
    full: bool = False
    transformed: bool = False
    random_before: bytes = b""
    random_after: bytes = b""

    @property
    def draws(self) -> bool:
        """Whether the step drew random numbers from the CPU's generator."""
        return self.random_before != self.random_after

    @property
    def dtypes(self) -> set[torch.dtype]:
        """Of all tensors seen."""
        digests = [*(event.digest for event in self.events.values()), *self.gradients.values(), *self.updates.values()]
        return {digest.dtype for digest in digests}


def record_step(
    workload: Workload, index: int, line: Callable[[], Line | None] | None = None, marker: PhaseMarker = no_marker
) -> Record:
    """Make step `index` and record it. Whatever the step raises passes through.

    Args:
        workload: whose step is split into phases.
        index: of the step, from 0.
        line: see `Recorder`.
        marker: around each phase.
    """
    record = Record()
    model = workload.model
    before = {name: picked(tensor) for name, tensor in model.named_parameters() if _has_values(tensor)}
    buffers = {name: picked(tensor) for name, tensor in model.named_buffers() if _has_values(tensor)}

    @contextlib.contextmanager
    def reading(phase: StepPhase) -> Iterator[None]:
        if phase == "forward" and not record.random_before:
            record.random_before = torch.get_rng_state().numpy().tobytes()
        if phase == "optimizer":
            record.gradients = gradients_of(workload)
        with marker(phase):
            yield

    with Recorder(model, tensors_in, line) as recorder:
        losses = workload.step(index, reading)
        record.random_after = torch.get_rng_state().numpy().tobytes()
    record.loss = loss_value(losses)
    record.stored = {name: float(values.norm()) for name, values in before.items()}
    record.events, record.full, record.transformed = recorder.events, recorder.full, recorder.transformed
    record.updates = {name: _change(p, before[name]) for name, p in model.named_parameters() if name in before}
    record.buffers = {name: _change(b, buffers[name]) for name, b in model.named_buffers() if name in buffers}
    return record


def gradients_of(workload: Workload) -> dict[str, Digest]:
    """The gradients that parameters have now, by name."""
    found = {}
    for name, parameter in workload.model.named_parameters():
        digest = digest_of(parameter.grad) if parameter.grad is not None else None
        if digest is not None:
            found[name] = digest
    return found


def _has_values(tensor: torch.Tensor) -> bool:
    return not is_lazy(tensor) and tensor.is_floating_point()


def _change(now: torch.Tensor, before: torch.Tensor) -> Digest:
    after = picked(now)
    same = after.shape == before.shape
    change = after - before if same else after
    return Digest(change.float(), None, int((~change.isfinite()).sum()), now.dtype)
