"""Byte-level batches of the opening of "Alice's Adventures in Wonderland" (Lewis Carroll, 1865; public domain)."""

from pathlib import Path

import torch

TEXT = torch.tensor(list((Path(__file__).parents[1] / "data" / "alice.txt").read_bytes()))
LENGTH, SEQUENCES = 128, 4
MASK = 256  # the first token after the 256 bytes


def windows(step: int) -> torch.Tensor:
    """Four windows of 128 bytes, others at every step: int64, (4, 128)."""
    generator = torch.Generator().manual_seed(step)
    starts = torch.randint(0, len(TEXT) - LENGTH, (SEQUENCES,), generator=generator)
    return torch.stack([TEXT[start : start + LENGTH] for start in starts.tolist()])


def next_byte(step: int):
    """For decoders: the labels are the inputs, the model shifts them."""
    ids = windows(step)
    return (), {"input_ids": ids, "labels": ids.clone()}


def masked_bytes(step: int):
    """For encoders: 15 of 100 bytes are masked and have to be found; -100 labels the others as not asked for."""
    ids = windows(step)
    hidden = torch.rand(ids.shape, generator=torch.Generator().manual_seed(1000 + step)) < 0.15
    return (), {
        "input_ids": ids.masked_fill(hidden, MASK),
        "attention_mask": torch.ones_like(ids),
        "labels": ids.masked_fill(~hidden, -100),
    }
