"""The state a training step begins in, kept in a file, so that the same step can be made again, here or elsewhere.

Kept are parameters and their gradients, buffers, what modules have as attributes as far as `values` can keep it, the
optimizers' state, options and attributes, and the random state of PyTorch's CPU generator, of Python and of NumPy (of
the device's generator too, where it has one). What user code keeps anywhere else (a closure, a global, an object of a
class of its own) is not.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoketest.worker.values import CannotKeep, Keeper, give_back, size_of, tensors_of
from smoketest.workload import Workload
from smoketest.workload.optimizers import each
from smoketest.workload.usercode import summary_of

__all__ = ["MOST_BYTES", "NotKept", "keep", "put_back"]

MOST_BYTES = 8 * 2**30
"""Of a state that is kept: a 700M-parameter model in float32 with AdamW."""
_SHARE_OF_DISK = 0.5
_DEPTH = 4
_PLAIN = (int, float, bool, str, type(None))
_OF_MODULES = frozenset(vars(nn.Module())) - {"training"}
_OF_OPTIMIZERS = frozenset(vars(torch.optim.Optimizer([torch.zeros(1)], {})))
"""Attributes that every module and every optimizer has."""

Saved = dict[str, Any]


class NotKept(Exception):
    """The state cannot be kept or put back; the text says why."""


def keep(workload: Workload, path: Path) -> None:
    """Write the state of a workload to `path`.

    Raises:
        NotKept: it is too large, an optimizer holds what cannot be kept, or the file cannot be written.
    """
    try:
        _keep(workload, path)
    except NotKept:
        raise
    except Exception as error:  # attributes are the user's objects, and can fail at anything
        with suppress(OSError):
            os.truncate(path, 0)
        raise NotKept(f"the state of model and optimizer cannot be kept: {summary_of(error)}") from error


def put_back(workload: Workload, path: Path, spread: float = 0.0, seed: int = 0) -> None:
    """Give a workload the state in `path`: the same one, or the same check's on another device.

    Args:
        workload: its tensors are written in place.
        path: what `keep` wrote.
        spread: parameters are multiplied by 1 + spread * (a normal random number): what rounding does to them.
        seed: of those numbers, which come from a generator of their own.

    Raises:
        NotKept: the state is of another structure.
    """
    try:
        _put_back(workload, path, spread, seed)
    except NotKept:
        raise
    except Exception as error:
        raise NotKept(f"the state of model and optimizer cannot be put back: {summary_of(error)}") from error


def _keep(workload: Workload, path: Path) -> None:
    size = sum(size_of(tensor) for tensor in _all_tensors(workload))
    if size > MOST_BYTES or size > _SHARE_OF_DISK * _free(path):
        raise NotKept(f"the state of model and optimizer takes {size / 2**30:.1f} GiB, too much to keep")
    keeper = Keeper(_own_tensors(workload))
    saved: Saved = {
        "parameters": {name: _host(tensor) for name, tensor in _shaped(workload.model.named_parameters())},
        "buffers": {name: _host(tensor) for name, tensor in _shaped(workload.model.named_buffers())},
        "gradients": {
            name: _host(tensor.grad)
            for name, tensor in _shaped(workload.model.named_parameters())
            if tensor.grad is not None
        },
        "attributes": {
            name: _attributes(module, keeper, _OF_MODULES) for name, module in workload.model.named_modules()
        },
        "optimizers": [_optimizer(optimizer, keeper) for optimizer in _optimizers(workload)],
        "owners": [_attributes(owner, keeper, _OF_OPTIMIZERS) for owner in _owners(workload)],
        "random": _random(workload.device),
    }
    try:
        torch.save(saved, path)
    except (OSError, RuntimeError) as error:  # PyTorch's writer turns a full disk into a RuntimeError
        with suppress(OSError):
            os.truncate(path, 0)
        raise NotKept(f"it cannot be written: {error}") from error


def _put_back(workload: Workload, path: Path, spread: float, seed: int) -> None:
    saved: Saved = torch.load(path, mmap=True, weights_only=False)
    model, device = workload.model, workload.device
    generator = torch.Generator("cpu").manual_seed(seed)
    with torch.no_grad():
        _copy_all(dict(_shaped(model.named_parameters())), saved["parameters"], spread, generator)
        _copy_all(dict(_shaped(model.named_buffers())), saved["buffers"])
        for name, parameter in model.named_parameters():
            gradient = saved["gradients"].get(name)  # of a parameter that no optimizer clears
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
        for name, module in model.named_modules():
            _set_attributes(module, saved["attributes"].get(name, {}), device)
        optimizers, owners = _optimizers(workload), _owners(workload)
        if len(optimizers) != len(saved["optimizers"]) or len(owners) != len(saved["owners"]):
            raise NotKept("there is another number of optimizers")
        for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
            _set_optimizer(optimizer, state, device)
        for owner, attributes in zip(owners, saved["owners"], strict=True):
            _set_attributes(owner, attributes, device)
    _set_random(saved["random"], device)


def _shaped(named: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Without those of lazy modules whose forward never ran, which have no shape yet."""
    return ((name, tensor) for name, tensor in named if not is_lazy(tensor))


def _free(path: Path) -> int:
    """Bytes there is room for where `path` is."""
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize


def _own_tensors(workload: Workload) -> Iterator[Tensor]:
    yield from (tensor for _, tensor in _shaped(workload.model.named_parameters()))
    yield from (tensor for _, tensor in _shaped(workload.model.named_buffers()))


def _all_tensors(workload: Workload) -> Collection[Tensor]:
    """Each tensor once that is kept, or is looked at for it."""
    found = {id(tensor): tensor for tensor in _own_tensors(workload)}
    for module in workload.model.modules():
        own = {key: value for key, value in vars(module).items() if key not in _OF_MODULES}
        found |= {id(tensor): tensor for tensor in tensors_of(own) if not is_lazy(tensor)}
    for optimizer in _optimizers(workload):
        found |= {id(tensor): tensor for tensor in tensors_of(dict(optimizer.state))}
    return found.values()


def _host(tensor: Tensor) -> Tensor:
    """A copy on the CPU, whatever happens to the tensor."""
    return tensor.detach().to("cpu", copy=True)


def _copy_all(
    into: dict[str, Any], saved: dict[str, Any], spread: float = 0.0, generator: torch.Generator | None = None
) -> None:
    if into.keys() != saved.keys() or any(into[name].shape != saved[name].shape for name in into):
        raise NotKept("the model has other parameters or buffers")
    for name, tensor in into.items():
        value = saved[name]
        if spread and value.is_floating_point():
            noise = torch.randn(value.shape, generator=generator)
            value = (value.double() * (1 + spread * noise.double())).to(value.dtype)
        tensor.copy_(value)


def _attributes(owner: Any, keeper: Keeper, known: Collection[str]) -> dict[str, Any]:
    """What of an object's attributes can be kept; those that `known` names are kept elsewhere, or are PyTorch's."""
    found = {}
    for key, value in getattr(owner, "__dict__", {}).items():
        if key not in known:
            with suppress(CannotKeep):
                found[key] = keeper.keep(value)
    return found


def _set_attributes(owner: Any, saved: dict[str, Any], device: str) -> None:
    own = getattr(owner, "__dict__", {})
    for key, value in saved.items():
        if key in own:
            with suppress(CannotKeep):
                given = give_back(own[key], value, device)
                if given is not own[key]:
                    own[key] = given


def _optimizers(workload: Workload) -> list[torch.optim.Optimizer]:
    """PyTorch's optimizers among the workload's, and those that an object of another class holds."""
    found: dict[int, torch.optim.Optimizer] = {}
    for optimizer in each(workload.optimizer):
        inner = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(_held(optimizer))
        if not inner and not _is_stateless(optimizer, {id(parameter) for parameter in workload.model.parameters()}):
            raise NotKept(f"the state of a {type(optimizer).__name__}, which is no torch.optim.Optimizer, is its own")
        found |= {id(one): one for one in inner}
    return list(found.values())


def _owners(workload: Workload) -> list[Any]:
    """The optimizers, and the objects that hold them."""
    found = {id(one): one for one in (*each(workload.optimizer), *_optimizers(workload))}
    return list(found.values())


def _held(owner: Any) -> Iterator[torch.optim.Optimizer]:
    for value in getattr(owner, "__dict__", {}).values():
        items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
        yield from (item for item in items if isinstance(item, torch.optim.Optimizer))


def _is_stateless(value: Any, parameters: set[int], depth: int = 0) -> bool:
    """Whether an object holds nothing but parameters of the model, and numbers and texts."""
    if isinstance(value, Tensor):
        return id(value) in parameters
    if type(value) in _PLAIN:
        return True
    if isinstance(value, (list, tuple, dict)):
        items = value.values() if isinstance(value, dict) else value
        return depth < _DEPTH and all(_is_stateless(item, parameters, depth + 1) for item in items)
    return depth == 0 and all(
        _is_stateless(item, parameters, 1) for item in getattr(value, "__dict__", {"": ...}).values()
    )


def _optimizer(optimizer: torch.optim.Optimizer, keeper: Keeper) -> Saved:
    """Options and state: what the optimizer holds by its parameters, in their order, and what it holds by other keys.

    Raises:
        NotKept: it holds what cannot be kept.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    known = {id(parameter) for parameter in parameters}
    others = {key: value for key, value in optimizer.state.items() if id(key) not in known}
    if not all(isinstance(key, _PLAIN) for key in others):
        raise NotKept("the optimizer has a state for what is none of its parameters")
    try:
        return {
            "groups": [
                {key: keeper.keep(value) for key, value in group.items() if key != "params"}
                for group in optimizer.param_groups
            ],
            "state": [
                (keeper.keep(optimizer.state[parameter]),) if parameter in optimizer.state else ()
                for parameter in parameters
            ],
            "others": {key: keeper.keep(value) for key, value in others.items()},
        }
    except CannotKeep as reason:
        raise NotKept(f"the state of a {type(optimizer).__name__} holds {reason}") from reason


def _set_optimizer(optimizer: torch.optim.Optimizer, saved: Saved, device: str) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if len(parameters) != len(saved["state"]) or len(optimizer.param_groups) != len(saved["groups"]):
        raise NotKept("the optimizer holds other parameters")
    state: Any = optimizer.state
    try:
        for group, options in zip(optimizer.param_groups, saved["groups"], strict=True):
            for key, value in options.items():
                group[key] = give_back(group.get(key), value, device, in_place=True)
        for parameter, kept in zip(parameters, saved["state"], strict=True):
            now = state.pop(parameter, None)
            if kept:
                state[parameter] = give_back(now, kept[0], device, in_place=True)
        for key in [key for key in state if not isinstance(key, Tensor) and key not in saved["others"]]:
            del state[key]
        for key, value in saved["others"].items():
            state[key] = give_back(state.get(key), value, device, in_place=True)
    except CannotKeep as reason:
        raise NotKept(f"the state of a {type(optimizer).__name__} held {reason}, and holds none now") from reason


def _random(device: str) -> Saved:
    numpy = sys.modules.get("numpy")
    saved: Saved = {
        "cpu": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": numpy.random.get_state() if numpy is not None else None,
        "device": None,
    }
    if device != "cpu":
        with suppress(Exception):  # a device need not have a generator
            saved["device"] = torch.get_device_module(device).get_rng_state()
    return saved


def _set_random(saved: Saved, device: str) -> None:
    numpy = sys.modules.get("numpy")
    if device != "cpu" and saved["device"] is not None:
        with suppress(Exception):
            torch.get_device_module(device).set_rng_state(saved["device"])
    torch.set_rng_state(saved["cpu"])
    random.setstate(saved["python"])
    if numpy is not None and saved["numpy"] is not None:
        numpy.random.set_state(saved["numpy"])
