"""Errors of user code: what to change, their own lines, and nothing twice."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from smoketest.config.models import Check
from smoketest.errors import UserCodeError
from smoketest.workload.advice import hint_for
from smoketest.workload.build import build_workload
from smoketest.workload.usercode import blame_user, summary_of

CONFIGS = """\
import torch

class Base:
    attribute_map = {"hidden_size": "d_model"}
    tied_weights: bool = False

    def __init__(self, dropout=0.0, **kwargs):
        self.layer_order = kwargs.pop("layer_order", None)
        vars(self).update(kwargs)

class Config(Base):
    def __init__(self, d_model=8, num_layers=1, **kwargs):
        super().__init__(**kwargs)
        self.d_model = d_model

class Net(torch.nn.Linear):
    def __init__(self, config):
        super().__init__(config.d_model, getattr(config, "num_layer", 2))
"""


def raised(action: Any) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (PyTorch chooses the class)
        action()
    return caught.value


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda: nn.Linear(2, 2, dtype=torch.bfloat16)(torch.ones(1, 2)), "dtype: bfloat16"),
        (lambda: nn.Linear(2, 2)(torch.ones(1, 2, dtype=torch.bfloat16)), "dtype: bfloat16"),
        (lambda: nn.Conv2d(1, 1, 1, dtype=torch.bfloat16)(torch.ones(1, 1, 2, 2)), "dtype: bfloat16"),
        (lambda: nn.LSTM(2, 2, dtype=torch.bfloat16)(torch.ones(1, 1, 2)), "dtype: bfloat16"),
        (lambda: nn.Embedding(4, 2)(torch.tensor([4])), "set `high` of that tensor"),
    ],
)
def test_errors_that_many_meet_come_with_what_to_change(action: Any, words: str) -> None:
    assert words in (blame_user(raised(action), "the step").hint or "")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")
def test_cuda_is_answered_with_the_device_of_the_input() -> None:
    hint = hint_for(summary_of(raised(lambda: torch.ones(1).cuda())))
    assert hint is not None
    assert "device=x.device" in hint


def test_other_errors_get_no_hint() -> None:
    assert hint_for(summary_of(IndexError("list index out of range"))) is None
    assert hint_for(summary_of(raised(lambda: torch.ones(2) @ torch.ones(3)))) is None


def fails() -> None:
    raise ValueError("no")


def test_the_same_error_met_again_on_the_cpu_is_shown_once() -> None:
    try:
        fails()
    except ValueError:
        again = raised(fails)
    text = blame_user(again, "the step").traceback
    assert text.count("ValueError: no") == 1
    assert "During handling" not in text


def test_another_error_that_was_being_handled_stays() -> None:
    def handler() -> None:
        try:
            fails()
        except ValueError as error:
            raise KeyError("other") from error

    text = blame_user(raised(handler), "the step").traceback
    assert "ValueError: no" in text
    assert text.rstrip().endswith("KeyError: 'other'")


def test_files_of_libraries_and_of_the_user_are_named_as_in_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    library = tmp_path / "site-packages" / "modellib" / "net.py"
    library.parent.mkdir(parents=True)
    library.write_text("def forward(f):\n    return f()\n")
    mine = tmp_path / "mine.py"
    mine.write_text("def run(forward):\n    forward(lambda: 1 / 0)\n")
    spaces: list[dict[str, Any]] = [{}, {}]
    for file, space in zip((library, mine), spaces, strict=True):
        exec(compile(file.read_text(), str(file), "exec"), space)
    text = blame_user(raised(lambda: spaces[1]["run"](spaces[0]["forward"])), "the step").traceback
    assert re.findall(r'File "(.*)"', text)[-3:] == ["mine.py", "modellib/net.py", "mine.py"]
    assert "    forward(lambda: 1 / 0)\n" in text


def built(config: dict[str, Any], tmp_path: Path) -> Any:
    file = tmp_path / "configs_of_nets.py"
    file.write_text(CONFIGS)
    sys.modules.pop("configs_of_nets", None)
    model = {"target": f"{file}:Net", "config": {"class": f"{file}:Config", **config}}
    batch = {"tensors": {"input": {"shape": [2, 8]}}}
    return build_workload(Check.model_validate({"name": "c", "model": model, "batch": batch, "loss": "output"}), "cpu")


@pytest.mark.parametrize(
    ("key", "meant"), [("d_modle", "d_model"), ("droput", "dropout"), ("hiden_size", "hidden_size")]
)
def test_a_misspelt_option_that_the_config_would_ignore(key: str, meant: str, tmp_path: Path) -> None:
    with pytest.raises(UserCodeError) as caught:
        built({key: 8}, tmp_path)
    assert str(caught.value) == (
        f"model.config: Config knows no {key!r} and would ignore it\n  hint: did you mean {meant!r}?"
    )


@pytest.mark.parametrize(
    "config",
    [
        {"d_model": 8, "dropout": 0.1, "hidden_size": 8, "tied_weights": True},  # own, inherited, aliased, annotated
        {"layer_order": "x"},  # taken out of kwargs
        {"num_layer": 3},  # near num_layers, and the model's file reads it
        {"something_else": 1},  # near nothing
    ],
)
def test_options_a_config_or_its_model_knows_pass(config: dict[str, Any], tmp_path: Path) -> None:
    assert built(config, tmp_path).model.in_features == 8


def test_a_wrong_call_in_a_step_is_the_user_s_error() -> None:
    def make(batch: Any) -> Any:
        file = {"name": "c", "model": {"target": "torch.nn:Linear", "args": [2, 2]}, "loss": "output",
                "batch": {"tensors": {"input": {"shape": [1, 2]}}}}  # fmt: skip
        workload = build_workload(Check.model_validate(file), "cpu")
        return type(workload)(**{**vars(workload), "make_batch": lambda step: batch})

    with pytest.raises(UserCodeError) as caught:
        make((torch.ones(1, 2), torch.ones(1))).step(0)
    assert caught.value.message == "Linear.forward(input) cannot be called as forward(…, …)"


def test_an_exception_whose_text_cannot_be_had_is_told_by_its_type() -> None:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    assert summary_of(Wordless()) == "Wordless: (its text cannot be had: __str__ raised ValueError)"
    assert blame_user(Wordless(), "the step").message.startswith("the step raised Wordless: (its text")
