"""What the emulated device costs beside the plain CPU, side by side in one run.

    python benchmarks/device.py [op] [gpt2] [start] [memory]

The two sides take turns, and ratios are of the best of each, so that what else the machine does counts little. Exits
with 1 where a limit is passed.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

LIMITS = {"op": 7.0, "gpt2": 1.10, "start": 0.5, "memory": 4.0}
"""Times a CPU op; times a CPU step; seconds beyond ``import torch``; MB grown over 10,000 steps."""


def best_of_turns(turns: int, *sides: Callable[[], Any]) -> list[float]:
    """The least seconds each side took, all sides called in turn."""
    least = [float("inf")] * len(sides)
    for _ in range(turns):
        for index, side in enumerate(sides):
            started = time.perf_counter()
            side()
            least[index] = min(least[index], time.perf_counter() - started)
    return least


def op() -> tuple[str, float]:
    """A 4 x 4 addition in float32."""
    import torch

    calls = 200
    here = torch.ones(4, 4)
    there = here.to("neuron")

    def adding(x: torch.Tensor) -> Callable[[], None]:
        def run() -> None:
            for _ in range(calls):
                torch.add(x, x)

        return run

    with torch.no_grad():
        cpu, neuron = best_of_turns(500, adding(here), adding(there))
    return f"{cpu / calls * 1e6:.1f} us, {neuron / calls * 1e6:.1f} us", neuron / cpu


def gpt2() -> tuple[str, float]:
    """A training step of GPT-2 124M, batch 1 x 128, AdamW; attention is the fused op on both sides."""
    import torch
    import transformers

    def stepping(where: str) -> Callable[[], None]:
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="sdpa")).to(where).train()
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        ids = torch.randint(0, 50257, (1, 128)).to(where)

        def step() -> None:
            optimizer.zero_grad()
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()

        step()
        return step

    cpu, neuron = best_of_turns(8, stepping("cpu"), stepping("neuron"))
    return f"{cpu * 1e3:.0f} ms, {neuron * 1e3:.0f} ms", neuron / cpu


def start() -> tuple[str, float]:
    """``smoketest.emulate()`` in a new process, beyond ``import torch``."""
    code = (
        "import time, torch; t = time.perf_counter(); import smoketest; smoketest.emulate(); "
        "print(time.perf_counter() - t)"
    )
    took = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    )
    return f"{took:.2f} s", took


def memory() -> tuple[str, float]:
    """Resident memory that 10,000 steps of a small model add, after 1,000 to warm up."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)).to("neuron")
    optimizer = torch.optim.AdamW(model.parameters())

    def steps(count: int) -> float:
        for _ in range(count):
            optimizer.zero_grad()
            model(torch.randn(4, 8).to("neuron")).square().mean().backward()
            optimizer.step()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    before = steps(1_000)
    grown = steps(10_000) - before
    return f"{before:.0f} MB after 1,000 steps", grown


def main(names: list[str]) -> int:
    import torch

    import smoketest

    torch.set_num_threads(1)
    smoketest.emulate(warn=False)
    failed = False
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, 1 thread")
    for name in names or list(LIMITS):
        measured, value = globals()[name]()
        over = value > LIMITS[name]
        failed |= over
        print(f"{name}: {measured}: {value:.2f} (at most {LIMITS[name]:g}){' OVER' if over else ''}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
