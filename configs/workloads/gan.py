"""A small GAN: a generator of transposed convolutions and a discriminator, with an optimizer each."""

import torch
from torch import nn


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.Linear(16, 128), nn.Unflatten(1, (8, 4, 4)),
            nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(8, 3, 4, stride=2, padding=1), nn.Tanh(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, 8, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(8, 8, 4, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(128, 1),
        )  # fmt: skip


def make_model():
    return Pair()


def make_batch(step: int):
    """Pictures float32 (4, 3, 16, 16), and numbers to make others from, (4, 16)."""
    generator = torch.Generator().manual_seed(step)
    return {"real": torch.rand(4, 3, 16, 16, generator=generator), "seeds": torch.randn(4, 16, generator=generator)}


def make_optimizer(model):
    return {
        "G": torch.optim.Adam(model.generator.parameters(), lr=2e-4, betas=(0.5, 0.999)),
        "D": torch.optim.Adam(model.discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999)),
    }


def train_step(model, batch, optimizers):
    made = model.generator(batch["seeds"])
    optimizers["D"].zero_grad()
    real, fake = model.discriminator(batch["real"]), model.discriminator(made.detach())
    told_apart = nn.functional.softplus(-real).mean() + nn.functional.softplus(fake).mean()
    told_apart.backward()
    optimizers["D"].step()
    optimizers["G"].zero_grad()
    fooled = nn.functional.softplus(-model.discriminator(made)).mean()
    fooled.backward()
    optimizers["G"].step()
    return told_apart + fooled
