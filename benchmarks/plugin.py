"""What the pytest plugin costs a suite that does not use it, as the ratio of CPU seconds with it and without it.

    python -m benchmarks.plugin

A suite of 2,000 tests that do nothing, in 20 files, is run in turn with the plugin, without it (``-p no:smoketest``),
and once more without it: the third shows what the same thing differs by. The best of some rounds counts.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.figures import Figure, Setting, best, interleaved, seconds, told

TABLE = "plugin"
AT_MOST = 1.03
OTHERS = ("-p", "no:hypothesispytest", "-p", "no:xdist", "-p", "no:timeout", "-p", "no:cacheprovider")
WITHOUT = ("-p", "no:smoketest")


def measure(setting: Setting) -> Iterator[Figure]:
    """The share of the plugin, and what the same thing differs by."""
    loaded = subprocess.run(
        [sys.executable, "-m", "pytest", "--markers"], capture_output=True, text=True, check=True, cwd="/"
    )
    if "no_cpu_fallback" not in loaded.stdout:
        raise RuntimeError("the plugin is not installed: pip install -e .")
    files = 2 if setting.quick else 20
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        for i in range(files):
            (folder / f"test_{i}.py").write_text("".join(f"def test_{j}(): pass\n" for j in range(100)))
        sides = {
            "with": _suite(folder, files * 100),
            "without": _suite(folder, files * 100, *WITHOUT),
            "without again": _suite(folder, files * 100, *WITHOUT),
        }
        taken = best(interleaved(sides, setting.turns(4), _children))
    for name, limit in (("with", AT_MOST), ("without again", None)):
        made_of = seconds({name: taken[name], "without": taken["without"]})
        value = taken[name] / taken["without"]
        yield Figure(table=TABLE, name=f"{name}, beside without", value=value, limit=limit, made_of=made_of)


def _suite(folder: Path, tests: int, *arguments: str) -> Callable[[], object]:
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", *OTHERS, *arguments]

    def run() -> None:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        if f"{tests} passed" not in done.stdout:
            raise RuntimeError(done.stdout)

    return run


def _children() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(told(measure))
