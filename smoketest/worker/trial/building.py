"""How a model can be built: from a class or function, or small from a transformers config class."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from smoketest.errors import UserCodeError

__all__ = ["MOST_PARAMETERS", "Recipe", "recipes"]

MOST_PARAMETERS = 300_000_000
"""A model with more is no first check for a laptop: 16 bytes each with gradients and AdamW's state."""

_HEADS = (
    "SEQ_TO_SEQ_CAUSAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "MASKED_LM",
    "CAUSAL_LM",
    "IMAGE_CLASSIFICATION",
    "CTC",
    "AUDIO_CLASSIFICATION",
    "SEQUENCE_CLASSIFICATION",
    "TOKEN_CLASSIFICATION",
)
"""Heads with a loss of their own, in the order in which they are tried (``MODEL_FOR_..._MAPPING`` of transformers)."""

_SMALL = {
    "num_hidden_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "n_layers": 2,
    "hidden_size": 128,
    "num_attention_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "intermediate_size": 256,
    "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256,
    "d_ff": 256,
    "d_kv": 32,
    "hidden_dim": 256,
    "num_local_experts": 4,
    "num_experts": 4,
}
"""Sizes of transformers configs by their common names; `attribute_map` has each config's own."""

_LAYERS = re.compile(r"(^|_)(n_?|num_?)?(\w+_)?(layers?|blocks?|depth)$")

_BY_NAME: tuple[tuple[str, Any], ...] = (
    (r"vocab|num_embeddings|n_?tokens?$|num_(users|items|nodes|entities)|n_(users|items)", 1000),
    (r"layer|depth|blocks?$|stages?$", 2),
    (r"heads?$", 4),
    (r"class|labels$|n_out|num_out|^out$|outputs?$|output_(dim|size)|out_(dim|features|size)|actions?$", 10),
    (r"(in|img|image|input)_?(channels?|chans?)|^channels$|^in_ch$", 3),
    (r"kernel", 3),
    (r"patch", 4),
    (r"(image|img|input_res|resolution)", 32),
    (r"seq|context|block_size|max_(len|pos)|length|window|horizon", 64),
    (r"groups?$", 4),
    (r"stride|dilation|padding", 1),
    (r"dropout|drop|^p$|rate$", 0.1),
    (r"eps", 1e-5),
    (r"alpha|beta|gamma|scale|temp|tau|slope|momentum", 0.5),
    (r"bias|use_|is_|has_|with_|enable|causal|bidirectional", True),
    (r"dim|hidden|width|model|feat|emb|size|units|channels|ch$|in_features|latent", 64),
)
"""What an argument without a default is given, by its name; sizes that go together are multiples of one another."""

_BY_TYPE: dict[Any, Any] = {int: 16, float: 0.1, bool: False}


@dataclass(frozen=True)
class Recipe:
    """One way to build a model.

    Attributes:
        target: what is called, as a check names it.
        config: class and values of what is built first, as in a check.
        config_defaults: defaults of what was made smaller.
        kwargs: keyword arguments.
        guessed: names of those without a default.
    """

    target: str
    config: dict[str, Any] = field(default_factory=dict)
    config_defaults: dict[str, Any] = field(default_factory=dict)
    kwargs: dict[str, Any] = field(default_factory=dict)
    guessed: tuple[str, ...] = ()


def recipes(target: str, found: Callable[..., Any]) -> Iterator[Recipe]:
    """Ways to build a model from a target, the best first.

    Args:
        target: as a check names it.
        found: what it names.

    Raises:
        UserCodeError: it is a module already, or a constructor's argument is nothing that can be guessed.
    """
    if isinstance(found, nn.Module):
        raise UserCodeError(
            f"{_name(target)} is a module, made when its file is imported; a check names what makes one",
            hint="put it into a function, def make_model(): return ..., and name that",
        )
    transformers = sys.modules.get("transformers")
    if transformers is not None and inspect.isclass(found):
        base = getattr(transformers, "PreTrainedConfig", None) or transformers.PretrainedConfig
        if issubclass(found, base):
            for model in _models_for(found):
                yield from _of_config(f"transformers:{model}", target, found)
            return
        config_class: type | None = getattr(found, "config_class", None)
        if issubclass(found, transformers.PreTrainedModel) and config_class is not None:
            where = config_class.__name__
            config = f"transformers:{where}" if hasattr(transformers, where) else _target_of(config_class, target)
            yield from _of_config(target, config, config_class)
            return
    yield from _of_signature(target, found)


def _name(target: str) -> str:
    return target.rpartition(":")[2]


def _target_of(made: type, beside: str) -> str:
    """A class as a target: in the file of another target where it is defined in the same module, else by its module."""
    head = beside.rpartition(":")[0]
    module = sys.modules.get(made.__module__)
    same_file = head.endswith(".py") and getattr(module, "__file__", None) == head
    return f"{head if same_file else made.__module__}:{made.__qualname__}"


# transformers


def _models_for(config: type) -> list[str]:
    """Names of the model classes for a config class, those with a loss first."""
    from transformers.models.auto import modeling_auto

    found: list[str] = []
    for head in (*_HEADS, ""):
        mapping = getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING" if head else "MODEL_MAPPING", None)
        if mapping is None or config not in mapping:
            continue
        classes = mapping[config]
        found += [made.__name__ for made in (classes if isinstance(classes, tuple) else (classes,))]
    if not found:
        raise UserCodeError(
            f"transformers has no model for {config.__name__} among its auto classes",
            hint="name the model class instead",
        )
    return list(dict.fromkeys(found))


def _of_config(target: str, config_target: str, config: type) -> Iterator[Recipe]:
    """With everything small, with fewer layers only, and as it is."""
    default = config()
    small, was = _small(default, _SMALL)
    layers, layers_was = _small(default, {key: value for key, value in _SMALL.items() if "layers" in key})
    # Shifting labels to the right needs it, and some configs have none of their own.
    first = {"decoder_start_token_id": 0} if getattr(default, "is_encoder_decoder", False) else {}
    first = first if getattr(default, "decoder_start_token_id", None) is None else {}
    for options, defaults in ((small, was), (layers, layers_was), ({}, {})):
        values = {"class": config_target, **options, **first}
        yield Recipe(target, config=values, config_defaults=defaults, guessed=tuple(first))


def _small(default: Any, sizes: dict[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What of a config is larger than `sizes` say, in its own names: (new values, defaults). Nested configs too."""
    options: dict[str, Any] = {}
    was: dict[str, Any] = {}
    names = getattr(default, "attribute_map", {})
    for key, size in sizes.items():
        value = getattr(default, key, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > size:
            options[names.get(key, key)], was[names.get(key, key)] = size, value
    heads, groups = getattr(default, "num_attention_heads", None), getattr(default, "num_key_value_heads", None)
    if (
        isinstance(heads, int)
        and isinstance(groups, int)
        and names.get("num_attention_heads", "num_attention_heads") in options
    ):
        options["num_key_value_heads"], was["num_key_value_heads"] = (2 if groups < heads else 4), groups
    for key in getattr(default, "sub_configs", {}):
        inner = getattr(default, key, None)
        if inner is not None and (nested := _small(inner, sizes)[0]):
            options[key], was[key] = nested, {}
    return options, was


# Any other class or function


def _of_signature(target: str, found: Callable[..., Any]) -> Iterator[Recipe]:
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        yield Recipe(target)
        return
    hints = _hints(found)
    needed = [
        p
        for p in signature.parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    config: dict[str, Any] = {}
    if needed and (made := _config_class(needed[0], hints, found)) is not None:
        config = {"class": _target_of(made, target), **_fields(made)}
        needed = needed[1:]
    kwargs = {p.name: _guess(p.name, hints.get(p.name), target) for p in needed}
    guessed = (*kwargs, *(key for key in config if key != "class"))
    yield Recipe(target, config=config, kwargs=kwargs, guessed=guessed)
    fewer = {p.name: 2 for p in signature.parameters.values()
             if type(p.default) is int and p.default > 2 and _LAYERS.search(p.name)}  # fmt: skip
    if fewer:
        yield Recipe(target, config=config, kwargs={**kwargs, **fewer}, guessed=guessed)


def _hints(found: Callable[..., Any]) -> dict[str, Any]:
    function = found.__init__ if inspect.isclass(found) else found
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that is only there for type checkers
        return {}


def _config_class(parameter: inspect.Parameter, hints: dict[str, Any], found: Callable[..., Any]) -> type | None:
    """The class of a first argument that holds all settings: by its annotation, else by name in the same module."""
    hint = hints.get(parameter.name)
    if (
        inspect.isclass(hint)
        and hint.__module__ not in ("builtins", "typing", "torch")
        and not issubclass(hint, nn.Module)
    ):
        return hint
    if hint is not None or not re.fullmatch(r"(\w*_)?(config|cfg|args|params|hparams|options|opt)", parameter.name):
        return None
    module = sys.modules.get(found.__module__)
    classes = [one for one in vars(module).values() if inspect.isclass(one)] if module is not None else []
    named = [
        one
        for one in classes
        if one.__module__ == found.__module__ and re.search(r"(Config|Args|Params)$", one.__name__)
    ]
    own = f"{getattr(found, '__name__', '')}"
    return min(named, key=lambda one: (not one.__name__.startswith(own), one.__name__), default=None)


def _fields(made: type) -> dict[str, Any]:
    """Values for what the class has no default for."""
    if dataclasses.is_dataclass(made):
        hints = _hints(made)
        return {
            f.name: _guess(f.name, hints.get(f.name), made.__name__)
            for f in dataclasses.fields(made)
            if f.init and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        }
    try:
        parameters = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):
        return {}
    hints = _hints(made)
    return {
        p.name: _guess(p.name, hints.get(p.name), made.__name__)
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }


def _guess(name: str, hint: Any, target: str) -> Any:
    """A value for an argument without a default.

    Raises:
        UserCodeError: its type is nothing that YAML can write.
    """
    wanted = [one for one in (typing.get_args(hint) or (hint,)) if one is not type(None)]
    if typing.get_origin(hint) in (list, tuple) or hint in (list, tuple):
        return [16, 32]
    if hint is not None and not any(one in (int, float, bool, Any, inspect.Parameter.empty) for one in wanted):
        raise UserCodeError(
            f"{_name(target)} needs {name!r}, {_type_name(hint)}, for which there is no default and nothing to guess",
            hint="write a function without arguments that returns the model, and name that",
        )
    for pattern, value in _BY_NAME:
        if re.search(pattern, name.lower()) and (hint is None or _fits(value, wanted)):
            return value
    return next((_BY_TYPE[one] for one in wanted if one in _BY_TYPE), 16)


def _fits(value: Any, wanted: list[Any]) -> bool:
    return Any in wanted or type(value) in wanted or (type(value) is int and float in wanted)


def _type_name(hint: Any) -> str:
    return f"a {hint.__name__}" if inspect.isclass(hint) else str(hint)
