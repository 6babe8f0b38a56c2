"""Run in a process of its own by test_device.py: probe a model on the emulated device, print what was found as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from smoketest.devices.base import open_device
from smoketest.findings import SitePolicy, merge
from smoketest.operators.profile import load_profile
from smoketest.probe.probe import probe


class Mixed(nn.Module):
    """Falls back in eager (floor, lgamma), breaks its graph, and uses attention and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(8, 8)
        self.window = torch.ones(8)  # no buffer: it stays on the CPU

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.window.to(x.device)
        x = nn.functional.scaled_dot_product_attention(self.proj(x), x, x)
        x = nn.functional.dropout(x.floor() + x, 0.1)
        if x.sum() > 0:
            x = x + 1
        return torch.lgamma(x + 3)


def main() -> None:
    torch.set_num_threads(1)
    open_device("emulated", warn=False)
    model = Mixed().to("neuron")

    def step(call: Callable[..., Any], index: int) -> None:
        call(torch.rand(2, 2, 4, 8).to("neuron")).sum().backward()

    result = probe(
        model, step, profile=load_profile(None), site_policy=SitePolicy(Path(__file__).parent), steps=2, op_timeout=60
    )
    findings = [
        (found.rule, found.op, found.phase, found.site and found.site.code) for found in merge(result.observations)
    ]
    counts = [result.graph_breaks, result.skipped_frames, result.recompiles]
    json.dump({"findings": findings, "counts": counts, "ids": [graph.id for graph in result.graphs]}, sys.stdout)


if __name__ == "__main__":
    main()
