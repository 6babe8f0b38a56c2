"""How long commands that run nothing take, as shares of ``import torch``: the design allows a tenth and a fifth.

    python -m benchmarks.startup

A copy of the package is run, once with its bytecode kept and once with none; the best of some rounds counts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.figures import Figure, Setting, best, interleaved, seconds, told

ROOT = Path(__file__).parents[1]
TABLE = "startup"
BASELINE = "import torch"
COMMANDS = {
    "--help": (["-m", "smoketest", "--help"], 0.10),
    "validate configs/gpt2.yaml": (["-m", "smoketest", "validate", str(ROOT / "configs" / "gpt2.yaml")], 0.20),
}


def measure(setting: Setting) -> Iterator[Figure]:
    """Each command with bytecode, and without."""
    plain = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    yield from _commands("", plain, setting)
    yield from _commands(", no bytecode", plain | {"PYTHONDONTWRITEBYTECODE": "1"}, setting)


def _commands(which: str, environment: dict[str, str], setting: Setting) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "smoketest", Path(folder) / "smoketest", ignore=shutil.ignore_patterns("__pycache__"))

        def running(*arguments: str) -> Callable[[], object]:
            command = [sys.executable, *arguments]
            return lambda: subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)

        sides = {BASELINE: running("-c", BASELINE)} | {
            name: running(*command) for name, (command, _) in COMMANDS.items()
        }
        taken = best(interleaved(sides, setting.turns(7)))
    for name, (_, limit) in COMMANDS.items():
        made_of = seconds({name: taken[name], BASELINE: taken[BASELINE]})
        yield Figure(
            table=TABLE, name=f"`{name}`{which}", value=taken[name] / taken[BASELINE], limit=limit, made_of=made_of
        )


if __name__ == "__main__":
    sys.exit(told(measure))
