"""A loss for what a model gives: its own where there is one, else one that goes with the form of the output."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from smoketest.worker.trial.inputs import Spec

__all__ = ["LossChoice", "choose_loss"]

_MOST_CLASSES = 100_000


@dataclass(frozen=True)
class LossChoice:
    """The loss of a check.

    Attributes:
        loss: as the check writes it.
        shown: the output it reads, such as ``float32[4, 10]``.
        tensors: what the loss compares with, by name.
        guessed: whether it is one for the form of the output only.
    """

    loss: str | dict[str, Any]
    shown: str
    tensors: dict[str, Spec]
    guessed: bool


def choose_loss(output: Any, taken: Mapping[str, Spec]) -> LossChoice | None:
    """The loss for an output; None where nothing in it has a gradient.

    Args:
        output: what the model gave.
        taken: the model's inputs, whose names are not free.
    """
    found = [(path, tensor) for path, tensor in _tensors("output", output) if tensor.requires_grad]
    found = [(path, tensor) for path, tensor in found if tensor.is_floating_point()]
    scalars = sorted((path for path, tensor in found if tensor.numel() == 1), key=lambda path: "loss" not in path)
    if scalars and (len(found) == 1 or "loss" in scalars[0] or dict(found)[scalars[0]].dim() == 0):
        return LossChoice(scalars[0], _shown(dict(found)[scalars[0]]), {}, guessed=False)
    if not found:
        return None
    path, tensor = found[0]
    shape = tuple(tensor.shape)
    where = {} if path == "output" else {"input": path}
    if len(shape) in (2, 4) and 1 < shape[1] <= _MOST_CLASSES and not _same_as_an_input(shape, taken):
        name = _free("labels", taken)
        spec = Spec((shape[0], *shape[2:]), "int64", 0, shape[1])
        loss = {"name": "cross_entropy", **where, "target": f"batch.{name}"}
    else:
        name = _free("target", taken)
        spec = Spec(shape)
        loss = {"name": "mse_loss", **where, "target": f"batch.{name}"}
    return LossChoice(loss, _shown(tensor), {name: spec}, guessed=True)


def _same_as_an_input(shape: tuple[int, ...], taken: Mapping[str, Spec]) -> bool:
    """An autoencoder, or a network that makes pictures of pictures."""
    return any((spec.shape[2:] == shape[2:] and len(shape) == 4) or spec.shape == shape for spec in taken.values())


def _free(name: str, taken: Mapping[str, Spec]) -> str:
    while name in taken:
        name = f"loss_{name}"
    return name


def _shown(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _tensors(path: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Tensors of an output with the path to each, as a check writes it."""
    if isinstance(value, Tensor):
        yield path, value
    elif depth < 4:
        for step, inner in _parts(value):
            yield from _tensors(f"{path}{step}", inner, depth + 1)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f".{key}" if str(key).isidentifier() else f'["{key}"]', inner) for key, inner in value.items())
    elif hasattr(value, "_fields"):
        yield from ((f".{name}", getattr(value, name)) for name in value._fields)
    elif isinstance(value, list | tuple):
        yield from ((f".{place}", inner) for place, inner in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{f.name}", getattr(value, f.name)) for f in dataclasses.fields(value))
