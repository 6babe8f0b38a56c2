"""Long form of test_init.py: `smoketest init` and then `smoketest run` for every target, each in an empty folder.

``make init-targets`` runs it. The exit code is 0 where every target that should have a check that runs has one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import init_targets

FILE = Path(init_targets.__file__)
FAST = ("--device", "emulated", "--no-compile", "--set", "parity.enabled=false", "--steps", "1", "-q")


def tried(target: str) -> tuple[int, int | None, str]:
    """Exit codes of init and of run, and the last line that was printed."""
    with tempfile.TemporaryDirectory() as folder:
        made = smoketest(folder, "init", target, "--output", "check.yaml")
        if made.returncode != 0:
            return made.returncode, None, made.stderr.strip().splitlines()[-2]
        ran = smoketest(folder, "run", "check.yaml", *FAST)
        return 0, ran.returncode, ran.stderr.strip().splitlines()[0]


def smoketest(folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "smoketest", *arguments], cwd=folder, capture_output=True, text=True, timeout=900
    )


def main() -> int:
    wanted = [f"{FILE}:{name}" for name in init_targets.PLAIN]
    wanted += [f"transformers:{name}" for name in init_targets.TRANSFORMERS]
    good = 0
    for target in [*wanted, *(f"{FILE}:{name}" for name in init_targets.HARD)]:
        made, ran, last = tried(target)
        runs = ran in (0, 1)
        good += runs and target in wanted
        print(f"{target.rpartition(':')[2]:40} init {made}, run {ran}: {last}", flush=True)  # noqa: T201
    print(f"{good} of {len(wanted)} targets have a check that runs as written")  # noqa: T201
    return 0 if good == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
