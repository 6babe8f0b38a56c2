"""From a check to a workload on a device."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from smoketest.config.models import Check, Model
from smoketest.errors import UserCodeError
from smoketest.workload import batches, losses, optimizers
from smoketest.workload.batches import BatchMaker
from smoketest.workload.loader import LoaderBatches
from smoketest.workload.losses import LossFunction
from smoketest.workload.moving import move
from smoketest.workload.targets import call_target, find, load_file, resolve
from smoketest.workload.usercode import blame_user, shown_path
from smoketest.workload.workload import TrainStep, Workload

if TYPE_CHECKING:
    from smoketest.workload.ranks import Ranks

__all__ = [
    "Moving",
    "build_model",
    "build_workload",
    "load",
    "loader_of",
    "optimizer_over",
    "options_of",
    "seed_everything",
    "unwatched",
]

Moving = Callable[[nn.Module], AbstractContextManager[object]]
"""Given the model where it was built; entered around its move to the device."""


def unwatched(model: nn.Module) -> AbstractContextManager[object]:
    """For a move nobody watches."""
    del model
    return contextlib.nullcontext()


def build_workload(
    check: Check, torch_device: str, moving: Moving = unwatched, ranks: Ranks | None = None, parts: int = 1
) -> Workload:
    """Make the model, batches, loss and optimizer of `check`.

    The model is built on the CPU, so that the same seed gives the same weights for every device, then moved. A model
    with lazy modules runs one forward on the CPU first: an optimizer needs parameters that exist.

    Args:
        check: validated, its paths absolute.
        torch_device: ``neuron`` or ``cpu``.
        moving: entered around the move, with the model.
        ranks: this process among several that train the model together.
        parts: into how many parts a step divides each batch, see `Workload`.

    Raises:
        UserCodeError: an import or a constructor raises, or gives what cannot be used.
    """
    file = load_file(check.workload) if check.workload is not None else None
    seed_everything(check.training.seed)
    model = _model(check, file)
    make_batch = batches.remembering(_batch_maker(check, file), most=check.training.accumulate)
    loss, loss_name = _loss(check, file)
    lazy = _lazy_modules(model)
    if lazy:
        _run_once(model, make_batch, check)
        lazy = tuple(name for name in lazy if name not in _lazy_modules(model))
    with moving(model):
        model.to(torch_device)
    spread = ranks.spread(model, torch_device) if ranks is not None else None
    optimizer, train_step = _optimizer(check, file, model), _train_step(check, file)
    if train_step is None:
        optimizers.refuse_closures(optimizer)
    return Workload(
        model=model,
        make_batch=make_batch,
        batch_spec=check.batch,
        loss=loss,
        loss_name=loss_name,
        optimizer=optimizer,
        train_step=train_step,
        training=check.training,
        device=torch_device,
        lazy=lazy,
        spread=spread,
        ranks=ranks,
        parts=parts,
        split=check.parallel.split if check.parallel is not None else None,
    )


def load(check: Check) -> None:
    """Import what makes the model, as building it does first.

    Raises:
        UserCodeError: an import raises, or a name is not there.
    """
    if check.workload is not None:
        load_file(check.workload)
    if check.model is not None:
        resolve(check.model.target)
        config_class = (check.model.config or {}).get("class")
        if config_class is not None:
            resolve(config_class)


def build_model(check: Check, torch_device: str) -> nn.Module:
    """The model of `check` alone, made under the default device, which is the caller's to choose.

    Args:
        check: validated, its paths absolute.
        torch_device: where the batch goes for the forward that lazy modules need.

    Raises:
        UserCodeError: an import or a constructor raises, or gives no module.
    """
    file = load_file(check.workload) if check.workload is not None else None
    seed_everything(check.training.seed)
    model = _model(check, file)
    if _lazy_modules(model):
        make_batch = _batch_maker(check, file)
        with torch.device("cpu"):
            batch = make_batch(0)
        _run_once(model, lambda step: move(batch, torch_device), check)
    return model


def optimizer_over(model: nn.Module, check: Check) -> Any:
    """The optimizer of `check` over the parameters of `model`. Raises `UserCodeError` where it cannot be made."""
    return _optimizer(check, load_file(check.workload) if check.workload is not None else None, model)


def seed_everything(seed: int) -> None:
    """Seed Python's, PyTorch's and, where it is in use, NumPy's random numbers."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def _model(check: Check, file: ModuleType | None) -> nn.Module:
    if check.model is not None:
        made, source = _build_model(check.model), check.model.target.rpartition(":")[2]
    else:
        source = "make_model()"
        made = _called(_needed(file, "make_model", "a model", check), source)
    if not isinstance(made, nn.Module):
        raise UserCodeError(
            f"{source} gave {'None' if made is None else f'a {type(made).__name__}'}, not an nn.Module",
            hint="return the module itself" if made is not None else "does it end in a return statement?",
        )
    if check.model is not None and check.model.dtype is not None:
        made.to(getattr(torch, check.model.dtype))
    return made


def _build_model(spec: Model) -> Any:
    args = list(spec.args)
    if spec.config is not None:
        options = dict(spec.config)
        config_class = options.pop("class", None)
        if config_class is not None:
            _refuse_ignored(config_class, options, spec.target)
        args.insert(0, options if config_class is None else call_target(config_class, **options))
    return call_target(spec.target, *args, **spec.kwargs)


def _refuse_ignored(config_class: str, options: dict[str, Any], model: str) -> None:
    """Refuse a misspelt option of a class that takes any: ``d_modle`` would be ignored without a word.

    Raises:
        UserCodeError: neither the class nor the model's file knows the option, and the class knows one spelt nearly so.
    """
    made = resolve(config_class)
    if not inspect.isclass(made):
        return
    known = options_of(made)
    for name in options.keys() - known:
        near = difflib.get_close_matches(name, known - options.keys(), n=1, cutoff=0.85)
        if near and not any(re.search(rf"\b{re.escape(name)}\b", source) for source in _sources(made, resolve(model))):
            raise UserCodeError(
                f"model.config: {made.__name__} knows no {name!r} and would ignore it",
                hint=f"did you mean {near[0]!r}?",
            )


def _sources(*objects: Any) -> Iterator[str]:
    """The text of the files that define these classes and functions, where it can be read."""
    for module in {inspect.getmodule(one) for one in objects}:
        with contextlib.suppress(OSError, TypeError):
            yield inspect.getsource(module) if module is not None else ""


def options_of(made: type) -> set[str]:
    """Names a class takes or reads: arguments of its and its bases' ``__init__``, fields, attributes, aliases."""
    names = set(dir(made))
    for base in made.__mro__[:-1]:
        names |= set(vars(base).get("__annotations__", ()))
        with contextlib.suppress(TypeError, ValueError):
            names |= set(inspect.signature(base.__init__).parameters)  # type: ignore[misc]
    aliases = getattr(made, "attribute_map", None)
    names |= {*aliases, *aliases.values()} if isinstance(aliases, dict) else set()
    return {name for name in names if not name.startswith("_")} - {"self", "args", "kwargs"}


def loader_of(check: Check) -> LoaderBatches | None:
    """The batches of the check's data loader; None where it has none.

    Raises:
        UserCodeError: the loader cannot be imported or made, or is no iterable.
    """
    if check.batch is None or check.batch.loader is None:
        return None
    target = check.batch.loader
    name = target.rpartition(":")[2]

    def make() -> Iterable[Any]:
        made, _ = find(target)
        if callable(made) and (inspect.isclass(made) or not hasattr(made, "__iter__")):
            made = call_target(target)
        if not hasattr(made, "__iter__") and not hasattr(made, "__getitem__"):
            raise UserCodeError(
                f"{name} is no iterable of batches: it is of type {type(made).__name__}",
                hint="name a DataLoader, or a function that returns one",
            )
        loader: Iterable[Any] = made
        return loader

    names = tuple(check.batch.names) if check.batch.names is not None else None
    return LoaderBatches(make, name, check.training.seed, names)


def _batch_maker(check: Check, file: ModuleType | None) -> BatchMaker:
    loader = loader_of(check)
    if loader is not None:
        return loader
    if check.batch is not None and check.batch.tensors is not None:
        return batches.from_specs(check.batch.tensors, check.training.seed)
    if check.batch is not None and check.batch.target is not None:
        return batches.from_function(resolve(check.batch.target), check.batch.target.rpartition(":")[2])
    return batches.from_function(_needed(file, "make_batch", "batches", check), "make_batch")


def _loss(check: Check, file: ModuleType | None) -> tuple[LossFunction, str]:
    if check.loss is not None:
        return losses.from_spec(check.loss)
    function = getattr(file, "loss_fn", None)
    return losses.from_output() if function is None else losses.from_function(function)


def _optimizer(check: Check, file: ModuleType | None, model: nn.Module) -> Any:
    if check.optimizer is not None:
        return optimizers.from_spec(check.optimizer, model)
    function = getattr(file, "make_optimizer", None)
    return optimizers.default_optimizer(model) if function is None else optimizers.from_function(function, model)


def _train_step(check: Check, file: ModuleType | None) -> TrainStep | None:
    if check.train_step is not None:
        return resolve(check.train_step)
    function: TrainStep | None = getattr(file, "train_step", None)
    return function


def _needed(file: ModuleType | None, name: str, what: str, check: Check) -> Callable[..., Any]:
    found = getattr(file, name, None)
    if found is None:
        where = f"{shown_path(check.workload)} defines no {name}" if check.workload else f"the check has no {name}"
        raise UserCodeError(
            f"there is nothing to make {what} with: {where}", hint=f"define {name} there, or in the YAML"
        )
    if not callable(found):
        raise UserCodeError(f"{name} is not callable: it is of type {type(found).__name__}", hint="make it a function")
    function: Callable[..., Any] = found
    return function


def _called(function: Callable[..., Any], what: str) -> Any:
    try:
        return function()
    except BaseException as error:
        raise blame_user(error, what) from error


def _lazy_modules(model: nn.Module) -> tuple[str, ...]:
    """Names of the modules whose parameters or buffers have no shape yet."""
    return tuple(
        name or type(module).__name__
        for name, module in model.named_modules()
        if any(
            nn.parameter.is_lazy(tensor)
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False))
        )
    )


def _run_once(model: nn.Module, make_batch: BatchMaker, check: Check) -> None:
    """One forward on the CPU, leaving the random state as it was."""
    state = torch.get_rng_state()
    call = batches.call_for(make_batch(0), check.batch, model)
    try:
        with torch.no_grad():
            model(*call.args, **call.kwargs)
    except BaseException as error:
        raise blame_user(error, "the first forward of a model with lazy modules, on the CPU,") from error
    torch.set_rng_state(state)
