"""All benchmarks, each in a process of its own, into ``results.json`` and the tables of ``README.md``.

    python -m benchmarks [--quick] [--output FILE] [SCRIPT ...]

The exit code is 1 where a figure is over its limit, and 2 where a script broke or took too long: what it had measured
is kept, and the results say what is missing. Only a whole run that is not quick rewrites README.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import table
from benchmarks.figures import BROKEN, MISSED, Figure
from benchmarks.results import RESULTS, Results, Script, load_average, this_machine

ROOT = Path(__file__).parents[1]
SCRIPTS = ("startup", "device", "microsecond", "witness", "probe", "scaling", "memory", "whole", "plugin")
_PATIENCE = 1800.0
"""Seconds after which a script is given up: far more than any takes, even on a busy machine."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=f"of {', '.join(SCRIPTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="tiny sizes and one round, to try the scripts")
    parser.add_argument("--output", type=Path, default=None, help="where the results go")
    given = parser.parse_args()
    whole = not given.scripts and not given.quick
    if unknown := sorted(set(given.scripts) - set(SCRIPTS)):
        parser.error(f"there is no script {', '.join(unknown)}; there are {', '.join(SCRIPTS)}")
    if given.output is None and not whole:
        parser.error("--output is needed where only some scripts run, or --quick: results.json is a whole run")
    before = load_average()
    scripts, figures = [], []
    for name in given.scripts or SCRIPTS:
        script, measured = _run(name, given.quick)
        scripts.append(script)
        figures += measured
    results = Results(
        date=dt.datetime.now(dt.UTC).date(), quick=given.quick, machine=this_machine(), load_before=before,
        load_after=load_average(), scripts=tuple(scripts), figures=tuple(figures),
    )  # fmt: skip
    output = given.output or RESULTS
    output.write_text(results.model_dump_json(indent=1) + "\n", encoding="utf-8")
    print(f"\n{output}: {len(figures)} figures, {sum(script.seconds for script in scripts):.0f} s")
    if output == RESULTS:
        table.write(results, table.README)
    return _judged(results)


def _run(name: str, quick: bool) -> tuple[Script, list[Figure]]:
    """Run one script, and read what it measured, whatever became of it."""
    print(f"\n{name}", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "figures.jsonl"
        command = [sys.executable, "-m", f"benchmarks.{name}", "--lines", str(lines), *(["--quick"] if quick else [])]
        try:
            code = subprocess.run(
                command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=_PATIENCE, check=False
            ).returncode
            problem = None if code in (0, MISSED) else f"ended with {code}"
        except subprocess.TimeoutExpired:
            problem = f"was given up after {_PATIENCE:g} s"
        texts = lines.read_text(encoding="utf-8").splitlines() if lines.exists() else []
    script = Script(name=name, seconds=round(time.monotonic() - started, 1), problem=problem)
    return script, [Figure.model_validate_json(text) for text in texts]


def _judged(results: Results) -> int:
    """Say what is missed and what is missing, last of all."""
    missed = [figure for figure in results.figures if not figure.ok]
    for figure in missed:
        print(f"over its limit: {figure.table}: {figure.name}: {figure.value:.3f}, at most {figure.limit:g}")
    broken = [script for script in results.scripts if script.problem is not None]
    for script in broken:
        print(f"not complete: benchmarks/{script.name}.py {script.problem}")
    return BROKEN if broken else MISSED if missed else 0


if __name__ == "__main__":
    sys.exit(main())
