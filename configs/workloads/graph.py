"""A graph network: messages along edges, summed at nodes by index_add, one number for each graph of the batch."""

import torch
from torch import nn

NODES, EDGES, GRAPHS, WIDTH = 32, 96, 4, 16


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.update = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, nodes, edges):
        sources, targets = edges
        messages = self.message(torch.cat([nodes[sources], nodes[targets]], dim=-1))
        summed = torch.zeros_like(nodes).index_add(0, targets, messages)
        return nodes + self.update(torch.cat([nodes, summed], dim=-1)).relu()


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Linear(6, WIDTH), nn.Linear(WIDTH, 1)
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, features, edges, graph_of):
        nodes = self.embed(features)
        for layer in self.layers:
            nodes = layer(nodes, edges)
        return self.out(nodes.new_zeros(GRAPHS, WIDTH).index_add(0, graph_of, nodes)).squeeze(-1)


def make_model():
    return Network()


def make_batch(step: int):
    """Nodes float32 (32, 6), edges int64 (2, 96), the graph of each node int64 (32,), and what to find, (4,)."""
    generator = torch.Generator().manual_seed(step)
    return {
        "features": torch.randn(NODES, 6, generator=generator),
        "edges": torch.randint(0, NODES, (2, EDGES), generator=generator),
        "graph_of": torch.arange(NODES) // (NODES // GRAPHS),
        "wanted": torch.randn(GRAPHS, generator=generator),
    }


def loss_fn(output, batch):
    return (output - batch["wanted"]).square().mean()
