"""The state a training step begins in, kept in a file, so that the same step can be made again, here or elsewhere.

Kept are parameters and their gradients, buffers, tensors and plain numbers that modules have as attributes, the
optimizers' state and options, and the random state of PyTorch's CPU generator, of Python and of NumPy (of the device's
generator too, where it has one). What user code keeps anywhere else (a closure, a global, a list) is not.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoketest.workload import Workload
from smoketest.workload.optimizers import each

__all__ = ["MOST_BYTES", "NotKept", "keep", "put_back"]

MOST_BYTES = 8 * 2**30
"""Of a state that is kept: a 700M-parameter model in float32 with AdamW."""
_SHARE_OF_DISK = 0.5
_DEPTH = 4
_PLAIN = (int, float, bool, str, type(None))

Saved = dict[str, Any]


class NotKept(Exception):
    """The state cannot be kept or put back; the text says why."""


def keep(workload: Workload, path: Path) -> None:
    """Write the state of a workload to `path`.

    Raises:
        NotKept: it is too large, an optimizer is none of PyTorch's and holds none, or the file cannot be written.
    """
    size = sum(tensor.nbytes for tensor in _all_tensors(workload))
    if size > MOST_BYTES or size > _SHARE_OF_DISK * _free(path):
        raise NotKept(f"the state of model and optimizer takes {size / 2**30:.1f} GiB, too much to keep")
    saved: Saved = {
        "parameters": {name: _host(tensor) for name, tensor in _shaped(workload.model.named_parameters())},
        "buffers": {name: _host(tensor) for name, tensor in _shaped(workload.model.named_buffers())},
        "gradients": {
            name: _host(tensor.grad)
            for name, tensor in _shaped(workload.model.named_parameters())
            if tensor.grad is not None
        },
        "attributes": {name: _attributes(module) for name, module in workload.model.named_modules()},
        "optimizers": [_optimizer(optimizer) for optimizer in _optimizers(workload)],
        "random": _random(workload.device),
    }
    try:
        torch.save(saved, path)
    except (OSError, RuntimeError) as error:  # PyTorch's writer turns a full disk into a RuntimeError
        with suppress(OSError):
            os.truncate(path, 0)
        raise NotKept(f"it cannot be written: {error}") from error


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
    saved: Saved = torch.load(path, mmap=True, weights_only=False)
    model = workload.model
    generator = torch.Generator("cpu").manual_seed(seed)
    with torch.no_grad():
        _copy_all(dict(_shaped(model.named_parameters())), saved["parameters"], spread, generator)
        _copy_all(dict(_shaped(model.named_buffers())), saved["buffers"])
        for name, parameter in model.named_parameters():
            gradient = saved["gradients"].get(name)  # of a parameter that no optimizer clears
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
        for name, module in model.named_modules():
            _set_attributes(module, saved["attributes"].get(name, {}))
        optimizers = _optimizers(workload)
        if len(optimizers) != len(saved["optimizers"]):
            raise NotKept("there is another number of optimizers")
        for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
            _set_optimizer(optimizer, state)
    _set_random(saved["random"], workload.device)


def _shaped(named: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Without those of lazy modules whose forward never ran, which have no shape yet."""
    return ((name, tensor) for name, tensor in named if not is_lazy(tensor))


def _free(path: Path) -> int:
    """Bytes there is room for where `path` is."""
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize


def _all_tensors(workload: Workload) -> Iterator[Tensor]:
    yield from (tensor for _, tensor in _shaped(workload.model.named_parameters()))
    yield from (tensor for _, tensor in _shaped(workload.model.named_buffers()))
    for optimizer in _optimizers(workload):
        for state in optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))


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


def _attributes(module: nn.Module) -> dict[str, Any]:
    """The plain numbers, texts and tensors among a module's attributes; no tensor that autograd made."""
    own = vars(module)
    plain = {key: value for key, value in own.items() if type(value) in _PLAIN}
    return plain | {
        key: _host(value) for key, value in own.items() if isinstance(value, Tensor) and value.grad_fn is None
    }


def _set_attributes(module: nn.Module, saved: dict[str, Any]) -> None:
    own = vars(module)
    for key, value in saved.items():
        now = own.get(key)
        if not isinstance(value, Tensor):
            if type(now) in _PLAIN and now != value:
                own[key] = value
        elif isinstance(now, Tensor) and now.shape == value.shape and now.grad_fn is None:
            now.copy_(value)


def _optimizers(workload: Workload) -> list[torch.optim.Optimizer]:
    """PyTorch's optimizers among the workload's, and those that an object of another class holds."""
    found: dict[int, torch.optim.Optimizer] = {}
    for optimizer in each(workload.optimizer):
        inner = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(_held(optimizer))
        if not inner and not _is_stateless(optimizer, {id(parameter) for parameter in workload.model.parameters()}):
            raise NotKept(f"the state of a {type(optimizer).__name__}, which is no torch.optim.Optimizer, is its own")
        found |= {id(one): one for one in inner}
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


def _optimizer(optimizer: torch.optim.Optimizer) -> Saved:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {
        "groups": [
            {key: _kept(value) for key, value in group.items() if key != "params"} for group in optimizer.param_groups
        ],
        "state": [
            {key: _kept(value) for key, value in optimizer.state.get(parameter, {}).items()} for parameter in parameters
        ],
    }


def _kept(value: Any) -> Any:
    return _host(value) if isinstance(value, Tensor) else value


def _set_optimizer(optimizer: torch.optim.Optimizer, saved: Saved) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if len(parameters) != len(saved["state"]) or len(optimizer.param_groups) != len(saved["groups"]):
        raise NotKept("the optimizer holds other parameters")
    for group, options in zip(optimizer.param_groups, saved["groups"], strict=True):
        for key, value in options.items():
            group[key] = _given(group.get(key), value)
    for parameter, state in zip(parameters, saved["state"], strict=True):
        own = optimizer.state[parameter] if state or parameter in optimizer.state else {}
        for key in own.keys() - state.keys():
            del own[key]
        for key, value in state.items():
            own[key] = _given(own.get(key), value, parameter)


def _given(now: Any, value: Any, parameter: Tensor | None = None) -> Any:
    """What to put in the place of `now`: the same tensor with the value in it, where there is one."""
    if not isinstance(value, Tensor):
        return value
    if isinstance(now, Tensor) and now.shape == value.shape:
        return now.copy_(value)
    # Such as a step counter: on the CPU for most optimizers. State of a parameter's shape is where the parameter is.
    beside = parameter is not None and parameter.shape == value.shape and value.dim() > 0
    return value.clone().to(parameter.device if beside and parameter is not None else "cpu")


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
