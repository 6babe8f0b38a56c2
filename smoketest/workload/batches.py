"""Batches: from tensor specifications, or from the user's ``make_batch``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from smoketest.config.models import Batch, TensorSpec
from smoketest.errors import UserCodeError
from smoketest.workload.moving import tensors_in
from smoketest.workload.usercode import blame_user

__all__ = ["BatchMaker", "Call", "call_for", "from_function", "from_specs", "remembering"]

BatchMaker = Callable[[int], Any]
"""Makes the batch of a step, on the CPU, in the form the loss is given."""


@dataclass(frozen=True)
class Call:
    """What the model is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def from_function(function: Callable[[int], Any], name: str) -> BatchMaker:
    """Batches from the user's ``make_batch(step)``.

    Raises, when called:
        UserCodeError: the function raises, or gives nothing that holds a tensor.
    """

    def make(step: int) -> Any:
        try:
            batch = function(step)
        except (Exception, SystemExit) as error:
            raise blame_user(error, f"{name}({step})") from error
        if next(tensors_in(batch), None) is None:
            raise UserCodeError(
                f"{name}({step}) gave no tensor: it returned {_describe(batch)}",
                hint="return (args, kwargs) as the model is called: (tensor,), {} for one input",
            )
        return batch

    return make


def from_specs(specs: Mapping[str, TensorSpec], seed: int) -> BatchMaker:
    """Random batches, the same for the same seed and step: a dict of tensors by name."""

    def make(step: int) -> dict[str, Tensor]:
        generator = torch.Generator("cpu").manual_seed(seed * 1_000_003 + step)
        made: dict[str, Tensor] = {}
        for name, spec in specs.items():
            if spec.like is None:
                made[name] = _random(spec, generator)
        while len(made) < len(specs):
            ready = {name: spec.like for name, spec in specs.items() if name not in made and spec.like in made}
            if not ready:
                missing = next(spec.like for name, spec in specs.items() if name not in made)
                raise UserCodeError(f"batch.tensors: there is no tensor {missing!r} to be like")
            made.update({name: made[like].clone() for name, like in ready.items() if like is not None})
        return {name: made[name] for name in specs}

    return make


def remembering(make: BatchMaker) -> BatchMaker:
    """`make`, asked once for the same batch in a row: user code may draw from an iterator or a random state."""
    last: list[tuple[int, Any]] = []

    def made(step: int) -> Any:
        if not last or last[0][0] != step:
            last[:] = [(step, make(step))]
        return last[0][1]

    return made


def call_for(batch: Any, spec: Batch | None, model: nn.Module) -> Call:
    """How the model is called with `batch`, its tensors already moved.

    ``(args, kwargs)`` is taken as it is; a mapping gives keyword arguments, another tuple or list positional ones, and
    anything else is the only argument. ``batch.forward`` of the check chooses among what has a name, and leaves the
    rest to the loss; where the model has no such parameters they are passed by position, in that order.
    """
    chosen = spec.forward if spec is not None else None
    if isinstance(batch, tuple) and len(batch) == 2 and isinstance(batch[0], (tuple, list)) and _is_kwargs(batch[1]):
        if chosen is None:
            return Call(tuple(batch[0]), dict(batch[1]))
        named = _named({name: _item(batch[1], name) for name in chosen}, model)
        return Call((*batch[0], *named.args), named.kwargs)
    if isinstance(batch, Mapping):
        names = list(batch) if chosen is None else chosen
        return _named({name: _item(batch, name) for name in names}, model)
    if chosen is not None:
        raise UserCodeError(
            "batch.forward chooses by name, and the batch has no names",
            hint="let make_batch return a dict, or (args, kwargs)",
        )
    if isinstance(batch, (tuple, list)) and not hasattr(batch, "_fields"):
        return Call(tuple(batch), {})
    return Call((batch,), {})


def _named(values: dict[str, Any], model: nn.Module) -> Call:
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # a scripted forward does not tell
        return Call((), values)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if takes_any or set(values) <= known:
        return Call((), values)
    return Call(tuple(values.values()), {})


def _item(batch: Mapping[str, Any], name: str) -> Any:
    if name not in batch:
        raise UserCodeError(
            f"batch.forward names {name!r}, which the batch does not have", hint=f"it has {', '.join(map(str, batch))}"
        )
    return batch[name]


def _is_kwargs(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def _random(spec: TensorSpec, generator: torch.Generator) -> Tensor:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    shape = list(spec.shape or [])
    if dtype.is_floating_point or dtype.is_complex:
        if spec.low is None and spec.high is None:
            return torch.randn(shape, generator=generator, dtype=_draws(dtype)).to(dtype)
        low, high = spec.low or 0.0, 1.0 if spec.high is None else spec.high
        return (torch.rand(shape, generator=generator, dtype=_draws(dtype)) * (high - low) + low).to(dtype)
    low, high = int(spec.low or 0), 2 if spec.high is None else int(spec.high)
    if high <= low:
        raise UserCodeError(f"batch.tensors: high ({high}) must be greater than low ({low})")
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def _draws(dtype: torch.dtype) -> torch.dtype:
    """The dtype random numbers are drawn in: half precision is rounded afterwards, so that all dtypes see one batch."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
