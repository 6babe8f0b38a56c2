"""What a whole check takes, as a multiple of ``python -c "import torch, transformers"``.

    python -m benchmarks.whole

``smoketest run configs/gpt2.yaml`` on the emulated device, to the written report, with an empty lowering cache and with
a full one; beside it one training step of the same model under ``torch.compile(backend="aot_eager")`` in a process of
its own. Each round runs all of them; the best counts, and the journal of that run says what it is made of. Wall time,
not CPU time: what can overlap does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.figures import Figure, Part, Setting, interleaved, seconds, told
from benchmarks.memory import events

ROOT = Path(__file__).parents[1]
TABLE = "whole check"
IMPORTS, COMPILE, COLD, WARM = "`import torch, transformers`", "one `aot_eager` step", "empty cache", "full cache"
AT_MOST = 4.0
_STEP = """
import torch, transformers
config = transformers.GPT2Config(
    n_layer=4, n_head=4, n_embd=128, n_positions=128, vocab_size=256, bos_token_id=0, eos_token_id=0
)
model = transformers.GPT2LMHeadModel(config).train()
ids = torch.randint(0, 256, (4, 128))
torch.compile(model, backend="aot_eager", dynamic=False)(input_ids=ids, labels=ids).loss.backward()
"""


def measure(setting: Setting) -> Iterator[Figure]:
    """The whole check with both caches, and what it is made of."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reports: dict[str, list[dict[str, float]]] = {COLD: [], WARM: []}

        def checked(which: str) -> Callable[[], None]:
            def run() -> None:
                if which == COLD:
                    shutil.rmtree(folder / "cache", ignore_errors=True)
                _run(["-m", "smoketest", "run", str(ROOT / "configs" / "gpt2.yaml"), "--device", "emulated",
                      "--output", str(folder / "reports")], folder)  # fmt: skip
                reports[which].append(marks(folder / "reports" / "gpt2"))

            return run

        sides: dict[str, Callable[[], object]] = {
            IMPORTS: lambda: _run(["-c", "import torch, transformers"], folder),
            COMPILE: lambda: _run(["-c", _STEP], folder),
            COLD: checked(COLD),
            WARM: checked(WARM),
        }
        taken = interleaved(sides, setting.turns(3))
    imports, compiled = min(taken[IMPORTS]), min(taken[COMPILE])
    for which in (COLD, WARM):
        took = min(taken[which])
        made_of = seconds({"it": took, IMPORTS: imports})
        yield Figure(
            table=TABLE, name=f"`smoketest run configs/gpt2.yaml`, {which}", value=took / imports, limit=AT_MOST,
            made_of=made_of,
        )  # fmt: skip
        beside = seconds({"it": took, COMPILE: compiled})
        yield Figure(table=TABLE, name=f"the same, {which}, beside {COMPILE}", value=took / compiled, made_of=beside)
    made_of = seconds({"it": compiled, IMPORTS: imports})
    yield Figure(table=TABLE, name=f"{COMPILE} of the same model", value=compiled / imports, made_of=made_of)
    for which in (COLD, WARM):
        took = min(taken[which])
        yield from _made_of(which, took, reports[which][taken[which].index(took)])


def marks(report: Path) -> dict[str, float]:
    """Seconds of the pieces of a run, from its journal: some of them overlap.

    Args:
        report: the folder of its report.

    Returns:
        By name, in the order they begin. A piece that the run did not have is left out.
    """
    at: dict[str, float] = {}
    for entry in events(report):
        event, when, part = entry["event"], entry["at"], str(entry["part"])
        if not isinstance(event, dict) or not isinstance(when, float):
            continue
        kind = f"{part} {event['event']}"
        if event["event"] == "phase":
            kind = f"{part} {event['name']}"
        at.setdefault(kind, when)
        if event["event"] == "result":
            at[kind] = when
        at["last"] = when
    pieces = {
        "until the eager worker is ready": (None, "eager facts"),
        "its model and steps, until the last timed one": ("eager facts", "eager timed_part_over"),
        "its traced step and what comes after": ("eager timed_part_over", "eager result"),
        "from the last timed step to the compile worker's set-up": ("eager timed_part_over", "compile setup"),
        "compile: set-up and the step without torch.compile": ("compile setup", "compile capture"),
        "compile: capturing the graphs": ("compile capture", "compile lower"),
        "compile: lowering every op": ("compile lower", "compile lower whole graphs"),
        "compile: lowering whole graphs, and what comes after": ("compile lower whole graphs", "compile result"),
        "the reference part": ("reference hello", "reference result"),
        "until the last event": (None, "last"),
    }
    return {
        name: at[end] - (at[begin] if begin is not None else 0.0)
        for name, (begin, end) in pieces.items()
        if end in at and (begin is None or begin in at)
    }


def _made_of(which: str, took: float, pieces: dict[str, float]) -> Iterator[Figure]:
    """The pieces of one run; what the journal does not cover is the command's own start and end."""
    rest = took - pieces.pop("until the last event")
    for name, piece in {**pieces, "the command's own start, gate, reports and end": rest}.items():
        share = (Part(name="share of the whole", value=piece / took, unit=""),)
        yield Figure(table=f"whole check, {which}", name=name, value=piece, unit="s", made_of=share)


def _run(arguments: list[str], folder: Path) -> None:
    """Run Python, and raise with what it printed where it fails; the check passes, and exits with 0."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SMOKETEST_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{arguments[:4]} ended with {done.returncode}:\n{done.stderr[-3000:]}")


if __name__ == "__main__":
    sys.exit(told(measure))
