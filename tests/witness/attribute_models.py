"""Traces one training step of several models on the emulated device; prints what has no module or no line, as JSON.

For test_attribution.py, in a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import smoketest
from smoketest.findings import SitePolicy
from smoketest.witness.context import Context
from smoketest.witness.dispatch import DispatchWitness
from smoketest.witness.kernels import Kernels
from smoketest.witness.sites import ModuleStack, Origins, StackWalker

HERE = Path(__file__).parent
EMULATED = smoketest.emulate(warn=False)
IDS = (torch.arange(24).reshape(2, 12) % 60).to("neuron")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.down(torch.nn.functional.gelu(self.up(self.norm(x)))))


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x.square().mean()


def gpt2() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=64, n_positions=16)
    return transformers.GPT2LMHeadModel(config), language


def t5() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config), language


def llama() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config), language


def language(model: nn.Module) -> Tensor:
    loss: Tensor = model(input_ids=IDS, labels=IDS).loss
    return loss


def checkpointed(reentrant: bool) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    x = torch.linspace(-1, 1, 32).reshape(4, 8).to("neuron").requires_grad_(True)
    return Checkpointed(reentrant), lambda model: model(x)


MODELS = {
    "gpt2": gpt2,
    "t5": t5,
    "llama": llama,
    "reentrant": lambda: checkpointed(True),
    "not reentrant": lambda: checkpointed(False),
}


def attribute(model: nn.Module, loss_of: Callable[[nn.Module], Tensor], device: Any) -> dict[str, Any]:
    model.to("neuron").train()
    optimizer = torch.optim.AdamW(model.parameters())
    loss_of(model).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
    context, modules, kernels = Context("forward"), ModuleStack(model), Kernels(device)
    origins = Origins(StackWalker(SitePolicy(HERE)), modules)
    witness = DispatchWitness(origins, context, "neuron", kernels.take)
    with modules, kernels, witness:
        loss = loss_of(model)
        context.phase = "backward"
        loss.backward()  # type: ignore[no-untyped-call]
        context.phase = "optimizer"
        optimizer.step()
    result: dict[str, Any] = {"calls": {}, "no module": {}, "no line": {}, "optimizers": []}
    for key, calls in witness.calls.items():
        phase = str(key.phase)
        result["calls"][phase] = result["calls"].get(phase, 0) + calls.count
        for what, value in (("no module", key.module), ("no line", key.line)):
            if value is None:
                counts = result[what].setdefault(phase, Counter())
                counts[key.op] += calls.count
        if phase == "optimizer" and key.module not in result["optimizers"]:
            result["optimizers"].append(key.module)
    return result


if __name__ == "__main__":
    torch.manual_seed(0)
    with contextlib.redirect_stdout(sys.stderr):
        found = {name: attribute(*make(), EMULATED) for name, make in MODELS.items()}
    print(json.dumps(found))  # noqa: T201
