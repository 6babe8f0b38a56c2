"""What the compile probe costs, as shares of one ``aot_eager`` compile of the same model in the same run.

    python -m benchmarks.probe

GPT-2's twelve layers, narrow, forward and backward, imports done. The design allows 1.5 for lowering every op of its
graphs with an empty cache and 0.3 for doing so again with the cache; the whole probe captures the graphs too, which is
a compile of its own. Beside it what PyTorch has to look at a model with, on the same model: ``torch._dynamo.explain``
and ``torch.export`` see the forward part alone. All on the plain CPU, where ``aot_eager`` is at home; medians of some
interleaved rounds.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.figures import Figure, Setting, interleaved, median, seconds, told
from smoketest.findings import SitePolicy
from smoketest.operators.profile import load_profile
from smoketest.probe.cache import CachedLowering
from smoketest.probe.lower import LoweringProcess
from smoketest.probe.probe import probe

__all__ = ["Probed", "captured_and_lowered", "model", "step"]

TABLE = "probe"
COMPILE = "`aot_eager` compile"
BATCH, LENGTH, VOCABULARY = 1, 128, 1024
Probed = dict[str, float]


def measure(setting: Setting) -> Iterator[Figure]:
    """The parts of the probe, the whole of it, and its peers."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    gpt = model(2 if setting.quick else 12, 96)
    compile_once(gpt)  # imports and caches of torch itself
    with LoweringProcess() as process, tempfile.TemporaryDirectory() as folder:
        process.hello()
        caches = iter(Path(folder) / f"{index}.jsonl" for index in range(1_000))
        parts: dict[str, list[float]] = {"capture": [], "lower, empty cache": [], "lower, cached": []}

        def probe_twice() -> None:
            cache = next(caches)
            for name in ("lower, empty cache", "lower, cached"):
                took = captured_and_lowered(gpt, cache, process)
                parts["capture"].append(took["capture"])
                parts[name].append(took["lower"])

        sides = {COMPILE: lambda: compile_once(gpt), "probe": probe_twice, **peers(gpt)}
        taken = median(interleaved(sides, setting.turns(3), before=torch._dynamo.reset))
    taken |= median(parts)
    capture, first, again = (taken[name] for name in parts)
    base = taken[COMPILE]

    def figure(name: str, took: float, limit: float | None = None) -> Figure:
        made_of = seconds({"it": took, COMPILE: base})
        return Figure(table=TABLE, name=name, value=took / base, limit=limit, made_of=made_of)

    yield figure("lowering every op and both graphs, empty cache", first, 1.5)
    yield figure("the same with the cache", again, 0.3)
    yield figure("capturing the graphs first", capture)
    yield figure("the whole probe, the first time", capture + first)
    yield figure("the whole probe, the second time", capture + again)
    for name in peers(gpt):
        yield figure(name, taken[name])


def model(layers: int, width: int) -> GPT2LMHeadModel:
    """A GPT-2; narrow, since compiling costs by the op and not by the element."""
    sizes: dict[str, Any] = {"n_layer": layers, "n_embd": width, "n_head": width // 8}
    ends: dict[str, Any] = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "bos_token_id": 0, "eos_token_id": 0}
    gpt = GPT2LMHeadModel(GPT2Config(**sizes, **ends))
    gpt.train()
    return gpt


def step(call: Callable[..., Any], _index: int) -> None:
    """Forward and backward, of the model or of what was compiled of it."""
    ids = _batch()
    call(input_ids=ids, labels=ids).loss.backward()


def compile_once(gpt: nn.Module) -> None:
    """One compile, forward and backward, with the step that causes it."""
    torch._dynamo.reset()
    step(torch.compile(gpt, backend="aot_eager", dynamic=False), 0)


def captured_and_lowered(gpt: nn.Module, cache: Path, process: LoweringProcess) -> Probed:
    """Seconds of the capture, and of lowering every op and every graph."""
    marks: dict[str, float] = {}
    started = time.perf_counter()

    def mark(what: str, _done: int, _total: int) -> None:
        marks[what] = time.perf_counter() - started

    result = probe(
        gpt, step, profile=load_profile(None), site_policy=SitePolicy(Path.cwd()), on_progress=mark,
        process=CachedLowering(cache, process),
    )  # fmt: skip
    if not result.ops_probed:
        raise RuntimeError(f"nothing was lowered: {result.lowering_skipped}")
    return {"capture": marks["capture"], "lower": marks["lower whole graphs"] - marks["capture"]}


def peers(gpt: nn.Module) -> dict[str, Callable[[], object]]:
    """What PyTorch has to look at a model with before it is compiled, by name; all of them see the forward part."""
    ids = _batch()
    given = {"input_ids": ids, "labels": ids, "use_cache": False}  # the cache is an output that export does not know

    def explain() -> None:
        torch._dynamo.explain(gpt)(**given)

    def export() -> None:
        torch.export.export(gpt, (), given, strict=False)

    def draft_export() -> None:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints a report
            torch.export.draft_export(gpt, (), given, strict=False)

    return {
        "torch._dynamo.explain, forward": explain,
        "torch.export.export, forward": export,
        "torch.export.draft_export, forward": draft_export,
    }


def _batch() -> Tensor:
    return torch.randint(0, VOCABULARY, (BATCH, LENGTH))


if __name__ == "__main__":
    sys.exit(told(measure))
