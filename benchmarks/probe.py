"""What the compile probe of a 12-layer GPT costs, as shares of one ``aot_eager`` compile of it in the same run.

    python benchmarks/probe.py [ROUNDS]

The design allows 1.5 for lowering every op of its forward and backward graphs (imports done, cache empty) and 0.3 for
doing so again with the cache. The whole probe captures the graphs too, which is a compile of its own. Medians of some
interleaved rounds; the exit code is 1 where a share is over its limit.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from smoketest.findings import SitePolicy
from smoketest.operators.profile import load_profile
from smoketest.probe.cache import CachedLowering
from smoketest.probe.lower import LoweringProcess
from smoketest.probe.probe import probe

FIRST, SECOND = 1.5, 0.3
BATCH, LENGTH, VOCABULARY = 1, 128, 1024


def model() -> GPT2LMHeadModel:
    """GPT-2's twelve layers; narrow, since compiling costs by the op and not by the element."""
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(n_layer=12, n_embd=96, n_head=12, vocab_size=VOCABULARY, n_positions=LENGTH, **ends)
    return GPT2LMHeadModel(config).train()


def step(call: Callable[..., Any], _index: int) -> None:
    ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    call(input_ids=ids, labels=ids).loss.backward()


def compiled(gpt: torch.nn.Module) -> float:
    """Seconds of one compile, forward and backward, with the step that causes it."""
    torch._dynamo.reset()
    started = time.perf_counter()
    step(torch.compile(gpt, backend="aot_eager", dynamic=False), 0)
    return time.perf_counter() - started


def probed(gpt: torch.nn.Module, cache: Path, process: LoweringProcess) -> tuple[float, float]:
    """Seconds of the capture, and of lowering every op and every graph."""
    marks: dict[str, float] = {}
    started = time.perf_counter()

    def mark(what: str, _done: int, _total: int) -> None:
        marks[what] = time.perf_counter() - started

    result = probe(
        gpt, step, profile=load_profile(None), site_policy=SitePolicy(Path.cwd()), on_progress=mark,
        process=CachedLowering(cache, process),
    )  # fmt: skip
    assert result.ops_probed, result.lowering_skipped
    return marks["capture"], marks["lower whole graphs"] - marks["capture"]


def main(rounds: int) -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    gpt = model()
    compiled(gpt)  # imports and caches of torch itself
    compiles, captures, firsts, seconds = [], [], [], []
    with LoweringProcess() as process, tempfile.TemporaryDirectory() as folder:
        process.hello()
        for index in range(rounds):
            cache = Path(folder) / f"{index}.jsonl"
            compiles.append(compiled(gpt))
            capture, lower = probed(gpt, cache, process)
            again, cached = probed(gpt, cache, process)
            captures += [capture, again]
            firsts.append(lower)
            seconds.append(cached)
    base, capture = statistics.median(compiles), statistics.median(captures)
    first, second = (statistics.median(values) / base for values in (firsts, seconds))
    print(f"one aot_eager compile of a 12-layer GPT, forward and backward: {base:.2f} s")
    print(f"  lowering every op and both graphs, empty cache: {first:.2f} of it (at most {FIRST:.2f})")
    print(f"  the same with the cache: {second:.2f} of it (at most {SECOND:.2f})")
    print(f"  capturing the graphs first: {capture / base:.2f} of it (no limit of its own)")
    print(f"  the whole probe: {first + capture / base:.2f} of it, with the cache {second + capture / base:.2f}")
    return 0 if first <= FIRST and second <= SECOND else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
