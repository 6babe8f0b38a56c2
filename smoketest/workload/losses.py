"""The loss: an attribute of the output, the user's function, or one of ``torch.nn.functional``."""

from __future__ import annotations

import difflib
import numbers
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from smoketest.config.models import Loss
from smoketest.errors import UserCodeError
from smoketest.workload.targets import resolve

__all__ = ["LossFunction", "checked_loss", "from_function", "from_output", "from_spec", "read_path"]

LossFunction = Callable[[Any, Any], Any]
"""Loss of (output, batch), both on the device."""

_STEP = re.compile(r"""\.(?P<name>\w+)|\[(?P<index>-?\d+)\]|\[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]""")


def from_spec(spec: str | Loss) -> tuple[LossFunction, str]:
    """The loss of a check, and what to call it in messages.

    Raises:
        UserCodeError: ``torch.nn.functional`` has no such function, or the target cannot be had.
    """
    if isinstance(spec, Loss):
        return _functional(spec), spec.name
    if ":" in spec and "[" not in spec:
        return resolve(spec), spec.rpartition(":")[2]
    return (lambda output, batch: read_path(spec, output, batch)), spec


def from_function(function: LossFunction) -> tuple[LossFunction, str]:
    """The user's ``loss_fn(output, batch)``."""
    return function, getattr(function, "__name__", "loss_fn")


def from_output() -> tuple[LossFunction, str]:
    """The loss where a check gives none: the output's attribute ``loss``, or the output itself."""

    def loss(output: Any, batch: Any) -> Any:
        del batch
        found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        return output if found is None else found

    return loss, "the model's output"


def checked_loss(loss: Any, name: str) -> Tensor:
    """`loss`, if backward can start from it.

    Raises:
        UserCodeError: it is no tensor, not a scalar, or has no gradient.
    """
    if isinstance(loss, numbers.Number):
        raise UserCodeError(
            f"the loss must be a scalar tensor; {name} gave {_describe(loss)}, from which no backward can start",
            hint="drop .item() or float(), and return the tensor itself",
        )
    if not isinstance(loss, Tensor):
        raise UserCodeError(
            f"the loss must be a scalar tensor; {name} gave {_describe(loss)}",
            hint="give `loss:` in the check: output.loss, a target, or {name: cross_entropy, target: batch.labels}",
        )
    if loss.numel() != 1:
        raise UserCodeError(
            f"the loss must be a scalar tensor; {name} gave one of shape {tuple(loss.shape)}",
            hint="reduce it, for example with .mean()",
        )
    if loss.is_complex():
        raise UserCodeError(
            f"the loss must be a real number; {name} gave one of dtype {str(loss.dtype).removeprefix('torch.')}",
            hint="take .abs() or .real of it",
        )
    if not loss.requires_grad:
        raise UserCodeError(
            f"the loss from {name} does not require grad, so backward cannot start from it",
            hint="look for torch.no_grad(), .detach(), .item() or an integer dtype between the parameters and the loss",
        )
    return loss


def read_path(path: str, output: Any, batch: Any) -> Any:
    """What `path` names: ``output.loss``, ``output.0``, ``output["x"]``, ``batch.labels`` and so on.

    A name is looked up as a key first, then as an attribute. In a batch of the form (args, kwargs) names are those of
    the keyword arguments.

    Raises:
        UserCodeError: the path cannot be read, or leads nowhere.
    """
    root, steps = _parse(path)
    value = output if root == "output" else batch
    if root == "batch" and steps and isinstance(steps[0], str) and isinstance(value, tuple) and len(value) == 2:
        value = value[1]
    for step in steps:
        value = _take(value, step, path, root)
    return value


def _parse(path: str) -> tuple[str, list[str | int]]:
    root = re.match(r"output|batch", path)
    steps: list[str | int] = []
    position = root.end() if root else 0
    while root and position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            break
        name = found["name"] or found["index"]
        steps.append(found["key"] if name is None else int(name) if name.lstrip("-").isdigit() else name)
        position = found.end()
    if root is None or position < len(path):
        raise UserCodeError(
            f"{path!r} is not a path to a value", hint='write output.loss, output.0, output["x"] or batch.labels'
        )
    return root.group(), steps


def _take(value: Any, step: str | int, path: str, root: str) -> Any:
    if isinstance(step, str) and not (isinstance(value, Mapping) and step in value) and hasattr(value, step):
        return getattr(value, step)
    try:
        return value[step]
    except (KeyError, IndexError, TypeError) as error:
        raise UserCodeError(
            f"{path!r} leads nowhere: {root} has no {step!r} in {_describe(value)}", hint=_names_in(value)
        ) from error


def _functional(spec: Loss) -> LossFunction:
    function = getattr(torch.nn.functional, spec.name, None)
    if not callable(function) or spec.name.startswith("_"):
        losses = [name for name in dir(torch.nn.functional) if not name.startswith("_")]
        close = difflib.get_close_matches(spec.name, losses, n=1)
        raise UserCodeError(
            f"torch.nn.functional has no {spec.name!r}",
            hint=f"did you mean {close[0]!r}?" if close else "name a function such as cross_entropy or mse_loss",
        )

    def loss(output: Any, batch: Any) -> Any:
        predicted = read_path(spec.input, output, batch)
        return function(predicted, read_path(spec.target, output, batch), **spec.kwargs)

    return loss


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with the keys {', '.join(map(repr, list(value)[:8]))}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _names_in(value: Any) -> str | None:
    if isinstance(value, Mapping):
        return f"it has {', '.join(map(str, list(value)[:8]))}"
    if isinstance(value, (tuple, list)):
        return f"it has the positions 0 to {len(value) - 1}" if value else "it is empty"
    return None
