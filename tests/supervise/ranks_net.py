"""A small model that can misbehave on rank 1, after some steps."""

from __future__ import annotations

import os
import signal
import time

import torch
from torch import Tensor, nn

STEPS_BEFORE = 1


class Net(nn.Module):
    """Three residual layers; `how` says what rank 1 does once it has made `STEPS_BEFORE` steps, or from the start."""

    def __init__(self, how: str = "behave") -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(3))
        self.head = nn.Linear(8, 4)
        if how == "spare":
            self.spare = nn.Linear(1, 1, bias=False)
        self.how, self.calls = how, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.how == "slow":
            time.sleep(9 + int(os.environ.get("RANK", "0")))
        if os.environ.get("RANK") == "1":
            x = self.misbehave(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)

    def misbehave(self, x: Tensor) -> Tensor:
        if self.how == "fall back":
            return x + 0 * torch.atan2(x, x)
        if self.how == "raise":
            raise ValueError("no such expert")
        if self.how == "raise later" and self.calls > 2:  # the control of one process calls it for each of two parts
            raise ValueError("no such expert")
        if self.calls > STEPS_BEFORE:
            if self.how == "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            if self.how == "leave":
                os._exit(0)
            if self.how == "hang":
                time.sleep(1000)
        return x
