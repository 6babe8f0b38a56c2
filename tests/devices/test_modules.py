"""Every module of torch.nn trains three steps on the device as on the CPU; which they are is found by introspection."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves, tree_map

from smoketest.devices.emulated import EmulatedDevice

MODULES = sorted(
    {cls for cls in vars(nn).values() if inspect.isclass(cls) and issubclass(cls, nn.Module)},
    key=lambda cls: cls.__name__,
)
INFOS = {info.module_cls: info for info in module_db}

NOT_TRAINED = {
    "Container": "a base class without forward",
    "Module": "a base class without forward",
    "ModuleDict": "a container without forward",
    "ModuleList": "a container without forward",
    "ParameterDict": "a container without forward",
    "ParameterList": "a container without forward",
    "RNNBase": "a base class without forward",
    "RNNCellBase": "a base class without forward",
    "DataParallel": "for several devices of one process, and there is one",
    "SyncBatchNorm": "PyTorch refuses it on any device but CUDA, XPU and PrivateUse1 within a process group",
}


class Use(NamedTuple):
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]


def _x(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(shape),)


def _pooled(pool: type[nn.Module], *shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: pool(2, return_indices=True)(torch.randn(shape))  # type: ignore[no-any-return]


def _embeddings() -> tuple[Tensor, ...]:
    return torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 4)


def _layer() -> nn.Module:
    return nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0)


RECIPES = {
    "AdaptiveLogSoftmaxWithLoss": Use(
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4]), lambda: (torch.randn(5, 4), torch.tensor([0, 1, 2, 4, 5]))
    ),
    "AlphaDropout": Use(nn.AlphaDropout, _x(3, 4)),
    "BCELoss": Use(nn.BCELoss, lambda: (torch.rand(3, 4) / 2 + 0.25, torch.rand(3, 4) / 2 + 0.25)),
    "ChannelShuffle": Use(lambda: nn.ChannelShuffle(2), _x(1, 4, 2, 2)),
    "CosineSimilarity": Use(nn.CosineSimilarity, lambda: _embeddings()[:2]),
    "CrossMapLRN2d": Use(lambda: nn.CrossMapLRN2d(2), _x(1, 4, 3, 3)),
    "Dropout": Use(nn.Dropout, _x(3, 4)),
    "Dropout1d": Use(nn.Dropout1d, _x(3, 4, 2)),
    "Dropout2d": Use(nn.Dropout2d, _x(3, 4, 2, 2)),
    "Dropout3d": Use(nn.Dropout3d, _x(3, 4, 2, 2, 2)),
    "EmbeddingBag": Use(lambda: nn.EmbeddingBag(5, 3), lambda: (torch.tensor([1, 2, 4, 3]), torch.tensor([0, 2]))),
    "FeatureAlphaDropout": Use(nn.FeatureAlphaDropout, _x(3, 4, 2)),
    "Flatten": Use(nn.Flatten, _x(2, 3, 4)),
    "Fold": Use(lambda: nn.Fold((4, 5), (2, 2)), _x(1, 8, 12)),
    "FractionalMaxPool2d": Use(lambda: nn.FractionalMaxPool2d(2, output_size=2), _x(1, 2, 5, 5)),
    "FractionalMaxPool3d": Use(lambda: nn.FractionalMaxPool3d(2, output_size=2), _x(1, 2, 5, 5, 5)),
    "Hardsigmoid": Use(nn.Hardsigmoid, _x(3, 4)),
    "Identity": Use(nn.Identity, _x(3, 4)),
    "LazyBatchNorm1d": Use(nn.LazyBatchNorm1d, _x(4, 3)),
    "LazyBatchNorm2d": Use(nn.LazyBatchNorm2d, _x(2, 3, 4, 4)),
    "LazyBatchNorm3d": Use(nn.LazyBatchNorm3d, _x(2, 3, 2, 4, 4)),
    "LazyInstanceNorm1d": Use(lambda: nn.LazyInstanceNorm1d(affine=True), _x(2, 3, 4)),
    "LazyInstanceNorm2d": Use(lambda: nn.LazyInstanceNorm2d(affine=True), _x(2, 3, 4, 4)),
    "LazyInstanceNorm3d": Use(lambda: nn.LazyInstanceNorm3d(affine=True), _x(2, 3, 2, 4, 4)),
    "LazyLinear": Use(lambda: nn.LazyLinear(3), _x(2, 4)),
    "MaxUnpool1d": Use(lambda: nn.MaxUnpool1d(2), _pooled(nn.MaxPool1d, 1, 2, 4)),
    "MaxUnpool2d": Use(lambda: nn.MaxUnpool2d(2), _pooled(nn.MaxPool2d, 1, 2, 4, 4)),
    "MaxUnpool3d": Use(lambda: nn.MaxUnpool3d(2), _pooled(nn.MaxPool3d, 1, 2, 4, 4, 4)),
    "NLLLoss2d": Use(nn.NLLLoss2d, lambda: (torch.randn(2, 3, 4, 4).log_softmax(1), torch.ones(2, 4, 4).long())),
    "PairwiseDistance": Use(nn.PairwiseDistance, lambda: _embeddings()[:2]),
    "PixelShuffle": Use(lambda: nn.PixelShuffle(2), _x(1, 4, 2, 2)),
    "PixelUnshuffle": Use(lambda: nn.PixelUnshuffle(2), _x(1, 1, 4, 4)),
    "RReLU": Use(nn.RReLU, _x(3, 4)),
    "Sequential": Use(lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU()), _x(2, 4)),
    "TransformerDecoder": Use(
        lambda: nn.TransformerDecoder(_layer(), 2), lambda: (torch.randn(3, 2, 8), torch.randn(4, 2, 8))
    ),
    "TripletMarginLoss": Use(nn.TripletMarginLoss, _embeddings),
    "TripletMarginWithDistanceLoss": Use(nn.TripletMarginWithDistanceLoss, _embeddings),
    "Unflatten": Use(lambda: nn.Unflatten(1, (2, 2)), _x(3, 4)),
    "Unfold": Use(lambda: nn.Unfold(2), _x(1, 2, 4, 4)),
    "Upsample": Use(lambda: nn.Upsample(scale_factor=2), _x(1, 2, 3, 3)),
    "UpsamplingBilinear2d": Use(lambda: nn.UpsamplingBilinear2d(scale_factor=2), _x(1, 2, 3, 3)),
    "UpsamplingNearest2d": Use(lambda: nn.UpsamplingNearest2d(scale_factor=2), _x(1, 2, 3, 3)),
}
"""For modules of which PyTorch's own database of samples has none, or none in float32."""


def uses(cls: type[nn.Module]) -> Iterator[tuple[Callable[[], nn.Module], tuple[Any, ...], dict[str, Any]]]:
    """How to make the module, and what to call it with: PyTorch's samples, or the recipe here."""
    if cls.__name__ in RECIPES:
        recipe = RECIPES[cls.__name__]
        yield recipe.make, tuple(x.requires_grad_(x.is_floating_point()) for x in recipe.inputs()), {}
        return
    info = INFOS[cls]
    samples = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=True)
    with_input = (sample for sample in samples if sample.forward_input is not None)
    for sample in itertools.islice(with_input, 2):
        args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
        yield (
            lambda args=args, kwargs=kwargs: cls(*args, **kwargs),
            sample.forward_input.args,
            sample.forward_input.kwargs,
        )


def losses(where: str, make: Callable[[], nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[float]:
    """Of three steps that train the module, and those of its inputs that require a gradient."""

    def move(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        moved = x.detach().clone().to(where)
        return moved.requires_grad_(x.requires_grad)

    torch.manual_seed(0)
    module = make()
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
        module(*args, **kwargs)
    module = module.to(where).train()
    args, kwargs = tree_map(move, (args, kwargs))
    inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.requires_grad]
    optimizer = torch.optim.SGD([*module.parameters(), *inputs], lr=1e-3)
    seen = []
    for _ in range(3):
        optimizer.zero_grad()
        out = [x for x in tree_leaves(module(*args, **kwargs)) if isinstance(x, Tensor) and x.requires_grad]
        loss = sum((x.square().mean() for x in out), torch.zeros((), device=where))
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


@pytest.mark.parametrize("cls", MODULES, ids=lambda cls: cls.__name__)
def test_a_module_trains_as_on_the_cpu(cls: type[nn.Module], device: EmulatedDevice) -> None:
    if cls.__name__ in NOT_TRAINED:
        return
    device.continue_past_errors = True
    compared = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, about what the module is or was
        for make, args, kwargs in uses(cls):
            expected = losses("cpu", make, args, kwargs)
            assert losses("neuron", make, args, kwargs) == pytest.approx(expected, rel=1e-4, abs=1e-6, nan_ok=True)
            compared += 1
    assert compared >= 1


def test_only_what_is_not_trainable_is_left_out() -> None:
    names = {cls.__name__ for cls in MODULES}
    assert len(names) > 150
    assert set(NOT_TRAINED) <= names
    assert set(RECIPES) <= names
    assert not set(NOT_TRAINED) & (set(RECIPES) | {cls.__name__ for cls in INFOS})
