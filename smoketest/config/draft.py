"""A check in the making: what ``smoketest init`` found out about a target, and its YAML.

A worker process fills it by trial; `yaml_text` writes it. Both sides of ``init`` share it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

__all__ = ["SCHEMA_FILE", "Draft", "TrialRequest", "check_name", "yaml_text"]

SCHEMA_FILE = "check.schema.json"
"""The file that editors complete the YAML with, beside it."""

_OPTIMIZER = {"name": "AdamW", "lr": 1e-4}


class Draft(BaseModel):
    """A check as far as it is known.

    Attributes:
        target: what makes the model, its file's path absolute; None where `workload` has it.
        workload: a Python file that defines ``make_model`` and the rest, absolute.
        config: class and values of what is built first; empty where the model takes none.
        config_defaults: the default of each value in `config` that was made smaller.
        kwargs: the constructor's.
        guessed: names in `kwargs` and `config` for which the constructor has no default.
        parameters: how many numbers the model has.
        call: such as ``Net.forward(x, mask=None)``; of a long signature only what is passed.
        tensors: specifications by name, as in the check.
        forward: names of what the model is called with; None for all.
        loss: as in the check; None where the model's output has it by itself.
        output: what the model gave, such as ``float32[4, 10]``.
        loss_guessed: whether the loss is one for this form of output, and not the model's own.
        loss_value: of the first step on plain CPU.
        problem: why no step could be made, one sentence; None where one was.
        tried: how many inputs were tried.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str | None = None
    workload: str | None = None
    config: dict[str, Any] = {}
    config_defaults: dict[str, Any] = {}
    kwargs: dict[str, Any] = {}
    guessed: tuple[str, ...] = ()
    parameters: int | None = None
    call: str | None = None
    tensors: dict[str, dict[str, Any]] = {}
    forward: tuple[str, ...] | None = None
    loss: str | dict[str, Any] | None = None
    output: str | None = None
    loss_guessed: bool = False
    loss_value: float | None = None
    problem: str | None = None
    tried: int = 0

    def check(self, name: str) -> dict[str, Any]:
        """The check as data, paths absolute."""
        model = {
            "target": self.target,
            **({"config": self.config} if self.config else {}),
            **({"kwargs": self.kwargs} if self.kwargs else {}),
        }
        batch = {
            **({"tensors": self.tensors} if self.tensors else {}),
            **({"forward": list(self.forward)} if self.forward is not None else {}),
        }
        return {
            "name": name,
            **({"model": model} if self.target is not None else {"workload": self.workload}),
            **({"batch": batch} if batch else {}),
            **({"loss": self.loss} if self.loss is not None else {}),
            **({"optimizer": _OPTIMIZER} if self.workload is None else {}),
            "training": {"steps": 3, "warmup": 1, "seed": 0},
        }


class TrialRequest(BaseModel):
    """What the worker is asked for.

    Attributes:
        target: what makes the model, or its config class; its file's path absolute.
        workload: a file that has everything, instead.
        answer: the file that gets the `Draft`, written anew with each step forward.
        seconds: how long it may look for inputs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str | None = None
    workload: Path | None = None
    answer: Path
    seconds: float


def check_name(target: str) -> str:
    """A name for the check of a target: ``GPT2Config`` and ``GPT2`` both are ``gpt2``."""
    last = Path(target).stem if target.endswith(".py") else target.rpartition(":")[2]
    name = re.sub(r"(?<=.)Config$", "", last)
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:100] or "check"


def yaml_text(draft: Draft, name: str, folder: Path) -> str:
    """The check as a person reads it: comments say what was found out, what was guessed, what to do next.

    Args:
        draft: what is known. Where it has a problem the text is a template: it is valid, and lines to look at are
            marked ``# ?``.
        name: of the check.
        folder: where the file will be; paths are relative to it.
    """
    return "\n".join(_lines(draft, name, folder)) + "\n"


def _lines(draft: Draft, name: str, folder: Path) -> Iterator[str]:
    yield f"# yaml-language-server: $schema={SCHEMA_FILE}"
    yield from _opening(draft)
    yield f"name: {_text(name)}"
    yield ""
    if draft.workload is not None:
        yield f"workload: {_text(_relative(draft.workload, folder))}"
    else:
        yield from _model(draft, folder)
    yield from _batch(draft)
    yield from _loss(draft)
    if draft.problem is not None and draft.workload is None:
        yield ""
        yield "loss: output.loss                          # ? or a target, called with (output, batch); or"
        yield "# loss: {name: cross_entropy, input: output.logits, target: batch.labels}"
    yield from (("", *_optimizer()) if draft.workload is None else ())
    yield ""
    yield "training: {steps: 3, warmup: 1, seed: 0}   # autocast: bfloat16 adds mixed precision"
    yield ""
    yield "# gate:                                    # once there are findings that you accept:"
    yield '#   allow: [{op: "aten::sort*", site: "path/file.py", reason: "why"}]'


def _opening(draft: Draft) -> Iterator[str]:
    yield "# Written by `smoketest init`. Keep the model's structure, and its sizes small."
    if draft.problem is None:
        value = f", loss {draft.loss_value:.4g}" if draft.loss_value is not None else ", the loss was not finite"
        yield f"# Tried on plain CPU: two training steps{value}."
        return
    yield "# A TEMPLATE: no training step could be made on plain CPU. Change what is marked `# ?`."
    yield from (f"# {line}" for line in _folded(draft.problem, 110))


def _model(draft: Draft, folder: Path) -> Iterator[str]:
    count = f"   # {draft.parameters:,} parameters" if draft.parameters is not None else ""
    count = count or ("   # ?" if draft.problem is not None else "")
    yield "model:"
    yield f"  target: {_text(_relative(str(draft.target), folder))}{count}"
    if draft.config:
        yield "  config:                                  # built first, passed as the first argument"
        for key, value in draft.config.items():
            shown = _relative(value, folder) if key == "class" else value
            yield f"    {_flow(key)}: {_text(shown)}{_about(key, draft)}"
    if draft.kwargs:
        yield "  kwargs:                                  # the constructor's; those with a default are left out"
        for key, value in draft.kwargs.items():
            yield f"    {_flow(key)}: {_flow(value)}{_about(key, draft)}"


def _about(key: str, draft: Draft) -> str:
    if key in draft.config_defaults:
        default = draft.config_defaults[key]
        shown = "made smaller" if isinstance(default, Mapping) else f"made smaller: the default is {_flow(default)}"
        return f"   # {shown}"
    return "   # ? guessed: there is no default" if key in draft.guessed else ""


def _batch(draft: Draft) -> Iterator[str]:
    mark = "" if draft.problem is None else "   # ?"
    if draft.problem is not None and not draft.tensors and draft.workload is None:
        draft = draft.model_copy(update={"tensors": {"x": {"shape": [4, 16], "dtype": "float32"}}})
    if draft.call is not None:
        yield ""
        yield from (f"# {line}" for line in _folded(f"The model is called as {draft.call}.", 110))
    elif draft.tensors:
        yield ""
    if not draft.tensors and draft.forward is None:
        return
    yield "batch:"
    if draft.tensors:
        yield "  tensors:                                 # random, another batch at each step; `like`: the same values"
        for key, spec in draft.tensors.items():
            yield f"    {_flow(key)}: {_flow(spec)}{mark}"
    if draft.forward is not None:
        yield f"  forward: {_flow(list(draft.forward))}   # what the model is called with; the rest is the loss's"


def _loss(draft: Draft) -> Iterator[str]:
    if draft.loss is None:
        return
    yield ""
    if draft.output is not None:
        yield from (f"# {line}" for line in _folded(f"The model gives {draft.output}.", 110))
    if draft.loss_guessed:
        yield "# This loss goes with such an output. Put your own here: a target such as losses.py:my_loss, called with"
        yield "# (output, batch), or another function of torch.nn.functional."
    yield f"loss: {_text(draft.loss)}"


def _optimizer() -> Iterator[str]:
    yield f"optimizer: {_flow(_OPTIMIZER)}"


def _relative(target: str, folder: Path) -> str:
    """A target, or a file, with its path relative to `folder`."""
    head, colon, name = target.rpartition(":")
    path = head if colon else name
    if not Path(path).is_absolute():
        return target
    shown = Path(os.path.relpath(path, folder)).as_posix()
    return f"{shown}:{name}" if colon else shown


def _flow(value: Any) -> str:
    """A value on one line of YAML."""
    if isinstance(value, float) and 0 < abs(value) < 1e-3:
        return re.sub(r"e-0?", "e-", f"{value:.1e}")
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_flow(key)}: {_flow(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    text = yaml.safe_dump([value], default_flow_style=True, width=10**6, allow_unicode=True).strip()
    return text[1:-1]


def _text(value: Any) -> str:
    """A value after its key: a text that stands alone needs fewer quotes than one between brackets."""
    if not isinstance(value, str):
        return _flow(value)
    return yaml.safe_dump({"x": value}, width=10**6, allow_unicode=True).removeprefix("x: ").strip()


def _folded(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)
