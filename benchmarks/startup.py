"""How long commands that run nothing take, as shares of ``import torch``: the design allows a tenth and a fifth.

    python benchmarks/startup.py [ROUNDS]

The best of some interleaved rounds counts, so that what else the machine does counts little. A copy of the package is
run, once with its bytecode kept and once with none. The exit code is 1 where a share is over its limit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECK = str(ROOT / "configs" / "gpt2.yaml")
BASELINE = ["-c", "import torch"]
COMMANDS = {
    "--help": (["-m", "smoketest", "--help"], 0.10),
    "validate configs/gpt2.yaml": (["-m", "smoketest", "validate", CHECK], 0.20),
}


def seconds(arguments: list[str], folder: Path, environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def measure(rounds: int, folder: Path, environment: dict[str, str]) -> tuple[float, dict[str, float]]:
    """Seconds of ``import torch``, and of each command, in a folder that holds the package."""
    torch: list[float] = []
    commands: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        torch.append(seconds(BASELINE, folder, environment))
        for name, (arguments, _limit) in COMMANDS.items():
            commands[name].append(seconds(arguments, folder, environment))
    return min(torch), {name: min(times) for name, times in commands.items()}


def report(title: str, rounds: int, environment: dict[str, str]) -> bool:
    """Measure, print, and say whether all shares are within their limits."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "smoketest", Path(folder) / "smoketest", ignore=shutil.ignore_patterns("__pycache__"))
        torch, commands = measure(rounds, Path(folder), environment)
    print(f"{title}: import torch {torch:.3f} s")
    for name, took in commands.items():
        print(f"  {name}: {took:.3f} s, {took / torch:.3f} of it (at most {COMMANDS[name][1]:.2f})")
    return all(took / torch <= COMMANDS[name][1] for name, took in commands.items())


def main(rounds: int) -> int:
    plain = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    kept = report("bytecode kept", rounds, plain)
    none = report("PYTHONDONTWRITEBYTECODE=1", rounds, plain | {"PYTHONDONTWRITEBYTECODE": "1"})
    return 0 if kept and none else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 7))
