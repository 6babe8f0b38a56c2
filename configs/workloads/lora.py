"""LoRA: a frozen decoder whose attention matrices get a trainable product of two thin ones."""

import math

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM


class Adapted(nn.Module):
    def __init__(self, frozen: nn.Linear, rank: int = 4, scale: float = 2.0) -> None:
        super().__init__()
        self.frozen, self.scale = frozen, scale
        self.down = nn.Parameter(torch.empty(rank, frozen.in_features))
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, x):
        return self.frozen(x) + self.scale * nn.functional.linear(nn.functional.linear(x, self.down), self.up)


def make_model():
    model = LlamaForCausalLM(
        LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, vocab_size=256, max_position_embeddings=128)
    )  # fmt: skip
    model.requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, Adapted(getattr(layer.self_attn, name)))
    return model


def make_optimizer(params):
    return torch.optim.AdamW([p for p in params if p.requires_grad], lr=1e-3)
