"""A small SE(3)-style graph network: atoms in space, messages along the nearest neighbours, forces that turn with them.

Written as such networks are found in the wild, with the ops that make trouble on a Trainium: angles by atan2 and acos,
torques by a cross product, neighbours by sort, sums by scatter_reduce, masks by index_fill_.
"""

import torch
from torch import nn

ATOMS, NEIGHBOURS, CHANNELS = 24, 6, 16


def nearest(positions: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Edges from every atom to its `count` nearest: sources and targets, int64 (atoms * count,)."""
    atoms = positions.shape[0]
    distances = (positions[:, None] - positions[None]).square().sum(-1)
    distances = distances + torch.eye(atoms, device=positions.device) * 1e6  # nobody is their own neighbour
    _, order = torch.sort(distances, dim=1)
    targets = order[:, :count].reshape(-1)
    sources = torch.repeat_interleave(torch.arange(atoms, device=positions.device), count)
    return sources, targets


class Angles(nn.Module):
    """Distance, polar angle and azimuth of each edge, as features."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.embed = nn.Linear(4, channels)

    def forward(self, edges: torch.Tensor) -> torch.Tensor:
        distance = edges.square().sum(-1).add(1e-6).sqrt()
        polar = torch.acos((edges[:, 2] / distance).clamp(-0.999, 0.999))
        azimuth = torch.atan2(edges[:, 1], edges[:, 0])
        return self.embed(torch.stack([distance, polar, azimuth.sin(), azimuth.cos()], dim=-1))


class Interaction(nn.Module):
    """One round of messages; moves the atoms by a force along the edge and a torque around it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.angles = Angles(channels)
        self.message = nn.Sequential(nn.Linear(3 * channels, channels), nn.SiLU(), nn.Linear(channels, channels))
        self.gates = nn.Linear(channels, 2)

    def forward(self, features, positions, sources, targets):
        edges = positions[targets] - positions[sources]
        messages = self.message(torch.cat([features[sources], features[targets], self.angles(edges)], dim=-1))
        force, torque = self.gates(messages).tanh().unsqueeze(-1).unbind(1)
        turned = torch.linalg.cross(edges, positions[sources])
        push = edges * force + turned * torque
        index = sources[:, None]
        moved = torch.zeros_like(positions).scatter_reduce(0, index.expand_as(push), push, "mean", include_self=False)
        strongest = torch.full_like(features, -1e4).scatter_reduce(0, index.expand_as(messages), messages, "amax")
        return features + strongest, positions + 0.1 * moved


class Network(nn.Module):
    """Atom types in, one energy out."""

    def __init__(self, types: int = 5, channels: int = CHANNELS, rounds: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(types, channels)
        self.interactions = nn.ModuleList(Interaction(channels) for _ in range(rounds))
        self.energy = nn.Sequential(nn.Linear(channels, channels), nn.SiLU(), nn.Linear(channels, 1))

    def forward(self, types, positions, ghosts):
        features = self.embed(types)
        sources, targets = nearest(positions, NEIGHBOURS)
        for interaction in self.interactions:
            features, positions = interaction(features, positions, sources, targets)
        weights = torch.ones(types.shape[0], device=features.device)
        weights.index_fill_(0, ghosts, 0.0)
        return (self.energy(features).squeeze(-1) * weights).sum() / weights.sum()


def make_model():
    return Network()


def make_batch(step: int):
    """One molecule: atom types int64 (24,), positions float32 (24, 3), ghost atoms int64 (2,); its energy."""
    generator = torch.Generator().manual_seed(step)
    types = torch.randint(0, 5, (ATOMS,), generator=generator)
    positions = 2 * torch.randn(ATOMS, 3, generator=generator)
    return (types, positions, torch.tensor([0, ATOMS - 1])), {}


def loss_fn(output, batch):
    (types, _, _), _ = batch
    return (output - types.float().mean()).square()


def make_optimizer(params):
    return torch.optim.AdamW(params, lr=1e-3)
