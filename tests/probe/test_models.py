"""Models known to train on the device are given no NST201 or NST202: crying wolf on GPT-2 is worthless."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from .conftest import Probe

transformers = pytest.importorskip("transformers")
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
IDS = torch.arange(32).reshape(2, 16)
PIXELS = {"pixel_values": torch.ones(2, 3, 32, 32), "labels": torch.tensor([1, 2])}
TOKENS = {"input_ids": IDS, "labels": IDS}


def gpt2() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=32, bos_token_id=0, eos_token_id=1
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


@pytest.mark.parametrize("make", [gpt2, bert, llama, vit, resnet])
def test_a_model_known_to_train_lowers_whole(
    make: Callable[[], tuple[torch.nn.Module, dict[str, torch.Tensor]]], probed: Probe, caplog: pytest.LogCaptureFixture
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
    assert sum(graph.nodes for graph in result.graphs) > 250
    assert all(result.nodes[graph.id].total == graph.nodes for graph in result.graphs)
    assert all(result.nodes[graph.id].lowered == graph.nodes for graph in result.graphs)
