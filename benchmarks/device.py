"""What the emulated device costs beside the plain CPU, side by side in one run.

    python -m benchmarks.device

The two sides take turns, and ratios are of the best of each, so that what else the machine does counts little.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

import smoketest
from benchmarks.figures import Figure, Part, Setting, best, interleaved, seconds, told

TABLE = "device"
CALLS = 200
"""Of the tiny op at a time: a clock is read twice for all of them."""
_START = (
    "import time, torch; t = time.perf_counter(); import smoketest; smoketest.emulate(); print(time.perf_counter() - t)"
)


def measure(setting: Setting) -> Iterator[Figure]:
    """All that the design limits."""
    torch.set_num_threads(1)
    smoketest.emulate(warn=False)
    yield tiny_op(setting)
    yield memory(setting)  # before anything large: it is a peak that must not grow
    yield gpt2(setting)
    yield start(setting)


def adding(x: torch.Tensor) -> Callable[[], None]:
    """`CALLS` additions of a tensor to itself."""

    def run() -> None:
        for _ in range(CALLS):
            torch.add(x, x)

    return run


def tiny_op(setting: Setting) -> Figure:
    """A 4 x 4 addition in float32."""
    here = torch.ones(4, 4)
    with torch.no_grad():
        taken = best(interleaved({"CPU": adding(here), "device": adding(here.to("neuron"))}, setting.turns(500)))
    each = {name: took / CALLS for name, took in taken.items()}
    return _times_cpu("addition of 4 x 4 float32", each, "us", 7.0)


def gpt2(setting: Setting) -> Figure:
    """A training step of GPT-2 124M, batch 1 x 128, AdamW; attention is the fused op on both sides."""
    import transformers

    layers, length = (1, 16) if setting.quick else (12, 128)

    def stepping(where: str) -> Callable[[], None]:
        torch.manual_seed(0)
        sizes: dict[str, Any] = {"attn_implementation": "sdpa", "n_layer": layers}
        model: torch.nn.Module = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
        model.to(where).train()
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        ids = torch.randint(0, 50257, (1, length)).to(where)

        def step() -> None:
            optimizer.zero_grad()
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()

        step()
        return step

    taken = best(interleaved({"CPU": stepping("cpu"), "device": stepping("neuron")}, setting.turns(8)))
    name = f"GPT-2 124M, a training step of 1 x {length}, fused attention and foreach AdamW on both sides"
    return _times_cpu(name, taken, "ms", 1.10)


def start(setting: Setting) -> Figure:
    """``smoketest.emulate()`` in a new process, beyond ``import torch``."""
    took = [
        float(subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True, check=True).stdout)
        for _ in range(setting.turns(5))
    ]
    return Figure(table=TABLE, name="`smoketest.emulate()` beyond `import torch`", value=min(took), unit="s", limit=0.5)


def memory(setting: Setting) -> Figure:
    """Peak resident memory that 10,000 steps of a small model add, after 1,000 to warm up."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)).to("neuron")
    optimizer = torch.optim.AdamW(model.parameters())

    def steps(count: int) -> float:
        for _ in range(count):
            optimizer.zero_grad()
            model(torch.randn(4, 8).to("neuron")).square().mean().backward()
            optimizer.step()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    warm, further = (10, 100) if setting.quick else (1_000, 10_000)
    before = steps(warm)
    return Figure(
        table=TABLE, name=f"resident memory added by {further:,} steps of a small model, after {warm:,}",
        value=steps(further) - before, unit="MB", limit=4.0, made_of=(Part(name="before", value=before, unit="MB"),),
    )  # fmt: skip


def _times_cpu(name: str, taken: dict[str, float], unit: str, limit: float) -> Figure:
    value = taken["device"] / taken["CPU"]
    return Figure(table=TABLE, name=name, value=value, limit=limit, made_of=seconds(taken, unit))


if __name__ == "__main__":
    sys.exit(told(measure))
