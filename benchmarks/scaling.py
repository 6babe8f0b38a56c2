"""How what smoketest costs grows: with depth, with the batch, and with the number of steps.

    python -m benchmarks.scaling

A narrow GPT-2, since growth is asked for and not size. Of each series the smallest is 1, and the last figure is the
exponent of the growth between the two largest: 1 is linear, 0 is none. Steps are those of the eager worker's own code
on the emulated device, CPU seconds; the probe is that of ``benchmarks.probe``.
"""

from __future__ import annotations

import gc
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import probe
from benchmarks.figures import Figure, Part, Setting, best, interleaved, told
from benchmarks.witness import check, runner
from smoketest.probe.lower import LoweringProcess

NARROW = {"n_embd": 32, "n_head": 2, "n_positions": 32, "vocab_size": 64}
LENGTH = 32
DEPTHS, BATCHES, STEPS = (2, 6, 12, 24, 48), (1, 4, 16), (10, 100, 1_000)
FLAT = 4.0
"""MB that memory may grow by from the 100th to the 1,000th step."""


def measure(setting: Setting) -> Iterator[Figure]:
    """Depth of the traced step and of the probe, batch, and steps."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    depths = DEPTHS[:2] if setting.quick else DEPTHS
    batches = BATCHES[:2] if setting.quick else BATCHES
    steps = STEPS[:2] if setting.quick else STEPS
    yield from _steps(steps)  # first: what others leave behind would hide what grows
    yield from _traced("depth", "layers", {depth: (1, depth) for depth in depths}, setting)
    yield from _traced("batch", "sequences", {batch: (batch, 4) for batch in batches}, setting)
    yield from _probe(depths)


def _traced(table: str, things: str, sizes: dict[int, tuple[int, int]], setting: Setting) -> Iterator[Figure]:
    """The unwatched step, and what tracing adds to it, for each size: a batch and a number of layers."""
    plain, added = {}, {}
    for size, (batch, layers) in sizes.items():
        with runner(check(batch, LENGTH, {**NARROW, "n_layer": layers})) as (run, work):
            run.one_step(work, 0, "warmup")
            sides: dict[str, Callable[[], object]] = {
                "unwatched": partial(work.step, 1),
                "traced": partial(run.one_step, work, 1, "traced"),
            }
            taken = best(interleaved(sides, setting.turns(8), time.process_time, gc.collect))
        plain[size], added[size] = taken["unwatched"] * 1e3, (taken["traced"] - taken["unwatched"]) * 1e3
    yield from _series(table, "the unwatched step", things, plain, "ms")
    yield from _series(table, "what tracing adds to it", things, added, "ms")


def _probe(depths: tuple[int, ...]) -> Iterator[Figure]:
    """Capturing and lowering, once each, the cache empty."""
    capture, lower = {}, {}
    probe.compile_once(probe.model(1, 32))  # imports and caches of torch itself
    with LoweringProcess() as process, tempfile.TemporaryDirectory() as folder:
        process.hello()
        for depth in depths:
            gc.collect()
            torch._dynamo.reset()
            taken = probe.captured_and_lowered(probe.model(depth, 32), Path(folder) / f"{depth}.jsonl", process)
            capture[depth], lower[depth] = taken["capture"], taken["lower"]
    yield from _series("depth", "capturing the graphs", "layers", capture, "s")
    yield from _series("depth", "lowering them, empty cache", "layers", lower, "s")


def _steps(counts: tuple[int, ...]) -> Iterator[Figure]:
    """Time per step and resident memory, of one run's timed steps: all of them kept, as the worker keeps them."""
    each, memory = {}, {}
    with runner(check(1, LENGTH, {**NARROW, "n_layer": 2})) as (run, work):
        run.one_step(work, 0, "warmup")
        done, spent = 0, 0.0
        for count in counts:
            started = time.process_time()
            for index in range(done, count):
                run.one_step(work, index + 1, "timed")
            spent += time.process_time() - started
            done = count
            gc.collect()
            each[count], memory[count] = spent / count * 1e3, _resident()
    yield from _series("steps", "a timed step, mean of all", "steps", each, "ms")
    *_, before, last = counts
    grown = memory[last] - memory[before]
    parts = tuple(Part(name=f"after {count:,}", value=value, unit="MB") for count, value in memory.items())
    name = f"resident memory added between {before:,} and {last:,} timed steps"
    yield Figure(table="steps", name=name, value=grown, unit="MB", limit=FLAT, made_of=parts)


def _series(table: str, what: str, things: str, values: dict[int, float], unit: str) -> Iterator[Figure]:
    """The values as multiples of the smallest size's, and how they grow between the largest two."""
    sizes = list(values)
    smallest, before, last = sizes[0], sizes[-2], sizes[-1]
    for size in sizes[1:]:
        parts = (
            Part(name="it", value=values[size], unit=unit),
            Part(name=f"{smallest}", value=values[smallest], unit=unit),
        )
        times = f"{size / smallest:g} times as many"
        name = f"{what}: {size:,} {things}, {times}"
        yield Figure(table=table, name=name, value=values[size] / values[smallest], made_of=parts)
    ratio = max(values[last], 1e-9) / max(values[before], 1e-9)
    exponent = math.log(ratio) / math.log(last / before)
    name = f"{what}: exponent of the growth from {before:,} to {last:,} {things}"
    yield Figure(table=table, name=name, value=exponent)


def _resident() -> float:
    """MB of this process in memory now; its peak where the system does not tell."""
    status = Path("/proc/self/status")
    if status.exists():
        lines: dict[str, Any] = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmRSS"].split()[0]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(told(measure))
