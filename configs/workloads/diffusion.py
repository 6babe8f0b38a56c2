"""A small diffusion UNet: time embedding, residual blocks with group norm, attention in the middle, skips."""

import math

import torch
from torch import nn

SIZE, CHANNELS, STEPS = 16, 16, 100


class Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(4, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))
        self.time = nn.Linear(4 * CHANNELS, after)
        self.second = nn.Sequential(nn.GroupNorm(4, after), nn.SiLU(), nn.Conv2d(after, after, 3, padding=1))
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x, t):
        return self.skip(x) + self.second(self.first(x) + self.time(t)[:, :, None, None])


class Attention(nn.Module):
    def __init__(self, channels: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = (
            nn.GroupNorm(4, channels),
            nn.Linear(channels, 3 * channels),
            nn.Linear(channels, channels),
        )

    def forward(self, x):
        batch, channels, height, width = x.shape
        flat = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(flat).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        seen = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.out(seen).transpose(1, 2).reshape(batch, channels, height, width)


class UNet(nn.Module):
    """Predicts the noise in noisy pictures float32 (n, 3, 16, 16) at times int64 (n,)."""

    def __init__(self) -> None:
        super().__init__()
        c = CHANNELS
        self.embed = nn.Sequential(nn.Linear(c, 4 * c), nn.SiLU(), nn.Linear(4 * c, 4 * c))
        self.enter, self.leave = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 3, 3, padding=1)
        self.down, self.middle, self.up = Block(c, c), Block(c, 2 * c), Block(3 * c, c)
        self.smaller, self.attention = nn.Conv2d(c, c, 3, stride=2, padding=1), Attention(2 * c)
        self.larger = nn.Upsample(scale_factor=2, mode="nearest")

    def forward(self, noisy, times):
        frequencies = torch.exp(torch.arange(CHANNELS // 2, device=noisy.device) * (-math.log(1e4) / (CHANNELS // 2)))
        angles = times[:, None].float() * frequencies
        t = self.embed(torch.cat([angles.sin(), angles.cos()], dim=-1))
        x = self.enter(noisy)
        kept = self.down(x, t)
        x = self.attention(self.middle(self.smaller(kept), t))
        return self.leave(self.up(torch.cat([self.larger(x), kept], dim=1), t))


def make_model():
    return UNet()


def make_batch(step: int):
    generator = torch.Generator().manual_seed(step)
    pictures, noise = torch.randn(2, 4, 3, SIZE, SIZE, generator=generator)
    times = torch.randint(0, STEPS, (4,), generator=generator)
    share = torch.cos(0.5 * math.pi * times / STEPS)[:, None, None, None]
    return {"noisy": share * pictures + (1 - share**2).sqrt() * noise, "times": times, "noise": noise}


def loss_fn(output, batch):
    return (output - batch["noise"]).square().mean()
