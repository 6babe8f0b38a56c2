"""Four of the shipped checks as pytest items, alone and spread by pytest-xdist: the same items, the same outcomes.

python tests/pytest_plugin/shipped.py      (make shipped; some minutes)
"""

from __future__ import annotations

import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from subprocess import run

ROOT = Path(__file__).parents[2]
CHECKS = " ".join(f"configs/{name}.yaml" for name in ("bert", "equivariant", "gpt2", "resnet"))
EXPECTED_TO_FAIL = {"configs.equivariant.yaml::eager", "configs.equivariant.yaml::compile"}


def outcomes(folder: Path, *arguments: str) -> tuple[dict[str, str], float]:
    junit = folder / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=0", "-o", f"smoketest_checks={CHECKS}"]
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


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        alone, took_alone = outcomes(Path(name))
        spread, took_spread = outcomes(Path(name), "-n", "2")
    for item in sorted({*alone, *spread}):
        print(f"{item}: {alone.get(item)}, with xdist {spread.get(item)}")  # noqa: T201
    print(f"{took_alone:.0f} s alone, {took_spread:.0f} s with -n 2")  # noqa: T201
    failed = {item for item, outcome in alone.items() if outcome != "passed"}
    return 0 if alone == spread and len(alone) == 12 and failed == EXPECTED_TO_FAIL else 1


if __name__ == "__main__":
    sys.exit(main())
