"""A check for a target: build it, find what it can be called with, and make two training steps on plain CPU."""

from __future__ import annotations

import contextlib
import inspect
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import nn

from smoketest.config.draft import Draft, TrialRequest
from smoketest.config.models import Check
from smoketest.errors import SmoketestError, UserCodeError
from smoketest.worker.trial.building import MOST_PARAMETERS, Recipe, recipes
from smoketest.worker.trial.inputs import Arguments, Spec, arguments, combinations, repaired
from smoketest.worker.trial.outputs import LossChoice, choose_loss
from smoketest.workload.build import build_workload
from smoketest.workload.targets import call_target, resolve
from smoketest.workload.usercode import summary_of
from smoketest.workload.workload import loss_value

__all__ = ["find_check"]

_MOST_TRIES = 600
_REPAIRS = 3
"""How often in a row an error's own words are followed."""

_NOT_THE_INPUT = (AttributeError, NameError, ImportError, NotImplementedError)
_ENOUGH = 5
"""So many times in a row one of these, with the same words: other inputs will not change it."""

Write = Callable[[Draft], None]


def find_check(request: TrialRequest, write: Write) -> Draft:
    """A check that runs on plain CPU, or as far as one could be found, with the problem.

    Args:
        request: the target and how long to look.
        write: called with what is known so far, in case this process does not live to tell.

    Raises:
        UserCodeError: the target cannot be imported, or nothing can be built of it.
    """
    if request.workload is not None:
        return _stepped(Draft(workload=str(request.workload)), "check")
    assert request.target is not None
    deadline = time.monotonic() + request.seconds
    last: Draft | None = None
    problem: UserCodeError | None = None
    for recipe in recipes(request.target, resolve(request.target)):
        draft = Draft(
            target=recipe.target, config=recipe.config, config_defaults=recipe.config_defaults,
            kwargs=recipe.kwargs, guessed=recipe.guessed,
        )  # fmt: skip
        try:
            model = _built(recipe)
        except UserCodeError as error:
            problem = problem or error
            last = last or draft.model_copy(update={"problem": _sentence(error)})
            continue
        draft = _described(draft, model)
        write(draft.model_copy(update={"problem": "stopped while inputs were tried"}))
        draft = _with_inputs(draft, recipe, model, deadline, write)
        if draft.problem is None:
            return draft
        last = draft if last is None or last.call is None else last
        if time.monotonic() > deadline:
            break
    if last is None:
        raise problem or UserCodeError("nothing could be built of it")
    return last


# The model


def _built(recipe: Recipe) -> nn.Module:
    """The model. Its size is looked at first, without memory. Raises `UserCodeError`."""
    count = _size(recipe)
    if count is not None and count > MOST_PARAMETERS:
        raise UserCodeError(
            f"it has {count:,} parameters, too many for a first try",
            hint="make it smaller: fewer layers of the same kind tell the same",
        )
    torch.manual_seed(0)
    made = _make(recipe)
    if not isinstance(made, nn.Module):
        kind = "None" if made is None else f"a {type(made).__name__}"
        raise UserCodeError(
            f"{recipe.target.rpartition(':')[2]} gave {kind}, not an nn.Module",
            hint="name a class of modules, a function that returns one, or a transformers config class",
        )
    return made


def _make(recipe: Recipe) -> Any:
    options = dict(recipe.config)
    config_class = options.pop("class", None)
    first = [call_target(config_class, **options)] if config_class is not None else []
    return call_target(recipe.target, *first, **recipe.kwargs)


def _size(recipe: Recipe) -> int | None:
    """Number of parameters; None where the model cannot be built without memory."""
    try:
        with torch.device("meta"):
            made = _make(recipe)
        return int(sum(p.numel() for p in made.parameters()))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return None


def _described(draft: Draft, model: nn.Module) -> Draft:
    with contextlib.suppress(ValueError):  # lazy parameters have no size yet
        draft = draft.model_copy(update={"parameters": sum(p.numel() for p in model.parameters())})
    return draft.model_copy(update={"call": _call(model)})


def _call(model: nn.Module, names: Sequence[str] = ()) -> str:
    """Such as ``Net.forward(x, mask=None)``; of a long signature only what is passed."""
    signature = inspect.signature(model.forward)
    text = str(inspect.Signature([p.replace(annotation=p.empty) for p in signature.parameters.values()]))
    short = text if len(text) <= 100 else f"({', '.join((*names, '…'))})"
    return f"{type(model).__name__}.forward{short}"


# Its inputs


def _with_inputs(draft: Draft, recipe: Recipe, model: nn.Module, deadline: float, write: Write) -> Draft:
    known = arguments(model)
    if known.other:
        name, kind = known.other[0]
        return draft.model_copy(
            update={
                "problem": f"forward needs {name!r}, of type {kind}, which is no tensor: write a function "
                "make_batch(step) -> (args, kwargs), and name it as batch: {target: file.py:make_batch}",
                "tensors": _placeholders(model, known),
            }
        )
    if not known.choices():
        return draft.model_copy(update={"problem": "forward takes no argument"})
    errors: list[str] = []
    for names in known.choices():
        end = deadline if names == known.choices()[-1] else time.monotonic() + (deadline - time.monotonic()) / 2
        for given, output in _accepted(recipe, model, names, errors, end):
            chosen = choose_loss(output, given)
            if chosen is None:
                errors.append("nothing in the model's output has a gradient")
                continue
            found = _with_loss(draft, given, chosen).model_copy(update={"call": _call(model, names)})
            stepped = _stepped(found, "check")
            if stepped.problem is not None:
                errors.append(stepped.problem)
                continue
            if stepped.loss_value is None:
                stepped = _with_positive(draft, given, chosen, stepped)
            return stepped.model_copy(update={"tried": len(errors) + 1})
    why = max(set(errors[-50:]), key=errors.count, default="no input was tried")
    first = errors[0] if errors else why
    return draft.model_copy(
        update={
            "problem": f"none of the {len(errors):,} inputs tried for {', '.join(known.choices()[-1])} was taken; the"
            f" first ended in {first}" + (f", most in {why}" if why != first else ""),
            "tensors": _placeholders(model, known),
            "tried": len(errors),
        }
    )


def _placeholders(model: nn.Module, known: Arguments) -> dict[str, dict[str, Any]]:
    """The likeliest tensors, for a person to change."""
    names = [name for name in (known.choices() or [()])[-1] if name not in dict(known.other)]
    return {name: spec.data() for name, spec in next(combinations(model, names), {}).items()}


def _accepted(
    recipe: Recipe, model: nn.Module, names: Sequence[str], errors: list[str], deadline: float
) -> Iterator[tuple[dict[str, Spec], Any]]:
    """Inputs that the model takes, with what it gives; what it says of the others goes to `errors`."""
    vocabularies = sorted({layer.num_embeddings for layer in model.modules() if isinstance(layer, nn.Embedding)})
    lazy = any(nn.parameter.is_lazy(p) for p in model.parameters())
    seen: set[tuple[tuple[str, Spec], ...]] = set()
    waiting = [(given, 0) for given in _first(combinations(model, names), _MOST_TRIES)]
    while waiting and len(seen) < _MOST_TRIES and time.monotonic() < deadline:
        given, depth = waiting.pop(0)
        key = tuple(given.items())
        if key in seen:
            continue
        seen.add(key)
        try:
            yield given, _called(_built(recipe) if lazy else model, given)
        except Exception as error:  # whatever user code raises
            message = summary_of(error)
            errors.append(message)
            if isinstance(error, _NOT_THE_INPUT) and errors[-_ENOUGH:] == [message] * _ENOUGH:
                return
            if depth < _REPAIRS:
                waiting[:0] = [(better, depth + 1) for better in _first(repaired(given, message, vocabularies), 8)]


def _first(items: Iterator[Any], count: int) -> list[Any]:
    return list(islice(items, count))


def _called(model: nn.Module, given: dict[str, Spec]) -> Any:
    torch.manual_seed(0)
    tensors = {name: spec.tensor(place) for place, (name, spec) in enumerate(given.items())}
    parameters = inspect.signature(model.forward).parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if all(
            name in parameters and parameters[name].kind is not inspect.Parameter.VAR_POSITIONAL for name in tensors
        ):
            return model(**tensors)
        return model(*tensors.values())


# The step


def _with_loss(draft: Draft, given: dict[str, Spec], chosen: LossChoice) -> Draft:
    tensors = {name: spec.data() for name, spec in (given | chosen.tensors).items()}
    return draft.model_copy(
        update={
            "tensors": _likened(tensors),
            "forward": tuple(given) if chosen.tensors else None,
            "loss": chosen.loss,
            "output": chosen.shown,
            "loss_guessed": chosen.guessed,
        }
    )


def _likened(tensors: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Labels of a language model are its own input: another draw of the same kind would be noise to learn."""
    if "input_ids" in tensors and tensors.get("labels") == tensors["input_ids"]:
        return {**tensors, "labels": {"like": "input_ids"}}
    return tensors


def _with_positive(draft: Draft, given: dict[str, Spec], chosen: LossChoice, otherwise: Draft) -> Draft:
    """With inputs between 0 and 1, where the loss was not finite with normal ones: a model of counts or of sizes."""
    positive = {name: replace(spec, low=0, high=1) if spec.dtype == "float32" else spec for name, spec in given.items()}
    again = _stepped(_with_loss(draft, positive, chosen), "check")
    return again if again.problem is None and again.loss_value is not None else otherwise


def _stepped(draft: Draft, name: str) -> Draft:
    """The draft with the loss of two training steps on plain CPU, or with why none could be made."""
    try:
        workload = build_workload(Check.model_validate(draft.check(name)), "cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            losses = [loss_value(workload.step(index)) for index in range(2)]
    except SmoketestError as error:
        return draft.model_copy(update={"problem": _sentence(error)})
    except Exception as error:  # whatever user code raises
        return draft.model_copy(update={"problem": summary_of(error)})
    value = losses[0] if None not in losses and math.isfinite(losses[0] or 0) else None
    return draft.model_copy(update={"problem": None, "loss_value": value})


def _sentence(error: SmoketestError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message
