"""How large a check's model is, without the memory for it: built on PyTorch's meta device.

Meta tensors have shapes and dtypes and no data. What cannot be built so (a constructor that reads a value) is built
with its large tensors on meta and its small ones real; what cannot be built that way either raises, and is not sized.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
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
    return _with_optimizer(sizes, optimizer, model)


def sizes_of(model: nn.Module, optimizer: Any) -> Sizes:
    """Sizes of a model that was built, and of the state its optimizer has by now.

    Parameters and buffers that occur twice count once.
    """
    return _with_optimizer(_model_sizes(model), optimizer, model)


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
    """Sizes of its weights and buffers; on a device each has memory of its own, since moving a module copies each."""
    parameters = [parameter for parameter in model.parameters() if not is_lazy(parameter)]
    buffers = [buffer for buffer in model.buffers() if not is_lazy(buffer)]
    return Sizes(
        parameters=sum(parameter.numel() for parameter in parameters),
        parameter_bytes=sum(map(_bytes, parameters)),
        buffer_bytes=sum(map(_bytes, buffers)),
        gradient_bytes=sum(_bytes(parameter) for parameter in parameters if parameter.requires_grad),
        optimizer_bytes=None,
        built_bytes=_held([*parameters, *buffers]),
    )


def _with_optimizer(sizes: Sizes, optimizer: Any, model: nn.Module) -> Sizes:
    """The sizes with those of the optimizer's state, where it is a mapping of tensors as PyTorch's are.

    What it keeps in attributes of its own, such as copies of the weights, counts too.
    """
    for one in optimizers.each(optimizer):
        if not _states(one):
            return _unknown(sizes, optimizer, f"{type(one).__name__} keeps it elsewhere")
    own = _own_tensors(optimizer, model)
    return replace(sizes, optimizer_bytes=_held(own), optimizer=optimizers.names_of(optimizer) or "optimizer")


def _with_stand_ins(sizes: Sizes, model: nn.Module, check: Check) -> Sizes:
    """The same out of a real step, over small parameters in the place of the model's, which are gone afterwards.

    Not known where a tensor of the state has no shape that says how it grows with its parameter.
    """
    large = _replace_parameters(model)
    try:
        optimizer = optimizer_over(model, check)
        _step(optimizer, [small for small, _ in large.values()])
    except Exception as error:
        return replace(sizes, why_no_optimizer=f"a step of it without data raised {summary_of(error)}")
    known = _with_optimizer(sizes, optimizer, model)
    if known.optimizer_bytes is None:
        return known
    scaled: dict[int, int | None] = {}
    for one in optimizers.each(optimizer):
        for key, state in chain.from_iterable(states.items() for states in _states(one)):
            small, shape = large.get(id(key), (None, ()))
            scaled |= {id(tensor): _scaled(tensor, small, shape) for tensor in tensors_in(state)}
    total = 0
    for tensor in _own_tensors(optimizer, model):
        size = scaled[id(tensor)] if id(tensor) in scaled else _scaled(tensor, None, ())
        if size is None:
            why = f"it keeps a tensor of shape {list(tensor.shape)} for parameters that are smaller than the model's"
            return _unknown(sizes, optimizer, why)
        total += size
    return replace(known, optimizer_bytes=total)


def _unknown(sizes: Sizes, optimizer: Any, why: str) -> Sizes:
    return replace(sizes, optimizer=optimizers.names_of(optimizer), why_no_optimizer=why)


def _states(optimizer: Any) -> list[Mapping[Any, Any]]:
    """Its state by parameter, and that of the optimizers among its attributes; none where it keeps it elsewhere."""
    found = [getattr(one, "state", None) for one in (optimizer, *_inner(optimizer))]
    return [state for state in found if isinstance(state, Mapping)]


def _inner(optimizer: Any) -> list[torch.optim.Optimizer]:
    """The optimizers among its attributes."""
    held = chain.from_iterable(optimizers.each(value) for value in getattr(optimizer, "__dict__", {}).values())
    return [value for value in held if isinstance(value, torch.optim.Optimizer)]


def _own_tensors(optimizer: Any, model: nn.Module) -> list[Tensor]:
    """The tensors in the state and in the attributes of the optimizers, without those of the model."""
    found: dict[int, Tensor] = {}
    for one in optimizers.each(optimizer):
        for holder in (one, *_inner(one)):
            attributes = list(getattr(holder, "__dict__", {}).values())
            found.update((id(tensor), tensor) for tensor in tensors_in([*attributes, *_states(holder)]))
    of_model = [tensor for tensor in (*model.parameters(), *model.buffers()) if not is_lazy(tensor)]
    of_model += [tensor.grad for tensor in of_model if tensor.grad is not None]
    taken = {id(tensor) for tensor in of_model}
    storages = {id(storage): storage for tensor in of_model if (storage := _storage(tensor)) is not None}
    return [
        tensor for key, tensor in found.items()
        if key not in taken and not is_lazy(tensor) and id(_storage(tensor)) not in storages
    ]  # fmt: skip


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


def _scaled(state: Tensor, small: Tensor | None, shape: tuple[int, ...]) -> int | None:
    """Bytes of a state tensor of the small parameter, for the large one; None where its shape does not tell."""
    if state.numel() <= 1:
        return _bytes(state)
    if small is None:
        return None
    if state.numel() == small.numel():
        return torch.Size(shape).numel() * state.element_size()
    large = dict(zip(small.shape, shape, strict=False)) | {1: 1}
    if any(size not in large for size in state.shape):
        return None
    elements = 1
    for size in state.shape:
        elements *= large[size]
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
    """Bytes of a copy of it: all of an expanded one, values and indices of a sparse one."""
    parts = _parts(tensor)
    return sum(map(_bytes, parts)) if parts else tensor.numel() * tensor.element_size()


def _held(tensors: Iterable[Tensor]) -> int:
    """Bytes that these tensors hold together: each storage once, whatever views of it there are."""
    held: dict[int, tuple[object, int]] = {}  # the storage is kept, so that its id is not given away
    for tensor in tensors:
        storage = _storage(tensor)
        held[id(tensor if storage is None else storage)] = (
            (tensor, _bytes(tensor)) if storage is None else (storage, storage.nbytes())
        )
    return sum(size for _, size in held.values())


def _storage(tensor: Tensor) -> torch.UntypedStorage | None:
    """Its storage, the same object for all views of it; None where it has none of its own."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def _parts(tensor: Tensor) -> list[Tensor]:
    """The tensors that a sparse one consists of; none where it is dense."""
    if tensor.layout == torch.sparse_coo:
        whole = tensor.detach()
        whole = whole if whole.is_coalesced() else whole.coalesce()
        return [whole.indices(), whole.values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []
