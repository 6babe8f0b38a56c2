"""A physics-informed network for the heat equation u_t = 0.1 u_xx: derivatives of the network are part of its loss."""

import torch
from torch import nn


def make_model():
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))


def make_batch(step: int):
    """Points inside, float32 (32, 2) of place and time, and points at time 0, (16, 2)."""
    generator = torch.Generator().manual_seed(step)
    start = torch.rand(16, 2, generator=generator)
    start[:, 1] = 0.0
    return {"inside": torch.rand(32, 2, generator=generator), "start": start}


def make_optimizer(params):
    return torch.optim.Adam(params, lr=1e-3)


def train_step(model, batch, optimizer):
    inside = batch["inside"].requires_grad_(True)
    u = model(inside)
    first = torch.autograd.grad(u.sum(), inside, create_graph=True)[0]
    second = torch.autograd.grad(first[:, 0].sum(), inside, create_graph=True)[0]
    equation = (first[:, 1] - 0.1 * second[:, 0]).square().mean()
    start = (model(batch["start"]).squeeze(-1) - torch.sin(torch.pi * batch["start"][:, 0])).square().mean()
    loss = equation + start
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
