"""Bytes kept for backward by five models on the emulated device, counted in three ways; prints one line of JSON each.

The second way sums what plain hooks are given, the third asks no hooks: it walks the graph from the loss and reads what
each node has saved.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from smoketest.config.models import Check
from smoketest.devices.emulated.adapter import EmulatedAdapter
from smoketest.witness.saved import SavedTensors
from smoketest.workload import Workload, build

SMALL = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 64}
TEXT = {
    "input_ids": {"shape": [2, 16], "dtype": "int64", "low": 0, "high": 64},
    "labels": {"like": "input_ids"},
}
IMAGES = {"pixel_values": {"shape": [2, 3, 32, 32]}, "labels": {"shape": [2], "dtype": "int64", "low": 0, "high": 2}}
CLASSES = {"shape": [2], "dtype": "int64", "low": 0, "high": 2}

MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "GPT2": ("GPT2LMHeadModel", {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 64, "n_positions": 16}, TEXT),
    "Bert": ("BertForSequenceClassification", SMALL | {"vocab_size": 64}, TEXT | {"labels": CLASSES}),
    "T5": ("T5ForConditionalGeneration",
           {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 64,
            "decoder_start_token_id": 0, "pad_token_id": 0}, TEXT),
    "ViT": ("ViTForImageClassification", SMALL | {"image_size": 32, "patch_size": 8}, IMAGES),
    "ResNet": ("ResNetForImageClassification",
               {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}, IMAGES),
}  # fmt: skip


def check(name: str) -> Check:
    model, config, tensors = MODELS[name]
    return Check.model_validate(
        {
            "name": name,
            "model": {"target": f"transformers:{model}", "config": {"class": f"transformers:{name}Config"} | config},
            "batch": {"tensors": tensors},
            "loss": "output.loss",
        }
    )


def bytes_of(tensors: Iterable[Tensor], work: Workload) -> int:
    """Bytes of the storages of `tensors`, each once, those of parameters and buffers left out."""
    own = {t.untyped_storage()._cdata for t in (*work.model.parameters(), *work.model.buffers())}
    storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in tensors}
    return sum(storage.nbytes() for key, storage in storages.items() if key not in own)


def by_the_witness(work: Workload) -> int:
    with SavedTensors(work.model) as saved:
        work.step(0)
    return saved.peak


def by_plain_hooks(work: Workload) -> int:
    given: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: given.append(t.detach()) or t.detach(), lambda t: t):
        work.step(0)
    return bytes_of(given, work)


def by_the_graph(work: Workload) -> int:
    loss = work._forward(work.model, work.batch(0))
    found: list[Tensor] = []
    waiting, met = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in met:
            continue
        met.add(node)
        waiting += [following for following, _ in node.next_functions]
        values = [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
        for value in [*values, *getattr(node, "saved_tensors", ())]:
            found += [value] if isinstance(value, Tensor) else []
            found += [t for t in value if isinstance(t, Tensor)] if isinstance(value, (list, tuple)) else []
    return bytes_of(found, work)


if __name__ == "__main__":
    device = EmulatedAdapter.open(None, warn=False, continue_past_errors=True, strict_limits=False)
    for name in MODELS:
        work = build(check(name), device)
        work.model.eval()  # without dropout, the three runs keep the same
        counts = [by_the_witness(work), by_plain_hooks(work), by_the_graph(work)]
        sys.stdout.write(json.dumps([name, *counts]) + "\n")
