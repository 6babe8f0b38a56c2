"""A DataLoader of texts of many lengths: lines of the book, padded to the longest of their batch."""

from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

BOOK = (Path(__file__).parents[1] / "data" / "alice.txt").read_bytes()
LINES = [torch.tensor(list(line)) for line in BOOK.splitlines() if len(line) > 8]


def padded(lines: list[torch.Tensor]):
    ids = nn.utils.rnn.pad_sequence(lines, batch_first=True)
    return {"input_ids": ids, "labels": ids.masked_fill(ids == 0, -100)}


def make_loader():
    return DataLoader(LINES, batch_size=4, shuffle=True, collate_fn=padded)


class Predictor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(256, 32), nn.Conv1d(32, 32, 3, padding=2), nn.Linear(32, 256)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        return self.head(x + self.mix(x.transpose(1, 2))[..., :-2].transpose(1, 2).relu())


def make_model():
    return Predictor()


def loss_fn(output, batch):
    return nn.functional.cross_entropy(output[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())
