"""Projects whose tests are run by a pytest of their own, and environments to run it in."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
import venv
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SITE = Path(sysconfig.get_path("purelib"))
REPOSITORY = Path(__file__).parents[2]
_LEFT_OUT = ("torch", "functorch", "neuron_smoketest", "__editable__", "pytest_timeout", "pytest_xdist", "hypothesis")
"""Torch, this package as it is installed here, and other plugins that are no matter."""


@dataclass(frozen=True)
class Ran:
    """A pytest that has ended."""

    code: int
    out: str
    err: str
    outcomes: dict[str, str]

    @property
    def text(self) -> str:
        return self.out + self.err


def project(folder: Path, files: Mapping[str, str], ini: str = "") -> Path:
    """A project with these files; its pytest is strict, and warnings are errors."""
    strict = 'addopts = ["--strict-markers", "--strict-config"]\nfilterwarnings = ["error"]\n'
    files = {"pyproject.toml": f"[tool.pytest.ini_options]\n{strict}{ini}\n", **files}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    return folder


def pytest_in(folder: Path, *arguments: str, python: str = sys.executable) -> Ran:
    """Run pytest there, with the plugins that are installed."""
    junit = folder / "junit.xml"
    junit.unlink(missing_ok=True)
    no = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")  # no matter here, and the latter takes a second
    command = [python, "-m", "pytest", "-rA", "--junitxml", str(junit), *no, *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    done = subprocess.run(
        command, cwd=folder, env=environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=250
    )
    return Ran(done.returncode, done.stdout, done.stderr, _outcomes(junit))


def _outcomes(junit: Path) -> dict[str, str]:
    if not junit.exists():
        return {}
    return {
        f"{case.get('classname')}::{case.get('name')}": next(
            (tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None), "passed"
        )
        for case in ET.parse(junit).iter("testcase")
    }


def environment_without_torch(folder: Path, torch: str | None = None) -> str:
    """The interpreter of an environment with pytest and this package, its plugin registered, and no torch to import.

    Args:
        folder: that gets it.
        torch: a version of which there is nothing but the metadata.
    """
    venv.create(folder, symlinks=True)
    site = next((folder / "lib").glob("python3.*/site-packages"))
    for found in SITE.iterdir():
        if not found.name.startswith(_LEFT_OUT):
            (site / found.name).symlink_to(found)
    (site / "smoketest").symlink_to(REPOSITORY / "smoketest")
    own = site / "neuron_smoketest-0.1.0.dist-info"
    own.mkdir()
    needs = "Requires-Dist: torch<2.16,>=2.13\nRequires-Dist: torch-mlir>=1; extra == 'lowering'\n"
    (own / "METADATA").write_text(f"Metadata-Version: 2.1\nName: neuron-smoketest\nVersion: 0.1.0\n{needs}")
    (own / "entry_points.txt").write_text("[pytest11]\nsmoketest = smoketest.pytest_plugin\n")
    if torch is not None:
        metadata = site / f"torch-{torch}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
    return str(folder / "bin" / "python")
