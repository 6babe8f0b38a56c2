"""How large a check's model is, without the memory for it: built on PyTorch's meta device.

Meta tensors have shapes and dtypes and no data. What cannot be built so (a constructor that reads a value) is built
with its large tensors on meta and its small ones real; what cannot be built that way either raises, and is not sized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from smoketest.config.models import Check
from smoketest.errors import UserCodeError
from smoketest.findings.fit import Sizes
from smoketest.workload import optimizers
from smoketest.workload.build import build_model, optimizer_over, options_of
from smoketest.workload.moving import tensors_in
from smoketest.workload.targets import resolve
from smoketest.workload.usercode import summary_of

__all__ = ["Layers", "layers", "sizes_of", "sizes_on_meta"]

_SMALL = 2**16
"""Elements up to which a tensor is made for real where a constructor reads values."""

_FACTORIES = frozenset(
    {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint, torch.normal,
     torch.arange, torch.eye, torch.empty_strided}
)  # fmt: skip

_DEPTH = re.compile(r"(^|_)(n_|num_)?(\w+_)?(layers?|blocks?|depth)$")
_NO_DEPTH = re.compile(r"norm|drop|type|every|scale|init|size|dim|width|idx|index")
_USUAL = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "encoder_layers", "decoder_layers")
_STAND_IN = (5, 7, 11, 13, 17, 19, 23)
"""Sizes of the dimensions of a small parameter that stands for a large one: distinct, so that the dimensions of an
optimizer's state tell which of the parameter's they are."""


def sizes_on_meta(check: Check) -> Sizes:
    """Sizes of the check's model, its gradients and its optimizer's state after a step.

    Raises:
        UserCodeError: the model cannot be built without its data.
    """
    model = _on_meta(check)
    sizes = _model_sizes(model)
    try:
        optimizer = optimizer_over(model, check)
        _step(optimizer, list(model.parameters()))
    except Exception:  # it reads values, or refuses the meta device, as fused ones do
        return _with_stand_ins(sizes, model, check)
    return _with_optimizer(sizes, optimizer)


def sizes_of(model: nn.Module, optimizer: Any) -> Sizes:
    """Sizes of a model that was built, and of the state its optimizer has by now.

    Parameters and buffers that occur twice count once.
    """
    return _with_optimizer(_model_sizes(model), optimizer)


@dataclass(frozen=True)
class Layers:
    """How the size of a model follows from a number of layers.

    Attributes:
        key: of the check, as ``--set`` takes it.
        now: how many layers it has; None where the check leaves that to the model's config class.
        base: sizes in bytes without a layer: (weights and buffers, all of training).
        each: the same, for one layer.
    """

    key: str
    now: int | None
    base: tuple[int, int]
    each: tuple[int, int]


def layers(check: Check) -> Layers | None:
    """The number in the model's config that its size depends on most, of those that are called layers or the like.

    Each candidate is built with one and with two layers.
    """
    found = []
    for key, now in _candidates(check):
        try:
            one, two = (_sized_with(check, key, count) for count in (1, 2))
        except Exception:  # a number that cannot be changed alone
            continue
        each = (two[0] - one[0], two[1] - one[1])
        if each[0] > 0:
            found.append(Layers(key, now, (one[0] - each[0], one[1] - each[1]), each))
    return max(found, key=lambda entry: entry.each[0] * (entry.now or 1), default=None)


def _sized_with(check: Check, key: str, count: int) -> tuple[int, int]:
    data = check.model_dump(mode="json")
    place = data
    *way, last = key.split(".")
    for part in way:
        place = place[part]
    place[last] = count
    sizes = sizes_on_meta(Check.model_validate(data))
    return sizes.model_bytes, sizes.training_bytes


def _candidates(check: Check) -> Iterator[tuple[str, int | None]]:
    if check.model is None:
        return
    given = False
    for part, values in (("config", check.model.config or {}), ("kwargs", check.model.kwargs)):
        for name, value in values.items():
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if is_number and _DEPTH.search(name) and not _NO_DEPTH.search(name):
                given = True
                yield f"model.{part}.{name}", value
    config_class = (check.model.config or {}).get("class")
    made = resolve(config_class) if config_class is not None and not given else None
    if isinstance(made, type):
        yield from ((f"model.config.{name}", None) for name in _USUAL if name in options_of(made))


def _on_meta(check: Check) -> nn.Module:
    try:
        with torch.device("meta"):
            return build_model(check, "meta")
    except UserCodeError:  # most often a value was read
        with _LargeOnMeta():
            return build_model(check, "cpu")


class _LargeOnMeta(TorchFunctionMode):
    """Tensors of more than `_SMALL` elements are made on meta, smaller ones for real."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES and kwargs.get("device") is None and kwargs.get("out") is None:
            on_meta = func(*args, **(_without_generator(kwargs) | {"device": "meta"}))
            if on_meta.numel() > _SMALL:
                return on_meta
        return func(*args, **kwargs)


def _without_generator(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name != "generator"}


def _model_sizes(model: nn.Module) -> Sizes:
    parameters = [parameter for parameter in model.parameters() if not is_lazy(parameter)]
    return Sizes(
        parameters=sum(parameter.numel() for parameter in parameters),
        parameter_bytes=sum(map(_bytes, parameters)),
        buffer_bytes=sum(_bytes(buffer) for buffer in model.buffers() if not is_lazy(buffer)),
        gradient_bytes=sum(_bytes(parameter) for parameter in parameters if parameter.requires_grad),
        optimizer_bytes=None,
    )


def _with_optimizer(sizes: Sizes, optimizer: Any) -> Sizes:
    """The sizes with those of the optimizer's state, where it is a mapping of tensors as PyTorch's are."""
    seen: dict[int, Tensor] = {}
    for one in optimizers.each(optimizer):
        states = _states(one)
        if not states:
            why = f"{type(one).__name__} keeps it elsewhere"
            return replace(sizes, optimizer=optimizers.names_of(optimizer), why_no_optimizer=why)
        seen.update((id(tensor), tensor) for state in states for tensor in tensors_in(state))
    name = optimizers.names_of(optimizer) or "optimizer"
    return replace(sizes, optimizer_bytes=sum(map(_bytes, seen.values())), optimizer=name)


def _with_stand_ins(sizes: Sizes, model: nn.Module, check: Check) -> Sizes:
    """The same out of a real step, over small parameters in the place of the model's, which are gone afterwards."""
    large = _replace_parameters(model)
    try:
        optimizer = optimizer_over(model, check)
        _step(optimizer, [small for small, _ in large.values()])
    except Exception as error:
        return replace(sizes, why_no_optimizer=f"a step of it without data raised {summary_of(error)}")
    sizes = _with_optimizer(sizes, optimizer)
    if sizes.optimizer_bytes is None:
        return sizes
    total = 0
    for one in optimizers.each(optimizer):
        for parameter, state in chain.from_iterable(states.items() for states in _states(one)):
            small, shape = large.get(id(parameter), (parameter, tuple(parameter.shape)))
            total += sum(_scaled(tensor, small, shape) for tensor in tensors_in(state))
    return replace(sizes, optimizer_bytes=total)


def _states(optimizer: Any) -> list[Mapping[Any, Any]]:
    """Its state by parameter, or that of the optimizers among its attributes; none where it keeps it elsewhere."""
    held = chain.from_iterable(optimizers.each(value) for value in getattr(optimizer, "__dict__", {}).values())
    inner = [value for value in held if isinstance(value, torch.optim.Optimizer)]
    found = [getattr(one, "state", None) for one in (inner or [optimizer])]
    return [state for state in found if isinstance(state, Mapping)]


_StandIns = dict[int, tuple[nn.Parameter, tuple[int, ...]]]


def _replace_parameters(model: nn.Module) -> _StandIns:
    """Put a small real parameter in the place of each one, tied ones staying tied.

    Returns:
        By the small one's id: itself, and the shape of the one it stands for.
    """
    made: dict[int, nn.Parameter] = {}
    stand_ins: _StandIns = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in made:
                sizes = [min(size, small) for size, small in zip(parameter.shape, _STAND_IN, strict=False)]
                small = nn.Parameter(torch.zeros(sizes, dtype=parameter.dtype), parameter.requires_grad)
                made[id(parameter)] = small
                stand_ins[id(small)] = (small, tuple(parameter.shape))
            module._parameters[name] = made[id(parameter)]
    return stand_ins


def _scaled(state: Tensor, small: Tensor, shape: tuple[int, ...]) -> int:
    """Bytes of a state tensor of the small parameter, for the large one."""
    if state.numel() == small.numel():
        return torch.Size(shape).numel() * state.element_size()
    large = dict(zip(small.shape, shape, strict=False))
    elements = 1
    for size in state.shape:
        elements *= large.get(size, size)
    return elements * state.element_size()


def _step(optimizer: Any, parameters: list[nn.Parameter]) -> None:
    for parameter in parameters:
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    for one in optimizers.each(optimizer):
        try:
            one.step()
        except RuntimeError:  # SparseAdam takes sparse gradients only
            _make_sparse(one)
            one.step()


def _make_sparse(optimizer: Any) -> None:
    """Give the parameters of one optimizer sparse gradients, as an embedding with ``sparse=True`` does."""
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter).to_sparse(1)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
