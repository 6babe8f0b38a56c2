"""What a model may be called with: random tensors to try for each argument of its forward, the likeliest first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Arguments", "Spec", "arguments", "combinations", "repaired"]

BATCH, LENGTH, NODES, EDGES = 4, 16, 16, 48
_SIDES = (32, 64, 28, 224, 96, 128)
_MOST_PER_NAME = 40

_IDS = re.compile(
    r"(^|_)(ids?|idx|tokens?|src|tgt|trg|sequences?|words?|users?|items?|indices|index|codes?|categor\w*|cat|sparse|prompt|text)(_|$|\d)"
)
_MASK = re.compile(r"mask")
_TIME = re.compile(r"^(t|ts|time|timesteps?|steps?|sigma|noise_level|noise)$")
_IMAGE = re.compile(r"image|img|pixel|frame|pict|video")
_TARGETS = re.compile(r"^(labels?|targets?|y_true|target_ids|tgt_labels|y)$")
_LENGTHS = re.compile(r"len(gth)?s$")
_NOT_TENSORS = (int, float, bool, str, dict)


@dataclass(frozen=True)
class Spec:
    """A random tensor: as a check writes it.

    Attributes:
        shape: sizes.
        dtype: name of the dtype.
        low: smallest value; None for what the dtype has by itself.
        high: values are below it.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: int | None = None
    high: int | None = None

    def tensor(self, seed: int) -> Tensor:
        """Such a tensor."""
        generator = torch.Generator().manual_seed(seed)
        dtype: torch.dtype = getattr(torch, self.dtype)
        if dtype.is_floating_point:
            made = (
                torch.randn(self.shape, generator=generator)
                if self.high is None
                else torch.rand(self.shape, generator=generator)
            )
            return made.to(dtype)
        high = 2 if self.high is None else self.high
        return torch.randint(self.low or 0, high, self.shape, generator=generator).to(dtype)

    def data(self) -> dict[str, Any]:
        """As a check has it."""
        bounds = {key: value for key, value in (("low", self.low), ("high", self.high)) if value is not None}
        return {"shape": list(self.shape), "dtype": self.dtype, **bounds}


@dataclass(frozen=True)
class Arguments:
    """The arguments of a model's forward.

    Attributes:
        needed: names of those without a default.
        targets: names of those with one that are what the loss compares with, such as ``labels``.
        first: name of the first one, where none is needed; or what a ``*args`` is called.
        other: those that are needed and are no tensors: name and type.
        positional: whether the names are ours, since forward takes ``*args``.
    """

    needed: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    first: str | None = None
    other: tuple[tuple[str, str], ...] = ()

    def choices(self) -> list[tuple[str, ...]]:
        """Sets of arguments to try, the likeliest first: with the targets, since a loss then comes with them."""
        base = self.needed or ((self.first,) if self.first is not None else ())
        with_targets = [(*base, name) for name in self.targets]
        return [*with_targets, base] if base else []


def arguments(model: nn.Module) -> Arguments:
    """What forward takes, by its signature; of a transformers model also what its config says is the main input."""
    parameters = [p for p in inspect.signature(model.forward).parameters.values() if p.kind is not p.VAR_KEYWORD]
    several = [p for p in parameters if p.kind is p.VAR_POSITIONAL]
    named = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
    needed = [p for p in named if p.default is p.empty]
    other = tuple((p.name, _shown(p.annotation)) for p in needed if _is_no_tensor(p.annotation))
    optional = [p.name for p in named if p.default is not p.empty]
    main = getattr(model, "main_input_name", None)
    first = main if main in optional else (named[0].name if named else several[0].name if several else None)
    names = tuple(p.name for p in needed)
    if not names and main in optional:
        names = (main,)
        config = getattr(model, "config", None)
        if (
            getattr(config, "is_encoder_decoder", False)
            and "labels" not in optional
            and "decoder_input_ids" in optional
        ):
            names = (main, "decoder_input_ids")
        names += tuple(name for name in _also_needed(model) if name in optional and name not in names)
    return Arguments(
        needed=names,
        targets=tuple(name for name in optional if _TARGETS.match(name) and name not in names)[:2],
        first=first,
        other=other,
    )


def _also_needed(model: nn.Module) -> Iterator[str]:
    """Second inputs of models for text and pictures."""
    config = getattr(model, "config", None)
    if "vision_config" in getattr(config, "sub_configs", {}) and "text_config" in getattr(config, "sub_configs", {}):
        yield from ("input_ids", "pixel_values")


def _is_no_tensor(annotation: Any) -> bool:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return annotation in _NOT_TENSORS or bool(
        re.match(r"(list|List|dict|Dict|tuple|Tuple|Sequence|str|int|bool|float)\b", text)
    )


def _shown(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


# Sizes that a model's layers take


@dataclass
class _Sizes:
    """What the layers of a model take, in the order in which they are registered, without repetition."""

    tensors: list[tuple[Any, ...]] = field(default_factory=list)
    vocabularies: list[int] = field(default_factory=list)
    last: int | None = None


def _sizes(model: nn.Module) -> _Sizes:
    found = _Sizes()
    for layer in model.modules():
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            found.vocabularies.append(layer.num_embeddings)
            found.tensors.append(("ids",))
        elif isinstance(
            layer, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
        ):
            dimensions = len(layer.kernel_size)
            found.tensors.append((f"conv{dimensions}", layer.in_channels))
        elif isinstance(layer, nn.Linear):
            found.tensors.append(("features", layer.in_features))
            found.last = layer.out_features
        elif isinstance(layer, nn.Bilinear):
            found.tensors += [("features", layer.in1_features), ("features", layer.in2_features)]
        elif isinstance(layer, nn.RNNBase):
            found.tensors.append(("sequence", layer.input_size))
        elif isinstance(layer, nn.RNNCellBase):
            found.tensors += [("features", layer.input_size), ("features", layer.hidden_size)]
        elif isinstance(layer, nn.MultiheadAttention):
            found.tensors.append(("sequence", layer.embed_dim))
        elif isinstance(layer, nn.LayerNorm):
            found.tensors.append(("sequence", layer.normalized_shape[-1]))
        elif isinstance(layer, nn.BatchNorm2d | nn.GroupNorm):
            found.tensors.append(("conv2", getattr(layer, "num_features", None) or layer.num_channels))
        elif isinstance(layer, nn.BatchNorm1d):
            found.tensors.append(("features", layer.num_features))
    # Of a layer without a size yet any will do: what is right for the others is tried, and pictures have 3 channels.
    found.tensors = [("conv2", 3) if size == ("conv2", 0) else size for size in found.tensors]
    found.tensors = list(dict.fromkeys(size for size in found.tensors if size[1:] != (0,)))
    found.vocabularies = sorted(set(found.vocabularies))
    return found


def _likely(model: nn.Module, name: str, names: Sequence[str]) -> list[Spec]:
    """Tensors to try for one argument."""
    known = _of_config(model, name)
    sizes = _sizes(model)
    graph = any(re.search(r"edge_index|edges|adj", other) for other in names)
    found = [*known, *_by_name(name.lower(), sizes, graph), *_by_layers(sizes, name.lower(), graph), *_fallbacks()]
    return list(islice(dict.fromkeys(found), _MOST_PER_NAME))


def _by_name(name: str, sizes: _Sizes, graph: bool) -> Iterator[Spec]:
    ids = [
        Spec(shape, "int64", 0, high) for high in sizes.vocabularies or [100] for shape in ((BATCH, LENGTH), (BATCH,))
    ]
    if re.search(r"edge_index|^edges$", name):
        yield Spec((2, EDGES), "int64", 0, NODES)
    elif re.match(r"adj", name):
        yield Spec((NODES, NODES))
        yield Spec((BATCH, NODES, NODES))
    elif graph and re.search(r"pos|coord", name):
        yield Spec((NODES, 3))
    elif graph and re.match(r"batch", name):
        yield Spec((NODES,), "int64", 0, 1)
    elif graph and re.search(r"edge_(attr|weight|feat)", name):
        yield Spec((EDGES,))
        yield from (Spec((EDGES, size[1])) for size in sizes.tensors if size[0] == "features")
    elif _LENGTHS.search(name):
        yield Spec((BATCH,), "int64", 1, LENGTH + 1)
    elif _MASK.search(name):
        for shape in ((BATCH, LENGTH), (LENGTH, LENGTH), (BATCH, 1, LENGTH, LENGTH)):
            yield Spec(shape, "bool")
            yield Spec(shape)
    elif _TARGETS.match(name):
        yield from ids[:2]
        for high in dict.fromkeys([sizes.last or 2, 2]):
            yield Spec((BATCH,), "int64", 0, high)
            yield Spec((BATCH, LENGTH), "int64", 0, high)
    elif _TIME.match(name):
        yield Spec((BATCH,), "int64", 0, 100)
        yield Spec((BATCH,))
        yield Spec((BATCH, 1))
    elif _IDS.search(name) and sizes.vocabularies:
        yield from ids


def _by_layers(sizes: _Sizes, name: str, graph: bool) -> Iterator[Spec]:
    """For what the layers take, those first that take it first."""
    if graph:
        yield from (Spec((NODES, size[1])) for size in sizes.tensors if size[0] == "features")
        yield from (Spec((NODES,), "int64", 0, high) for high in sizes.vocabularies)
    layers = sizes.tensors
    if _IMAGE.search(name):
        layers = sorted(layers, key=lambda size: size[0] not in ("conv2", "conv3"))
    # One of each kind first: a hundred wide linear layers say less than the first one and the first convolution.
    first = list({size[0]: size for size in reversed(layers)}.values())[::-1]
    for size in (*first, *layers):
        yield from _for_layer(size, sizes)


def _for_layer(size: tuple[Any, ...], sizes: _Sizes) -> Iterator[Spec]:
    kind = size[0]
    if kind == "ids":
        yield from (
            Spec(shape, "int64", 0, high) for high in sizes.vocabularies for shape in ((BATCH, LENGTH), (BATCH,))
        )
    elif kind == "features":
        yield Spec((BATCH, size[1]))
        yield Spec((BATCH, LENGTH, size[1]))
    elif kind == "sequence":
        yield Spec((BATCH, LENGTH, size[1]))
        yield Spec((BATCH, size[1]))
    elif kind == "conv1":
        yield Spec((BATCH, size[1], 64))
        yield Spec((BATCH, size[1], 1024))
    elif kind == "conv2":
        yield from (Spec((BATCH, size[1], side, side)) for side in _SIDES)
    elif kind == "conv3":
        yield Spec((BATCH, size[1], 8, 32, 32))
        yield Spec((BATCH, size[1], 16, 64, 64))


def _fallbacks() -> Iterator[Spec]:
    yield Spec((BATCH, 64))
    yield Spec((BATCH, LENGTH, 64))
    yield Spec((BATCH, 3, 32, 32))
    yield Spec((BATCH, LENGTH), "int64", 0, 100)
    yield Spec((BATCH,))
    yield Spec((BATCH, 1024))
    yield Spec((BATCH, LENGTH, 3))


# transformers


def _of_config(model: nn.Module, name: str) -> Iterator[Spec]:
    """By the names that transformers' models share, with the sizes in their configs."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(model, "main_input_name"):
        return
    read = _reader(config)
    vocabulary, length = read("vocab_size", 100), min(32, read("max_position_embeddings", 32))
    batch = 2
    if name in ("input_ids", "decoder_input_ids"):
        yield Spec((batch, length), "int64", 0, vocabulary)
    elif name in ("pixel_values", "pixel_values_videos"):
        sides = _pair(read("image_size", None) or read("input_size", None) or 224)
        channels = read("num_channels", None) or read("in_channels", None) or 3
        yield Spec((batch, channels, *sides))
        yield Spec((batch, read("num_frames", 8), channels, *sides))
        yield Spec((batch, channels, 64, 64))
    elif name == "input_values":
        yield Spec((batch, 16_000))
        yield Spec((batch, read("max_length", 1024), read("num_mel_bins", 128)))
    elif name == "input_features":
        yield Spec((batch, read("num_mel_bins", 80), 2 * read("max_source_positions", 1500)))
        yield Spec((batch, 200, read("feature_projection_input_dim", None) or read("input_feat_per_channel", 80)))
    elif name == "labels":
        classes = read("num_labels", 2)
        yield from (
            (Spec((batch, length), "int64", 0, vocabulary), Spec((batch,), "int64", 0, classes))
            if re.search(r"LM|ForConditional|CTC|Speech|Pretraining", type(model).__name__)
            else (Spec((batch,), "int64", 0, classes), Spec((batch, length), "int64", 0, classes))
        )


def _reader(config: Any) -> Callable[[str, Any], Any]:
    """Reads a value of a config, or of the configs inside it."""
    inner = [one for key in getattr(config, "sub_configs", {}) if (one := getattr(config, key, None)) is not None]

    def read(key: str, default: Any) -> Any:
        values = (getattr(one, key, None) for one in (config, *inner))
        return next((value for value in values if value is not None), default)

    return read


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[-2]), int(size[-1]))


# Combinations, and what an error says about them


def combinations(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Spec]]:
    """Tensors for all of `names`, the likeliest first; those of equal rank for each of them early."""
    likely = [_likely(model, name, names) for name in names]
    ranks = list(islice(product(*(range(len(specs)) for specs in likely)), 20_000))
    for chosen in sorted(ranks, key=lambda rank: (sum(rank), max(rank, default=0))):
        yield {name: specs[place] for name, specs, place in zip(names, likely, chosen, strict=True)}


def repaired(given: dict[str, Spec], message: str, vocabularies: Iterable[int]) -> Iterator[dict[str, Spec]]:
    """Inputs that an error's text suggests instead: another size where it names two, another dtype.

    Args:
        given: what raised it.
        message: its text.
        vocabularies: how many rows the model's embeddings have.
    """
    if re.search(r"indices.*(Long|Int)|expected (scalar type )?(Long|Int)|Expected dtype int64", message):
        high = min(vocabularies, default=2)
        for name, spec in given.items():
            if spec.dtype == "float32":
                yield {**given, name: Spec(spec.shape, "int64", 0, high)}
    if "index out of range" in message:
        for name, spec in given.items():
            smaller = [high for high in vocabularies if spec.high is not None and high < spec.high]
            if smaller:
                yield {**given, name: replace(spec, high=max(smaller))}
    numbers = list(dict.fromkeys(int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.])", message)))[:12]
    wanted = [number for number in numbers if 1 <= number <= 16_384]
    for name, spec in given.items():
        for place in reversed(range(1, len(spec.shape))):
            if spec.shape[place] in numbers:
                for size in wanted:
                    if size != spec.shape[place]:
                        shape = (*spec.shape[:place], size, *spec.shape[place + 1 :])
                        yield {**given, name: replace(spec, shape=shape)}
