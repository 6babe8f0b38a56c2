"""Sums of sines with noise, as forecasting models are given them."""

import torch

SERIES, PAST, FUTURE = 4, 27, 8  # the past holds the context of 24 and the longest lag


def observed(step: int):
    """Values float32 (4, time) of past and future, their age as the only time feature, and a mask of ones."""
    generator = torch.Generator().manual_seed(step)
    phase, period = torch.rand(2, SERIES, 1, generator=generator)
    time = torch.arange(PAST + FUTURE, dtype=torch.float32)
    values = torch.sin(6.3 * (time / (4 + 8 * period) + phase)) + 3.0
    values = values + 0.1 * torch.randn(values.shape, generator=generator)
    age = torch.log2(2.0 + time).expand(SERIES, -1)[..., None]
    return (), {
        "past_values": values[:, :PAST],
        "past_time_features": age[:, :PAST].contiguous(),
        "past_observed_mask": torch.ones(SERIES, PAST),
        "future_values": values[:, PAST:],
        "future_time_features": age[:, PAST:].contiguous(),
    }
