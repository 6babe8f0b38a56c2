"""Peak memory of each process of a whole check, read from outside while it runs. Linux only: /proc says it.

    python -m benchmarks.memory

``configs/gpt2.yaml``, and GPT-2 with 124M parameters. Every few milliseconds the peak (``VmHWM``) of the command and of
everything it started is read; the journal of the run says which process was which part. For comparison the peak of a
process that imports torch and transformers and does nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, Part, Setting, told

__all__ = ["events"]

ROOT = Path(__file__).parents[1]
PROC = Path("/proc")
TABLE = "memory"
_PAUSE = 0.02
_LARGE = """\
name: gpt2-124m
model: {target: "transformers:GPT2LMHeadModel", config: {class: "transformers:GPT2Config"}}
batch:
  tensors:
    input_ids: {shape: [1, 128], dtype: int64, low: 0, high: 50257}
    labels: {like: input_ids}
loss: output.loss
optimizer: {name: AdamW, lr: 1.0e-4}
training: {steps: 3, warmup: 1}
"""


@dataclass(frozen=True)
class _Process:
    """A process: its peak of resident memory in MB so far, its parent, and its command line."""

    peak: float
    parent: int
    line: str


def measure(setting: Setting) -> Iterator[Figure]:
    """Each process of the two checks, beside one that only imports."""
    if not (PROC / "self" / "status").exists():
        print("memory: this system has no /proc: nothing is measured", file=sys.stderr)
        return
    only = _watched([sys.executable, "-c", "import torch, transformers"], ROOT)
    imports = max(process.peak for process in only.values())
    yield Figure(table=TABLE, name="`import torch, transformers`", value=imports, unit="MB")
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "gpt2-124m.yaml"
        large.write_text(_LARGE)
        checks = {"configs/gpt2.yaml": ROOT / "configs" / "gpt2.yaml", "GPT-2 124M, 1 x 128": large}
        for title, check in list(checks.items())[: 1 if setting.quick else None]:
            yield from _processes(title, check, Path(folder), imports)


def events(report: Path) -> list[dict[str, object]]:
    """The journal of a run, from the folder of its report: ``part``, ``at`` (seconds) and ``event`` of each line."""
    return [json.loads(line) for line in (report / "log" / "events.jsonl").read_text().splitlines()]


def _processes(title: str, check: Path, folder: Path, imports: float) -> Iterator[Figure]:
    output = folder / "reports"
    command = [sys.executable, "-m", "smoketest", "run", str(check), "--device", "emulated", "--output", str(output)]
    seen = _watched(command, folder)
    parts: dict[int, str] = {}
    for entry in events(output / check.stem):
        event = entry["event"]
        if isinstance(event, dict) and event["event"] == "hello":
            parts[event["pid"]] = f"{entry['part']} worker"
    total: dict[str, float] = {}
    for pid, process in seen.items():
        name = _name(pid, process, parts)
        total[name] = max(total.get(name, 0.0), process.peak)
    for name, peak in total.items():
        beside = (Part(name="times the imports", value=peak / imports, unit=""),)
        yield Figure(table=TABLE, name=f"{title}: {name}", value=peak, unit="MB", made_of=beside)


def _name(pid: int, process: _Process, parts: dict[int, str]) -> str:
    """What a process was in the run."""
    if pid in parts:
        return parts[pid]
    if "lowering_worker" in process.line:
        return "lowering worker"
    if process.parent in parts:
        return f"another process of the {parts[process.parent]}, or a fork of it"
    return "the command itself" if "smoketest run" in process.line else "others"


def _watched(command: list[str], folder: Path) -> dict[int, _Process]:
    """A command and all that came of it, by process id, once it is over."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SMOKETEST_CACHE_DIR": ""}
    peaks: dict[int, _Process] = {}
    root = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while root.poll() is None:
        for pid in _family(root.pid):
            seen = _look(pid)
            if seen is not None:
                peaks[pid] = seen
        time.sleep(_PAUSE)
    if root.returncode not in (0, 1):  # 1: it has findings
        raise RuntimeError(f"{command} ended with {root.returncode}")
    return peaks


def _family(root: int) -> list[int]:
    """The process and its descendants."""
    parent: dict[int, int] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:  # it has ended meanwhile
                continue
            parent[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
    family = [root]
    for pid in family:
        family += [child for child, of in parent.items() if of == pid]
    return family


def _look(pid: int) -> _Process | None:
    """A process as it is now; None of one that has ended."""
    try:
        status = (PROC / str(pid) / "status").read_text()
        line = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    said = dict(entry.split(":", 1) for entry in status.splitlines())
    if "VmHWM" not in said:  # it has ended, and nobody has asked how
        return None
    return _Process(int(said["VmHWM"].split()[0]) / 1024, int(said["PPid"]), line)


if __name__ == "__main__":
    sys.exit(told(measure))
