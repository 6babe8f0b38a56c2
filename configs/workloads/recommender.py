"""A DLRM-style recommender: bags of ids, dense features, and the products of all pairs of what they give."""

import torch
from torch import nn

TABLES, ROWS, WIDTH, PEOPLE, BAG = 3, 50, 8, 8, 4


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum") for _ in range(TABLES))
        self.dense = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, WIDTH), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(WIDTH + (TABLES + 1) * TABLES // 2, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense, ids, offsets):
        low = self.dense(dense)
        seen = torch.stack([low, *(table(ids[i], offsets) for i, table in enumerate(self.tables))], dim=1)
        pairs = torch.bmm(seen, seen.transpose(1, 2))
        rows, columns = torch.tril_indices(TABLES + 1, TABLES + 1, -1, device=dense.device)
        return self.top(torch.cat([low, pairs[:, rows, columns]], dim=1)).squeeze(-1)


def make_model():
    return Recommender()


def make_batch(step: int):
    """Dense features float32 (8, 5), ids int64 (3, 32) in bags of four, and clicks float32 (8,)."""
    generator = torch.Generator().manual_seed(step)
    return {
        "dense": torch.rand(PEOPLE, 5, generator=generator),
        "ids": torch.randint(0, ROWS, (TABLES, PEOPLE * BAG), generator=generator),
        "offsets": torch.arange(0, PEOPLE * BAG, BAG),
        "clicked": torch.randint(0, 2, (PEOPLE,), generator=generator).float(),
    }


def loss_fn(output, batch):
    return nn.functional.binary_cross_entropy_with_logits(output, batch["clicked"])
