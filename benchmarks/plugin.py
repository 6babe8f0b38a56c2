"""What the pytest plugin costs a suite that does not use it, as the ratio of CPU seconds with it and without it.

    python benchmarks/plugin.py [ROUNDS]

A suite of 2,000 tests that do nothing, in 20 files, is run in turn with the plugin, without it (``-p no:smoketest``),
and once more without it: the third shows what the same thing differs by. The best of some rounds counts. The exit code
is 1 where the plugin takes more than the share allowed.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

FILES, TESTS = 20, 100
AT_MOST = 1.03
OTHERS = ("-p", "no:hypothesispytest", "-p", "no:xdist", "-p", "no:timeout", "-p", "no:cacheprovider")
WITHOUT = ("-p", "no:smoketest")


def cpu_seconds(folder: Path, *arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pytest", "-q", *OTHERS, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert f"{FILES * TESTS} passed" in done.stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(rounds: int) -> int:
    loaded = subprocess.run(
        [sys.executable, "-m", "pytest", "--markers"], capture_output=True, text=True, check=True, cwd="/"
    )
    assert "no_cpu_fallback" in loaded.stdout, "the plugin is not installed"
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    times: dict[str, list[float]] = {"with": [], "without": [], "without again": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        for i in range(FILES):
            (folder / f"test_{i}.py").write_text("".join(f"def test_{j}(): pass\n" for j in range(TESTS)))
        for _ in range(rounds):
            times["with"].append(cpu_seconds(folder))
            times["without"].append(cpu_seconds(folder, *WITHOUT))
            times["without again"].append(cpu_seconds(folder, *WITHOUT))
    best = {key: min(values) for key, values in times.items()}
    ratio, noise = best["with"] / best["without"], best["without again"] / best["without"]
    print(f"pytest, {FILES * TESTS} tests: {best['without']:.3f} s without the plugin, {best['with']:.3f} s with it")
    print(f"  ratio {ratio:.3f} (at most {AT_MOST}); without it twice: {noise:.3f}")
    return 0 if ratio <= AT_MOST else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 7))
