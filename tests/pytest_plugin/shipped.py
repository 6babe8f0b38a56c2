"""Shipped checks as pytest items, alone and spread by pytest-xdist: the same items, the same outcomes.

python -m tests.pytest_plugin.shipped            four checks (make shipped; some minutes)
python -m tests.pytest_plugin.shipped '*'        all that match the pattern
"""

from __future__ import annotations

import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from subprocess import run

from tests.ecosystem import expected

ROOT = Path(__file__).parents[2]
FOUR = ("bert", "equivariant", "gpt2", "resnet")


def outcomes(checks: list[Path], folder: Path, *arguments: str) -> tuple[dict[str, str], float]:
    junit = folder / "junit.xml"
    patterns = " ".join(f"configs/{check.name}" for check in checks)
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=0", "-o", f"smoketest_checks={patterns}"]
    device = ["--smoketest-device", "emulated", "--junitxml", str(junit)]
    started = time.monotonic()
    run([*command, *device, *arguments, "configs"], cwd=ROOT, check=False)
    seconds = time.monotonic() - started
    return {
        f"{case.get('classname')}::{case.get('name')}": next(
            (tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None), "passed"
        )
        for case in ET.parse(junit).iter("testcase")
    }, seconds


def main(pattern: str | None) -> int:
    every = sorted((ROOT / "configs").glob("*.yaml"))
    checks = [check for check in every if (check.match(f"{pattern}.yaml") if pattern else check.stem in FOUR)]
    with tempfile.TemporaryDirectory() as name:
        alone, took_alone = outcomes(checks, Path(name))
        spread, took_spread = outcomes(checks, Path(name), "-n", "2")
    for item in sorted({*alone, *spread}):
        print(f"{item}: {alone.get(item)}, with xdist {spread.get(item)}")  # noqa: T201
    print(f"{took_alone:.0f} s alone, {took_spread:.0f} s with -n 2")  # noqa: T201
    failed = {item.partition("::")[0] for item, outcome in alone.items() if outcome != "passed"}
    expected_to_fail = {f"configs.{check.name}" for check in checks if expected(check) == "FAIL"}
    print(f"not as their comments expect: {sorted(failed ^ expected_to_fail) or 'none'}")  # noqa: T201
    return 0 if alone == spread and len(alone) == 3 * len(checks) and failed == expected_to_fail else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
