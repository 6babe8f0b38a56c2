"""Parity with plain CPU: a wrong kernel is found at the module it is in, and a healthy run raises nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import parity_runs
import pytest

RUNS = Path(parity_runs.__file__)

HEALTHY = [
    ("gpt2", "float32", "AdamW plain"),
    ("gpt2", "bfloat16", "SGD fused"),
    ("llama", "float32", "SGD foreach"),
    ("llama", "autocast", "AdamW foreach"),
    ("t5", "bfloat16", "AdamW fused"),
    ("t5", "autocast", "SGD plain"),
    ("vit", "float32", "AdamW fused"),
    ("vit", "bfloat16", "AdamW plain"),
    ("resnet", "autocast", "AdamW plain"),
    ("resnet", "bfloat16", "SGD plain"),
]
"""The long form is `make parity`."""

WRONG = [
    ("gpt2", "aten::addmm", "off_by_one_percent", "forward", "transformer.h.0.attn.c_attn"),
    ("gpt2", "aten::native_layer_norm", "off_by_one_percent", "forward", "transformer.h.0.ln_1"),
    ("gpt2", "aten::_log_softmax", "off_by_one_percent", "forward", "GPT2LMHeadModel"),
    ("gpt2", "aten::native_layer_norm_backward", "off_by_one_percent", "backward", "transformer.ln_f"),
    ("gpt2", "aten::embedding_dense_backward", "off_by_one_percent", "backward", "transformer.wpe"),
    ("gpt2", "aten::mm", "ignores_strides", "backward", "transformer.h.1.mlp.c_proj"),
    ("gpt2", "aten::addcdiv_", "off_by_one_percent", "optimizer", "transformer.wte"),
    (
        "gpt2",
        "aten::_scaled_dot_product_fused_attention_overrideable",
        "ignores_strides",
        "forward",
        "transformer.h.0.attn",
    ),
    ("llama", "aten::silu", "uninitialised", "forward", "model.layers.0.mlp.act_fn"),
    ("llama", "aten::cos", "off_by_one_percent", "forward", "model.rotary_emb"),
    ("vit", "aten::gelu_backward", "uninitialised", "backward", "layers.1.mlp.activation_fn"),
    ("resnet", "aten::relu", "uninitialised", "forward", "resnet.embedder.embedder.activation"),
]
"""Op, what is wrong about its kernel, and where it does harm first: in the phase's own order."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, dict[str, Any]]:
    asked: dict[Any, dict[str, Any]] = {key: {"check": parity_runs.check_for(*key)} for key in HEALTHY}
    for model, op, how, _phase, _module in WRONG:
        check = parity_runs.check_for(model, "float32", "AdamW plain")
        asked[model, op, how] = {"check": check, "fault": (op, how)}
    file = tmp_path_factory.mktemp("parity") / "asked.json"
    file.write_text(json.dumps(list(asked.values())))
    done = subprocess.run(
        [sys.executable, str(RUNS), str(file)],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(asked, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize(("model", "precision", "optimizer"), HEALTHY)
def test_a_healthy_run_raises_nothing(answers: Any, model: str, precision: str, optimizer: str) -> None:
    seen = answers[model, precision, optimizer]
    assert (seen["status"], seen["findings"], seen["notes"]) == ("ran", [], [])
    assert seen["tensors"] > 100
    assert seen["error"] < 0.02


@pytest.mark.parametrize(("model", "op", "how", "phase", "module"), WRONG)
def test_a_wrong_kernel_is_found_at_its_module(
    answers: Any, model: str, op: str, how: str, phase: str, module: str
) -> None:
    (finding,) = answers[model, op, how]["findings"]
    assert (finding["rule"], finding["phase"]) == ("NST106", phase)
    (where,) = finding["modules"]
    assert where["pattern"].endswith(module), finding["message"]


def test_the_finding_says_step_tensor_error_and_tolerance(answers: Any) -> None:
    (finding,) = answers["gpt2", "aten::addmm", "off_by_one_percent"]["findings"]
    assert finding["site"]["file"] == "transformers/models/gpt2/modeling_gpt2.py"
    assert "self.c_attn(hidden_states)" in finding["site"]["code"]
    start, first, losses = finding["message"].split("; ")
    assert start == (
        "step 5 of 5 (traced): the output of transformer.h.0.attn.c_attn differs from plain CPU's, by 1.0e-02 of its"
        " size, where 1.0e-04 is tolerated"
    )
    assert first.startswith("it is the first of ")
    assert losses == "the losses of all steps agree within the tolerance"


def test_a_value_that_is_not_finite_is_compared_in_the_step_that_made_it(answers: Any) -> None:
    (finding,) = answers["resnet", "aten::relu", "uninitialised"]["findings"]
    assert finding["message"].startswith("step 1 of 5: the output of resnet.embedder.embedder.activation differs")
    assert "the loss differs from step 1 of 5 on" in finding["message"]
