"""One check's model, batches, loss and optimizer, and how a step is made of them."""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from smoketest.config.models import Batch, Training
from smoketest.errors import UserCodeError
from smoketest.workload import optimizers
from smoketest.workload.batches import BatchMaker, call_for, explain_call
from smoketest.workload.losses import LossFunction, checked_loss
from smoketest.workload.moving import move
from smoketest.workload.parts import part_of

if TYPE_CHECKING:
    from smoketest.workload.ranks import Ranks

__all__ = ["PhaseMarker", "StepPhase", "TrainStep", "Workload", "loss_value", "no_marker"]

StepPhase = Literal["setup", "forward", "backward", "optimizer", "step"]
"""Phases of a step. ``setup`` makes and moves the batches; ``step`` is a custom train_step, which is not split."""

PhaseMarker = Callable[[StepPhase], AbstractContextManager[None]]
"""Entered around each phase of a step, so that the caller can take times and tell witnesses where they are."""

TrainStep = Callable[[nn.Module, Any, Any], Any]


def no_marker(phase: StepPhase) -> AbstractContextManager[None]:
    """A marker for steps nobody watches."""
    del phase
    return contextlib.nullcontext()


@dataclass(frozen=True)
class Workload:
    """What a check trains, on one device.

    Attributes:
        model: on the device, in the mode (train or eval) it was made in.
        make_batch: the batch of a micro-step, on the CPU.
        batch_spec: the check's ``batch``, which may choose what of a batch the model is called with.
        loss: of (output, batch), and `loss_name` what to call it.
        optimizer: what the check or the user's ``make_optimizer`` gave; possibly several, see `optimizers.each`.
        train_step: the user's own step, which replaces the whole one here; None where there is none.
        training: seeds, autocast, clipping and accumulation.
        device: name of the PyTorch device, ``neuron`` or ``cpu``.
        spread: what is called in place of the model where several ranks train it, such as its DDP wrapper.
        ranks: this process among several; None where it is the only one.
        parts: into how many a step divides each batch, as so many ranks do: the step is made of the mean of the parts'
            losses, which need not be the loss of the whole batch (padding, class weights). A custom train_step gets the
            whole batch all the same: nobody else knows how to put its parts together.
        split: what of a batch is divided, see `part_of`.
        lazy: modules that got their parameters in a forward on the CPU, before the model was moved.
    """

    model: nn.Module
    make_batch: BatchMaker
    batch_spec: Batch | None
    loss: LossFunction
    loss_name: str
    optimizer: Any
    train_step: TrainStep | None
    training: Training
    device: str
    lazy: tuple[str, ...] = ()
    spread: nn.Module | None = None
    ranks: Ranks | None = None
    parts: int = 1
    split: list[str] | None = None

    def step(self, index: int, marker: PhaseMarker = no_marker) -> list[Any]:
        """Make optimizer step `index` (from 0), with all its micro-batches.

        Whatever user code raises passes through, since it may be the device's doing; what is plainly the user's
        mistake is a `UserCodeError`.

        Returns:
            The losses of the micro-batches, or of their parts, tensors of one element still on the device. Reading them
            waits for the device, so the caller does it when the step is over.
        """
        with marker("setup"):
            batches = self._batches(index)
        if self.train_step is not None:
            with marker("step"):
                return [_reported(self.train_step(self.called, batches[0], self.optimizer))]
        losses = []
        for batch in batches:
            with marker("forward"):
                loss = self._forward(self.called, batch)
            losses.append(loss)
            with marker("backward"):
                (loss if len(batches) == 1 else loss / len(batches)).backward()  # type: ignore[no-untyped-call]
        with marker("optimizer"):
            self._update()
            self._zero_grad()
        return losses

    def forward_backward(self, model: Callable[..., Any], index: int) -> None:
        """Forward, loss and backward of one micro-batch through `model`, which may be a compiled form of the model.

        A custom ``train_step`` runs whole, since nothing else knows how its losses are made.
        """
        batch = self.batch(index)
        self._zero_grad()
        if self.train_step is not None:
            self.train_step(model, batch, self.optimizer)  # type: ignore[arg-type]
            return
        self._forward(model, batch).backward()  # type: ignore[no-untyped-call]

    def batch(self, index: int) -> Any:
        """Batch `index` as the user made it, its tensors on the device."""
        return move(self.taken(index), self.device)

    def taken(self, index: int) -> Any:
        """Batch `index` on the CPU, or this rank's part of it."""
        batch = self.make_batch(index)
        return batch if self.ranks is None else self.ranks.take(batch)

    @property
    def called(self) -> nn.Module:
        """What a step calls: the model, or what spreads it over ranks."""
        return self.model if self.spread is None else self.spread

    @property
    def is_split(self) -> bool:
        """Whether forward, backward and optimizer of a step can be told apart."""
        return self.train_step is None

    def places(self, index: int) -> range:
        """The numbers of the batches that step `index` takes."""
        count = 1 if self.train_step is not None else self.training.accumulate
        return range(index * count, (index + 1) * count)

    def prepare(self, index: int) -> None:
        """Have the batches of step `index` made now: a step that is made again finds them made."""
        for place in self.places(index):
            self.make_batch(place)

    def _batches(self, index: int) -> list[Any]:
        batches = [self.batch(place) for place in self.places(index)]
        if self.parts == 1 or self.train_step is not None:
            return batches
        return [part_of(batch, part, self.parts, self.split) for batch in batches for part in range(self.parts)]

    def _forward(self, model: Callable[..., Any], batch: Any) -> Tensor:
        call = call_for(batch, self.batch_spec, self.model)
        with self._autocast():
            try:
                output = model(*call.args, **call.kwargs)
            except TypeError as error:
                wrong_call = explain_call(call, batch, self.model)
                if wrong_call is None:
                    raise
                raise wrong_call from error
            loss = self.loss(output, batch)
        return checked_loss(loss, self.loss_name)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.training.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device, dtype=getattr(torch, self.training.autocast))

    def _zero_grad(self) -> None:
        for optimizer in optimizers.each(self.optimizer):
            if hasattr(optimizer, "zero_grad"):
                optimizer.zero_grad()
            else:
                self.model.zero_grad()

    def _update(self) -> None:
        if self.training.clip_grad_norm is not None:
            clip_grad_norm = torch.nn.utils.clip_grad_norm_ if self.ranks is None else self.ranks.clip_grad_norm
            clip_grad_norm(self.model.parameters(), self.training.clip_grad_norm)
        for optimizer in optimizers.each(self.optimizer):
            optimizer.step()


def loss_value(losses: list[Any]) -> float | None:
    """The mean of a step's losses as a number; None where it is not finite. Waits for the device."""
    mean = sum(loss.item() if isinstance(loss, Tensor) else loss for loss in losses) / len(losses)
    return mean if math.isfinite(mean) else None


def _reported(loss: Any) -> Any:
    if isinstance(loss, Tensor) and loss.numel() == 1 and not loss.is_complex() and not loss.is_meta:
        return loss
    if isinstance(loss, numbers.Real):
        return float(loss)
    shape = ""
    if isinstance(loss, Tensor):
        shape = f" of shape {tuple(loss.shape)} and dtype {str(loss.dtype).removeprefix('torch.')} on {loss.device}"
    raise UserCodeError(
        f"train_step must return the loss, a scalar tensor or a number; it returned a {type(loss).__name__}{shape}",
        hint="return the loss to report; with several, their sum or the one to watch",
    )
