"""Models as people write them, for `smoketest init`: one, several, optional and keyword inputs, and hard ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class LeNet(nn.Module):
    """Takes pictures of 28 x 28 only, with one channel: the linear layer's width tells."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.head = nn.Linear(16 * 4 * 4, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        return self.head(x.flatten(1))


class MLP(nn.Module):
    """No argument has a default."""

    def __init__(self, in_features, hidden, num_classes, dropout):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(in_features, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, num_classes)
        )

    def forward(self, features):
        return self.net(features)


class Regressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(13, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class TwoTowers(nn.Module):
    """Two inputs of ids with vocabularies of their own."""

    def __init__(self, users: int = 50, items: int = 30, dim: int = 16) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, dim), nn.Embedding(items, dim)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return (self.users(user) * self.items(item)).sum(-1)


@dataclass
class NanoConfig:
    block_size: int = 32
    vocab_size: int = 65
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 32


class Nano(nn.Module):
    """A configuration object by name only, optional targets, and (logits, loss) as its output."""

    def __init__(self, config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.places = nn.Embedding(config.block_size, config.n_embd)
        layer = nn.TransformerEncoderLayer(config.n_embd, config.n_head, 64, batch_first=True)
        self.body = nn.TransformerEncoder(layer, config.n_layer, enable_nested_tensor=False)
        self.head = nn.Linear(config.n_embd, config.vocab_size)

    def forward(self, idx, targets=None):
        place = torch.arange(idx.size(1), device=idx.device)
        logits = self.head(self.body(self.tokens(idx) + self.places(place)))
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


class Tagger(nn.Module):
    """Ids and an optional mask; an LSTM."""

    def __init__(self, vocab_size: int = 200, tags: int = 7) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, 16)
        self.rnn = nn.LSTM(16, 12, batch_first=True, bidirectional=True)
        self.out = nn.Linear(24, tags)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        x, _ = self.rnn(self.embed(tokens))
        return self.out(x if mask is None else x * mask.unsqueeze(-1))


class Keyword(nn.Module):
    """Keyword-only inputs of different kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.table = nn.Conv2d(3, 8, 3), nn.Linear(5, 8)
        self.head = nn.Linear(16, 4)

    def forward(self, *, image: Tensor, table: Tensor) -> dict[str, Tensor]:
        both = torch.cat([self.image(image).mean((2, 3)), self.table(table)], -1)
        return {"logits": self.head(both), "features": both}


class Denoiser(nn.Module):
    """A U-Net of sorts: pictures and time steps."""

    def __init__(self, channels: int = 3, width: int = 16) -> None:
        super().__init__()
        self.time = nn.Embedding(1000, width)
        self.down, self.up = nn.Conv2d(channels, width, 3, 2, 1), nn.ConvTranspose2d(width, channels, 4, 2, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.up(F.silu(self.down(x) + self.time(t)[:, :, None, None]))


class Positions(nn.Module):
    """Takes sequences of 50 only: learnt positions are added."""

    def __init__(self, dim: int = 24, length: int = 50) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(1, length, dim))
        self.mix = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.head = nn.Linear(dim, 3)

    def forward(self, sequence: Tensor) -> Tensor:
        x = sequence + self.positions
        return self.head(self.mix(x, x, x)[0].mean(1))


class Graph(nn.Module):
    """Nodes and edges."""

    def __init__(self, in_dim: int = 9, hidden: int = 16) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(in_dim, hidden), nn.Linear(hidden, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x)
        mixed = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return self.second(F.relu(mixed))


class Wave(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(2, 8, 5), nn.BatchNorm1d(8), nn.GELU(), nn.AdaptiveAvgPool1d(1))
        self.head = nn.Linear(8, 6)

    def forward(self, signal: Tensor) -> Tensor:
        return self.head(self.net(signal).squeeze(-1))


class Lazy(nn.Module):
    """Parameters without a shape until the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Pair(NamedTuple):
    mean: Tensor
    spread: Tensor


class Autoencoder(nn.Module):
    """Gives several things by name."""

    def __init__(self, size: int = 20) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(size, 8), nn.Linear(4, size)

    def forward(self, x: Tensor) -> tuple[Tensor, Pair]:
        mean, spread = self.encoder(x).chunk(2, -1)
        return self.decoder(mean + spread.exp() * torch.randn_like(mean)), Pair(mean, spread)


class Translator(nn.Module):
    """Source and target sequences."""

    def __init__(self, vocab_size: int = 120, d_model: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, d_model)
        self.body = nn.Transformer(d_model, 2, 1, 1, 32, batch_first=True)
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.head(self.body(self.embed(src), self.embed(tgt)))


def make_classifier(width: int = 8, *, classes: int = 5) -> nn.Module:
    """A function that returns a module."""
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(classes))


class Sizes(nn.Module):
    """Needs a list of sizes, which is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x: Tensor, sizes: list[int]) -> Tensor:
        return torch.stack([part.sum() for part in self.net(x).split(sizes)])


class NeedsAModule(nn.Module):
    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, x: Tensor) -> Tensor:
        return self.backbone(x)


class Picky(nn.Module):
    """Takes only what nobody would guess."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape != (7, 11, 3):
            raise ValueError("the input is wrong")
        return self.net(x)


ready = nn.Linear(2, 2)

PLAIN = [
    "LeNet", "MLP", "Regressor", "TwoTowers", "Nano", "Tagger", "Keyword", "Denoiser", "Positions", "Graph", "Wave",
    "Lazy", "Autoencoder", "Translator", "make_classifier",
]  # fmt: skip
HARD = ["Sizes", "NeedsAModule", "Picky", "ready"]
TRANSFORMERS = [
    "GPT2Config", "BertConfig", "LlamaConfig", "T5Config", "ViTConfig", "ResNetConfig", "WhisperConfig", "CLIPConfig",
    "Wav2Vec2Config", "MixtralConfig", "DistilBertForSequenceClassification", "SwinConfig", "MambaConfig", "BartConfig",
]  # fmt: skip
