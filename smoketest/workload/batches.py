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
from smoketest.workload.usercode import blame_user, place_of

__all__ = ["BatchMaker", "Call", "call_for", "explain_call", "from_function", "from_specs", "remembering"]

BatchMaker = Callable[[int], Any]
"""Makes the batch of a step, on the CPU, in the form the loss is given."""


@dataclass(frozen=True)
class Call:
    """What the model is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def from_function(function: Callable[[int], Any], name: str) -> BatchMaker:
    """Batches from the user's ``make_batch(step)``.

    Raises:
        UserCodeError: the function takes no step; or, when called, raises, or gives nothing that holds a tensor.
    """
    _needs_step(function, name)

    def make(step: int) -> Any:
        try:
            batch = function(step)
        except BaseException as error:
            raise blame_user(error, f"{name}({step})") from error
        if not _has_tensors(batch, name, step):
            raise UserCodeError(
                f"{name}({step}) gave no tensor: it returned {_describe(batch)}",
                hint="return (args, kwargs) as the model is called: (tensor,), {} for one input",
            )
        return batch

    return make


def _has_tensors(batch: Any, name: str, step: int) -> bool:
    try:
        return bool(list(tensors_in(batch)))
    except RecursionError:
        raise UserCodeError(
            f"{name}({step}) gave a {type(batch).__name__} that contains itself, or is nested too deeply",
            hint="return lists, tuples, dicts or dataclasses of tensors that do not contain each other",
        ) from None


def _needs_step(function: Callable[..., Any], name: str) -> None:
    signature = _signature(function)
    if signature is None or _binds(signature, (0,), {}):
        return
    shown = str(signature.replace(return_annotation=signature.empty))
    raise UserCodeError(
        f"{name}{shown} cannot be called as {name}(step)",
        place=place_of(function),
        hint=f"define it as {name}(step): the number of the step, from 0, to make each batch another one",
    )


def from_specs(specs: Mapping[str, TensorSpec], seed: int) -> BatchMaker:
    """Random batches, the same for the same seed and step: a dict of tensors by name."""

    def make(step: int) -> dict[str, Tensor]:
        generator = torch.Generator("cpu").manual_seed((seed * 1_000_003 + step) % 2**64)
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


def remembering(make: BatchMaker, most: int = 1) -> BatchMaker:
    """`make`, asked once for each of the last batches: user code may draw from an iterator or a random state.

    Args:
        make: what makes them.
        most: how many are remembered: as many as a step takes.
    """
    last: dict[int, Any] = {}

    def made(step: int) -> Any:
        if step not in last:
            while len(last) >= most:
                del last[next(iter(last))]
            last[step] = make(step)
        return last[step]

    return made


def call_for(batch: Any, spec: Batch | None, model: nn.Module) -> Call:
    """How the model is called with `batch`, its tensors already moved.

    ``(args, kwargs)`` is taken as it is; a mapping gives keyword arguments, another tuple or list positional ones, and
    anything else is the only argument. ``batch.forward`` of the check chooses among what has a name, and leaves the
    rest to the loss. Where the model has none of the names they are passed by position, in that order.

    Raises:
        UserCodeError: the model has some of the names and not the others, or has another number of arguments.
    """
    chosen = spec.forward if spec is not None else None
    if isinstance(batch, tuple) and _is_pair(batch):
        if chosen is None:
            return Call(tuple(batch[0]), dict(batch[1]))
        return _named({name: _item(batch[1], name) for name in chosen}, model, tuple(batch[0]))
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


def explain_call(call: Call, batch: Any, model: nn.Module) -> UserCodeError | None:
    """The error to raise where the model's forward does not take these arguments; None where it does."""
    signature = _signature(model.forward)
    if signature is None or _binds(signature, call.args, call.kwargs):
        return None
    given = [*["…"] * len(call.args), *(f"{name}=…" for name in call.kwargs)]
    return UserCodeError(
        f"{_shown(model, signature)} cannot be called as forward({', '.join(given)})",
        place=place_of(type(model).forward),
        hint=_call_hint(batch, signature),
    )


def _call_hint(batch: Any, signature: inspect.Signature) -> str:
    """How to change what the model is called with, for a batch of this form."""
    needed = _required(signature)
    if isinstance(batch, Mapping):
        missing = [name for name in needed if name not in batch]
        also = f"; the batch has no {_listed(missing)}" if missing else ""
        return f"forward is called with the batch's tensors by their names{also}"
    if not isinstance(batch, (tuple, list)) or hasattr(batch, "_fields"):
        return f"the batch is passed whole; let make_batch return a dict with the names {', '.join(needed)}"
    if _is_pair(batch):
        return "make_batch gave (args, kwargs), which is what forward is called with: change it there"
    first = needed[0] if needed else "x"
    names = [first, "labels", *(f"more{place}" for place in range(1, len(batch) - 1))][: len(batch)]
    made = ", ".join(f'"{name}": …' for name in names)
    return (
        f"make_batch gave a {type(batch).__name__} of {len(batch)}, each an argument of forward. Return a dict, "
        f"{{{made}}}, and choose with `batch: {{forward: [{first}]}}`; or return (args, kwargs): (({first},), {{}})"
    )


def _named(values: dict[str, Any], model: nn.Module, before: tuple[Any, ...] = ()) -> Call:
    """The call with named `values`, after the positional arguments `before`."""
    signature = _signature(model.forward)
    if signature is None:  # a scripted forward does not tell
        return Call(before, values)
    parameters = signature.parameters.values()
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    matching = [name for name in values if name in known]
    if takes_any or len(matching) == len(values):
        return Call(before, values)
    by_position = Call((*before, *values.values()), {})
    if not matching and _binds(signature, by_position.args, {}):
        return by_position
    others = [name for name in values if name not in known]
    verb = "is no argument" if len(others) == 1 else "are no arguments"
    raise UserCodeError(
        f"{_listed(others)} of the batch {verb} of {_shown(model, signature)}",
        place=place_of(type(model).forward),
        hint=_names_hint(signature, values, matching, before),
    )


def _names_hint(signature: inspect.Signature, values: dict[str, Any], matching: list[str], before: Any) -> str:
    if matching and _binds(signature, before, {name: values[name] for name in matching}):
        return f"leave the rest to the loss: `batch: {{forward: [{', '.join(matching)}]}}`"
    needed = _required(signature)
    if not matching:
        return (
            f"name the batch's tensors as forward does ({', '.join(needed)}), or choose which are passed, in that "
            f"order: `batch: {{forward: [{', '.join(list(values)[: len(needed)])}]}}`"
        )
    missing = [name for name in needed if name not in matching]
    return f"name the batch's tensors as forward does; {_listed(missing)} is missing"


def _required(signature: inspect.Signature) -> list[str]:
    """Names of the arguments that have no default."""
    parameters = signature.parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))


def _shown(model: nn.Module, signature: inspect.Signature) -> str:
    """Such as ``Net.forward(x, mask=None)``."""
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    text = str(inspect.Signature(bare))
    return f"{type(model).__name__}.forward{text if len(text) <= 160 else text[:160] + '…)'}"


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _binds(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _item(batch: Mapping[str, Any], name: str) -> Any:
    if name not in batch:
        raise UserCodeError(
            f"batch.forward names {name!r}, which the batch does not have", hint=f"it has {', '.join(map(str, batch))}"
        )
    return batch[name]


def _is_pair(batch: Any) -> bool:
    """Whether a batch has the form (args, kwargs)."""
    return len(batch) == 2 and isinstance(batch[0], (tuple, list)) and _is_kwargs(batch[1])


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
