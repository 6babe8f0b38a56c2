"""All shipped checks against what their comments expect, and the state of the ecosystem as one table.

python -m tests.ecosystem              (make ecosystem) two at a time; reports and table go to reports/examples/
python -m tests.ecosystem --again      a second time, and both must have the same findings
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from smoketest.findings import Report
from smoketest.render.summary import Row, Summary, render, row

ROOT = Path(__file__).parents[1]
EXPECTED = {"passes": "PASS", "fails": "FAIL"}


@dataclass(frozen=True)
class Ended:
    """One check, run."""

    name: str
    row: Row
    findings: tuple[str, ...]
    seconds: float


def expected(check: Path) -> str:
    """``PASS`` or ``FAIL``, as the comment at the head of a check says: ``Expected: passes`` or ``Expected: fails``."""
    comment = " ".join(line.lstrip("# ") for line in check.read_text().splitlines() if line.startswith("#"))
    found = re.search(r"Expected: (\w+)", comment)
    if found is None or found[1] not in EXPECTED:
        raise SystemExit(f"{check.name}: no comment says `Expected: passes` or `Expected: fails`")
    return EXPECTED[found[1]]


def run(check: Path, output: Path) -> Ended:
    """Run one check in a process of its own."""
    began = time.monotonic()
    command = [sys.executable, "-m", "smoketest", "run", str(check.relative_to(ROOT)), "-q", "--device", "emulated"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--output", str(output)], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    seconds = time.monotonic() - began
    file = output / check.stem / "report.json"
    if not file.is_file():
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Ended(check.stem, Row.without_report(check.stem, done.returncode, last), (), seconds)
    report = Report.model_validate(json.loads(file.read_text()))
    sys.stderr.write(f"{report.name}: {report.headline} ({seconds:.0f} s)\n")
    return Ended(check.stem, row(report), tuple(sorted(f"{f.id} {f.verdict}" for f in report.findings)), seconds)


def run_all(checks: list[Path], output: Path) -> list[Ended]:
    """Run the checks, two at a time: a check's own parts wait for each other."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda check: run(check, output), checks))


def write(ended: list[Ended], folder: Path) -> None:
    """Write the table."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    code = max(one.row.exit_code for one in ended)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.md").write_text(
        render(Summary(now, code, tuple(one.row for one in ended)), "markdown"), encoding="utf-8"
    )


def main() -> int:
    """Run, compare and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", help="names of checks; all by default, and only then is the table written")
    parser.add_argument("--again", action="store_true", help="run twice, and compare the findings")
    asked = parser.parse_args()
    checks = sorted((ROOT / "configs").glob("*.yaml"))
    chosen = [check for check in checks if not asked.checks or check.stem in asked.checks]
    wanted = {check.stem: expected(check) for check in checks}
    began = time.monotonic()
    ended = run_all(chosen, ROOT / "reports" / "examples")
    minutes = (time.monotonic() - began) / 60
    wrong = [f"{one.name}: expected {wanted[one.name]}, is {one.row.verdict}" for one in ended
             if one.row.verdict != wanted[one.name]]  # fmt: skip
    if asked.again:
        second = {one.name: one for one in run_all(chosen, ROOT / "reports" / "ecosystem-again")}
        wrong += [f"{one.name}: a second run has other findings" for one in ended
                  if one.findings != second[one.name].findings]  # fmt: skip
    if not asked.checks:
        write(ended, ROOT / "reports" / "examples")
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    sys.stderr.write(f"{len(ended)} checks in {minutes:.1f} minutes, {len(wrong)} not as expected\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
