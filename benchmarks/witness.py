"""What watching costs: a GPT-2 (124M) training step on the emulated device, unwatched and watched, in one process.

    python -m benchmarks.witness

One thread computes, and CPU seconds of the process are taken, so that what else the machine does counts little. Every
round makes the step once in each way; the best round counts. The runner's own steps are made by the worker's code.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._debug_mode import DebugMode
from torch.utils.flop_counter import FlopCounterMode

import smoketest
from benchmarks.figures import Figure, Setting, best, interleaved, seconds, told
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

__all__ = ["check", "runner"]

TABLE = "watching"
LIMITS = {"timed step": 1.02, "traced step": 1.5, "`watch()`": 1.05}
UNWATCHED, TRACED, WITH_STACKS = "unwatched", "traced step", "torch.profiler, shapes and stacks"
GPT2_SMALL = {"n_layer": 4, "n_head": 4, "n_embd": 128, "n_positions": 128, "vocab_size": 256}
"""The sizes of ``configs/gpt2.yaml``."""


def measure(setting: Setting) -> Iterator[Figure]:
    """GPT-2 124M, on which the limits are, and the small model of ``configs/gpt2.yaml``."""
    torch.set_num_threads(1)
    if not setting.quick:
        yield from _steps("GPT-2 124M, 1 x 128", check(1, 128), setting.turns(6), LIMITS)
    yield from _steps("configs/gpt2.yaml, 4 x 128", check(4, 128, GPT2_SMALL), setting.turns(10), {})


def check(batch: int, length: int, sizes: dict[str, int] | None = None) -> Check:
    """GPT-2 with random weights; with 124M parameters where no sizes are given."""
    given: dict[str, Any] = {"class": "transformers:GPT2Config", "bos_token_id": 0, "eos_token_id": 0, **(sizes or {})}
    high = given.get("vocab_size", 50257)
    return Check.model_validate(
        {
            "name": "gpt2",
            "model": {"target": "transformers:GPT2LMHeadModel", "config": given},
            "batch": {
                "tensors": {
                    "input_ids": {"shape": [batch, length], "dtype": "int64", "low": 0, "high": high},
                    "labels": {"like": "input_ids"},
                }
            },
            "loss": "output.loss",
            "optimizer": {"name": "AdamW", "lr": 1e-4},
            "training": {"warmup": 1, "steps": 1},
        }
    )


@contextmanager
def runner(given: Check) -> Iterator[tuple[EagerRun, Workload]]:
    """The eager worker's own code in this process, set up on the emulated device; what it sends goes nowhere."""
    with tempfile.TemporaryDirectory() as folder, FallbackWarnings(Context()) as warned:
        job = Job(
            check=given,
            device=open_device("emulated"),
            policy=SitePolicy(Path.cwd()),
            environment=read_environment({}),
            emit=lambda message: None,
            breadcrumb=BreadcrumbFile(Path(folder) / "breadcrumb"),
        )
        run = EagerRun(job, warned.context, warned)
        yield run, run.set_up()


def _steps(what: str, given: Check, rounds: int, limits: dict[str, float]) -> Iterator[Figure]:
    with runner(given) as (run, work):
        run.one_step(work, 0, "warmup")
        taken = best(interleaved(ways(run, work), rounds, time.process_time, gc.collect))
    base = taken[UNWATCHED]
    for name, took in taken.items():
        if name != UNWATCHED:
            made_of = seconds({name: took, UNWATCHED: base}, "ms")
            yield Figure(
                table=TABLE, name=f"{what}: {name}", value=took / base, limit=limits.get(name), made_of=made_of
            )
    made_of = seconds({name: taken[name] for name in (TRACED, WITH_STACKS)}, "ms")
    beside = taken[TRACED] / taken[WITH_STACKS]
    limit = 1.0 if limits else None
    yield Figure(
        table=TABLE, name=f"{what}: {TRACED}, beside {WITH_STACKS}", value=beside, limit=limit, made_of=made_of
    )


def ways(run: EagerRun, work: Workload) -> dict[str, Callable[[], object]]:
    """Each way to make the step, by name; the unwatched one first."""

    def under(make: Callable[[], AbstractContextManager[Any]]) -> Callable[[], object]:
        def step() -> None:
            with make():
                work.step(1)

        return step

    return {
        UNWATCHED: under(nullcontext),
        "timed step": lambda: run.one_step(work, 1, "timed"),
        TRACED: lambda: run.one_step(work, 1, "traced"),
        "`watch()`": under(smoketest.watch),
        "`watch(trace=True)`": under(lambda: smoketest.watch(work.model, trace=True)),
        "torch.profiler, shapes": under(lambda: _profiler(stacks=False)),
        WITH_STACKS: under(lambda: _profiler(stacks=True)),
        "FlopCounterMode": under(lambda: FlopCounterMode(display=False)),
        "DebugMode": under(DebugMode),
    }


def _profiler(stacks: bool) -> AbstractContextManager[Any]:
    return profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=stacks)


if __name__ == "__main__":
    sys.exit(told(measure))
