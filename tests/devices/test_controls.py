"""Models known to train on Trainium: they train here with the CPU's losses, and no prediction about them denies."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from smoketest.devices.emulated import EmulatedDevice
from smoketest.operators.evidence import cannot_lower, grounds_for

transformers = pytest.importorskip("transformers")

TEXT = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=32)
    return transformers.GPT2LMHeadModel(config)  # type: ignore[no-any-return]


def bert() -> nn.Module:
    return transformers.BertForMaskedLM(transformers.BertConfig(**TEXT))  # type: ignore[no-any-return]


def llama() -> nn.Module:
    return transformers.LlamaForCausalLM(  # type: ignore[no-any-return]
        transformers.LlamaConfig(**TEXT, num_key_value_heads=1)
    )


def vit() -> nn.Module:
    config = transformers.ViTConfig(**{k: v for k, v in TEXT.items() if k != "vocab_size"}, image_size=16, patch_size=4)
    return transformers.ViTForImageClassification(config)  # type: ignore[no-any-return]


def resnet() -> nn.Module:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return transformers.ResNetForImageClassification(config)  # type: ignore[no-any-return]


class UNet(nn.Module):
    """Down, up, a skip connection; group norm and attention in the middle, as diffusion models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Linear(1, 8)
        self.enter = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.leave = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, pixel_values: Tensor, noise: Tensor, time: Tensor) -> SimpleNamespace:
        x = self.enter(pixel_values + noise) + self.time(time)[:, :, None, None]
        h = nn.functional.silu(self.norm(self.down(x)))
        flat = h.flatten(2).transpose(1, 2)
        h = h + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).unflatten(2, h.shape[2:])
        out = self.leave(torch.cat([self.up(h), x], 1))
        return SimpleNamespace(loss=nn.functional.mse_loss(out, noise))


class Regression(nn.Module):
    """A multilayer perceptron with a mean squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))

    def forward(self, x: Tensor, y: Tensor) -> SimpleNamespace:
        return SimpleNamespace(loss=nn.functional.mse_loss(self.layers(x), y))


def tokens() -> dict[str, Tensor]:
    ids = torch.randint(3, 100, (2, 16))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def images(size: int) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, size, size), "labels": torch.randint(0, 2, (2,))}


def noisy() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 8, 8), "noise": torch.randn(2, 3, 8, 8), "time": torch.rand(2, 1)}


CONTROLS: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Tensor]]]] = {
    "gpt2": (gpt2, tokens),
    "bert": (bert, tokens),
    "llama": (llama, tokens),
    "vit": (vit, lambda: images(16)),
    "resnet": (resnet, lambda: images(32)),
    "unet": (UNet, noisy),
    "mse": (Regression, lambda: {"x": torch.randn(8, 4), "y": torch.randn(8, 1)}),
}


def train(
    where: str, make: Callable[[], nn.Module], batch: Callable[[], dict[str, Tensor]], **step: Any
) -> list[float]:
    torch.manual_seed(0)
    model = make().to(where).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        inputs = {name: tensor.to(where) for name, tensor in batch().items()}
        with torch.autocast(where, dtype=torch.bfloat16, enabled=step.get("autocast", False)):
            loss = model(**inputs).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_trains_with_the_losses_of_the_cpu(name: str, device: EmulatedDevice) -> None:
    make, batch = CONTROLS[name]
    assert train("neuron", make, batch) == pytest.approx(train("cpu", make, batch), rel=1e-4)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", CONTROLS)
def test_no_fallback_of_a_control_has_grounds_to_deny(name: str, autocast: bool, device: EmulatedDevice) -> None:
    make, batch = CONTROLS[name]
    train("neuron", make, batch, autocast=autocast)
    assert device.get_executed_ops() != []
    grounds = {op: grounds_for(op, device.profile) for op in device.get_fallback_ops()}
    assert cannot_lower() != {}
    assert set(grounds.values()) <= {"no_kernel_known"}, grounds
    if name in ("gpt2", "bert", "llama"):
        assert grounds == {}
    if name in ("unet", "mse"):
        assert {"aten::mse_loss.out", "aten::mse_loss_backward"} <= set(grounds)
    if name == "resnet":
        assert {"aten::native_batch_norm", "aten::native_batch_norm_backward"} <= set(grounds)
