"""Models of transformers are given no finding where every op of theirs lowers, and every node is accounted for.

GPT-2 and Llama are known to train on the device; BERT, ViT and ResNet use the same ops. T5, Whisper and Mamba are not
known to, and hold nothing that is outside the profile, outside the decompositions and unknown to torch-mlir either.
"""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from smoketest.probe import capture
from smoketest.probe.from_fx import graph_spec

from .conftest import Probe

transformers = pytest.importorskip("transformers")
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
IDS = torch.arange(32).reshape(2, 16)
PIXELS = {"pixel_values": torch.ones(2, 3, 32, 32), "labels": torch.tensor([1, 2])}
TOKENS = {"input_ids": IDS, "labels": IDS}


def gpt2() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=32, vocab_size=100, n_positions=32, bos_token_id=0, eos_token_id=1
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # transformers would choose it and log so, which breaks the graph
    return model, TOKENS


def bert() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    return transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=100, **SMALL)), TOKENS


def llama() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.LlamaConfig(vocab_size=100, num_key_value_heads=1, **SMALL)
    return transformers.LlamaForCausalLM(config), TOKENS


def vit() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=4, **SMALL)
    return transformers.ViTForImageClassification(config), PIXELS


def resnet() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=4
    )
    return transformers.ResNetForImageClassification(config), PIXELS


def t5() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.T5Config(
        vocab_size=100, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_decoder_layers=1, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config), TOKENS


def whisper() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.WhisperConfig(
        vocab_size=100, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8, max_source_positions=16,
        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config), {
        "input_features": torch.ones(2, 8, 32),
        "labels": IDS,
    }


def mamba() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.MambaConfig(
        vocab_size=100, hidden_size=32, state_size=4, num_hidden_layers=1, conv_kernel=4, use_cache=False
    )
    return transformers.MambaForCausalLM(config), TOKENS


OTHERS = (gpt2, bert, vit, t5, whisper)
"""What these hold is in the three below too, and GPT-2 is in tests/test_shipped_checks.py."""
long = pytest.mark.skipif(os.environ.get("SMOKETEST_LONG") != "1", reason="long: `make compiled` runs it")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes of each captured graph call something, counted in what AOTAutograd gives."""
    counts: list[int] = []

    def count(graph: torch.fx.Graph) -> Any:
        calls = [node for node in graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
        counts.append(len(calls))
        return graph_spec(graph)

    monkeypatch.setattr(capture, "graph_spec", count)
    return counts


@pytest.mark.parametrize("make", [llama, resnet, mamba, *(pytest.param(m, marks=long) for m in OTHERS)])
def test_all_nodes_of_a_model_lower_and_are_counted(
    make: Callable[[], tuple[torch.nn.Module, dict[str, torch.Tensor]]],
    probed: Probe,
    counted: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    # pytest's handler would make torch format its structured trace, which costs more than the probe.
    caplog.set_level(logging.WARNING, "torch.__trace")
    model, batch = make()
    model.train()

    def step(call: Callable[..., Any], index: int) -> None:
        call(**batch).loss.backward()

    result = probed(model, run_step=step)
    assert [(seen.rule, seen.op, seen.message) for seen in result.observations] == []
    assert [(graph.id, graph.status, graph.stage) for graph in result.graphs] == [
        ("0.forward", "lowered", "stablehlo"),
        ("0.backward", "lowered", "stablehlo"),
    ]
    assert sum(counted) > 120
    assert [graph.nodes for graph in result.graphs] == counted
    assert [(graph.lowered, graph.failed, graph.unknown, graph.not_reached) for graph in result.graphs] == [
        (count, 0, 0, 0) for count in counted
    ]
