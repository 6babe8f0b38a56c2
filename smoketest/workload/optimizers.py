"""The optimizer: one of ``torch.optim``, or whatever the user's ``make_optimizer`` returns."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from smoketest.config.models import Optimizer
from smoketest.errors import UserCodeError
from smoketest.workload.targets import resolve
from smoketest.workload.usercode import blame_user, summary_of

__all__ = ["default_optimizer", "each", "from_function", "from_spec", "names_of", "refuse_closures"]

_TAKES_MODEL = frozenset({"model", "module", "net", "network"})


def from_spec(spec: Optimizer, model: nn.Module) -> Any:
    """The optimizer of a check, over all parameters of `model`.

    Raises:
        UserCodeError: ``torch.optim`` has no such class, it refuses its options, or the target cannot be had.
    """
    if spec.target is not None:
        return from_function(resolve(spec.target), model, spec.target.rpartition(":")[2], spec.options)
    name = spec.name or "AdamW"
    cls = getattr(torch.optim, name, None)
    if not (isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)):
        known = [
            n for n, c in vars(torch.optim).items() if isinstance(c, type) and issubclass(c, torch.optim.Optimizer)
        ]
        close = difflib.get_close_matches(name, known, n=1)
        raise UserCodeError(
            f"torch.optim has no optimizer {name!r}",
            hint=f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(known))}",
        )
    try:
        return cls(_given(model), **spec.options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserCodeError(
            f"torch.optim.{name} cannot be made with {spec.options}: {summary_of(error)}",
            hint="everything beside `name` under `optimizer` is passed to the class",
        ) from error


def default_optimizer(model: nn.Module) -> Any:
    """What trains a model whose check names no optimizer: AdamW as PyTorch makes it.

    Raises:
        UserCodeError: the model has no parameters.
    """
    if next(model.parameters(), None) is None:
        raise UserCodeError(
            f"{type(model).__name__} has no parameters, so there is nothing to train and no optimizer to make",
            hint="register tensors with nn.Parameter and modules as attributes or in an nn.ModuleList; a model whose"
            " training needs no optimizer of PyTorch's is trained by train_step or make_optimizer in the workload file",
        )
    return from_spec(Optimizer(name="AdamW"), model)


def from_function(
    function: Callable[..., Any],
    model: nn.Module,
    name: str = "make_optimizer",
    options: Mapping[str, Any] | None = None,
) -> Any:
    """What the user's ``make_optimizer(params)`` or ``make_optimizer(model)`` returns, told apart by that name.

    Raises:
        UserCodeError: it raises, or returns nothing that can ``step()``.
    """
    first = next(iter(_parameters(function)), "params")
    given: Any = model if first in _TAKES_MODEL else _given(model)
    try:
        made = function(given, **(options or {}))
    except BaseException as error:
        raise blame_user(error, f"{name}({first})") from error
    found = list(each(made))
    if not found or not all(callable(getattr(one, "step", None)) for one in found):
        raise UserCodeError(
            f"{name} gave {'None' if made is None else f'a {type(made).__name__}'}, which has no step()",
            hint="return an optimizer, or a list, tuple or dict of them",
        )
    return made


def refuse_closures(optimizers: Any) -> None:
    """Refuse optimizers whose step makes forward and backward itself, as often as it likes (LBFGS).

    Raises:
        UserCodeError: one of them cannot step without a closure.
    """
    for one in each(optimizers):
        if any(needed == "closure" for needed in _required(one.step)):
            raise UserCodeError(
                f"{type(one).__name__} needs a closure that makes forward and backward, "
                "which a step in three phases has not",
                hint="define train_step(model, batch, optimizer): call optimizer.step(closure), return the loss",
            )


def each(optimizers: Any) -> Iterator[Any]:
    """The single optimizers in what ``make_optimizer`` returned."""
    if isinstance(optimizers, Mapping):
        yield from optimizers.values()
    elif isinstance(optimizers, (list, tuple)):
        yield from optimizers
    elif optimizers is not None:
        yield optimizers


def names_of(optimizers: Any) -> str:
    """Class names for the report: ``AdamW``, or ``Adam, Adam``."""
    return ", ".join(type(one).__name__ for one in each(optimizers))


def _given(model: nn.Module) -> list[Any]:
    """The parameters as an optimizer takes them: in groups, where only some of them are spread over ranks."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        from smoketest.workload.parallel import parameter_groups

        return parameter_groups(model)
    return list(model.parameters())


def _required(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a class written in C has no signature
        return []
