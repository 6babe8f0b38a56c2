"""What watching costs: a GPT-2 (124M) training step on the emulated device, unwatched and watched, in one process.

    python benchmarks/witness.py [ROUNDS] [BATCH] [LENGTH]

One thread computes, and CPU seconds of the process are taken, so that what else the machine does counts little. Every
round makes the step once in each way; the best round counts. The runner's own steps are made by the worker's code. Exit
code 1 where a share is over its limit.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._debug_mode import DebugMode
from torch.utils.flop_counter import FlopCounterMode

import smoketest
from smoketest.config.models import Check
from smoketest.devices.base import open_device
from smoketest.findings import SitePolicy
from smoketest.witness.context import Context
from smoketest.witness.warnings import FallbackWarnings
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.eager import EagerRun
from smoketest.worker.environment import read_environment
from smoketest.worker.job import Job
from smoketest.workload import Workload

LIMITS = {"timed step": 1.02, "traced step": 1.5, "watch()": 1.05}
WITH_STACKS = "torch.profiler, shapes and stacks"


def check(batch: int, length: int) -> Check:
    """GPT-2 with 124M parameters, random weights."""
    return Check.model_validate(
        {
            "name": "gpt2",
            "model": {
                "target": "transformers:GPT2LMHeadModel",
                "config": {"class": "transformers:GPT2Config"},
            },
            "batch": {
                "tensors": {
                    "input_ids": {"shape": [batch, length], "dtype": "int64", "low": 0, "high": 50257},
                    "labels": {"like": "input_ids"},
                }
            },
            "loss": "output.loss",
            "optimizer": {"name": "AdamW", "lr": 1e-4},
            "training": {"warmup": 1, "steps": 1},
        }
    )


def profiler(stacks: bool) -> AbstractContextManager[Any]:
    return profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=stacks)


def ways(run: EagerRun, work: Workload) -> dict[str, Callable[[], object]]:
    """Each way to make the step, by name; the unwatched one first."""

    def under(make: Callable[[], AbstractContextManager[Any]]) -> Callable[[], object]:
        def step() -> None:
            with make():
                work.step(1)

        return step

    return {
        "unwatched": under(nullcontext),
        "timed step": lambda: run.one_step(work, 1, "timed"),
        "traced step": lambda: run.one_step(work, 1, "traced"),
        "watch()": under(smoketest.watch),
        "watch(trace=True)": under(lambda: smoketest.watch(work.model, trace=True)),
        "torch.profiler, shapes": under(lambda: profiler(stacks=False)),
        WITH_STACKS: under(lambda: profiler(stacks=True)),
        "FlopCounterMode": under(lambda: FlopCounterMode(display=False)),
        "DebugMode": under(DebugMode),
    }


def measure(steps: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """CPU seconds of the best round of each."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            gc.collect()
            started = time.process_time()
            step()
            taken[name].append(time.process_time() - started)
    return {name: min(times) for name, times in taken.items()}


def main(rounds: int, batch: int, length: int) -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, FallbackWarnings(Context()) as warned:
        job = Job(
            check=check(batch, length),
            device=open_device("emulated"),
            policy=SitePolicy(Path.cwd()),
            environment=read_environment({}),
            emit=lambda message: None,
            breadcrumb=BreadcrumbFile(Path(folder) / "breadcrumb"),
        )
        run = EagerRun(job, warned.context, warned)
        work = run.set_up()
        run.one_step(work, 0, "warmup")
        seconds = measure(ways(run, work), rounds)
    base = seconds["unwatched"]
    print(f"GPT-2 124M, batch {batch}x{length}, one thread, best of {rounds} rounds")
    print("| step | CPU seconds | times an unwatched one | at most |")
    print("| --- | --- | --- | --- |")
    for name, took in seconds.items():
        print(f"| {name} | {took:.2f} | {took / base:.3f} | {LIMITS.get(name, '')} |")
    over = [name for name, limit in LIMITS.items() if seconds[name] > limit * base]
    if seconds["traced step"] > seconds[WITH_STACKS]:
        over.append(f"traced step dearer than {WITH_STACKS}")
    print("over the limit: " + ", ".join(over) if over else "all within the limits")
    return 1 if over else 0


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    sys.exit(main(*numbers, *(5, 1, 128)[len(numbers) :]))
