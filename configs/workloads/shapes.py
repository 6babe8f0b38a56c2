"""Pictures drawn on the spot: a disc, a square or a ring on a noisy ground, 64 x 64, three channels."""

import torch

SIZE, PICTURES = 64, 8


def pictures(step: int):
    """Eight pictures, float32 (8, 3, 64, 64), and what is on them, int64 (8,): 0 disc, 1 square, 2 ring."""
    generator = torch.Generator().manual_seed(step)
    kinds = torch.randint(0, 3, (PICTURES,), generator=generator)
    centres = torch.rand(PICTURES, 2, generator=generator) * 0.4 - 0.2
    axis = torch.linspace(-1, 1, SIZE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    dx, dy = x - centres[:, 0, None, None], y - centres[:, 1, None, None]
    radius = (dx.square() + dy.square()).sqrt()
    drawn = torch.stack([radius < 0.5, (dx.abs() < 0.45) & (dy.abs() < 0.45), (radius < 0.6) & (radius > 0.4)])
    picture = drawn[kinds, torch.arange(PICTURES)].float()[:, None].expand(-1, 3, -1, -1)
    return (), {
        "pixel_values": picture + 0.1 * torch.randn(picture.shape, generator=generator),
        "labels": kinds,
    }
