"""A check run by the real supervisor and the real worker, on a torch-neuronx that lies in a folder or is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from doubles.install import Installed, install

from smoketest.config.load import load_check
from smoketest.findings import Finding, Report
from smoketest.supervise.run import Limits, Options, run_check

__all__ = ["Place", "fallbacks", "place_of_double", "seen"]

HERE = Path(__file__).parent
Device = Literal["auto", "neuron", "emulated"]

CHECK = """
name: small
workload: {workload}
training: {{steps: 1, warmup: 1}}
compile: {{enabled: false}}
parity: {{enabled: false}}
{more}
"""


@dataclass
class Place:
    """Where a torch-neuronx is, and what ran on it.

    Attributes:
        folder: for checks and reports.
        environ: variables with which a process finds it.
        double: None where it is the genuine one.
    """

    folder: Path
    environ: Mapping[str, str]
    double: Installed | None = None
    _reports: dict[str, Report] = field(default_factory=dict)

    def report(
        self, device: Device = "neuron", *, more: str = "", seconds: float = 120, name: str | None = None
    ) -> Report:
        """What a run of the small model says; made once for each device, or each name."""
        name = name or device
        if name not in self._reports:
            file = self.folder / f"{name}.yaml"
            file.write_text(CHECK.format(workload=HERE / "small.py", more=f"device: {device}\n{more}"), "utf-8")
            options = Options(output=self.folder / name, root=HERE, limits=Limits(device=seconds))
            with pytest.MonkeyPatch.context() as patch:
                for variable in os.environ.keys() - self.environ.keys():
                    patch.delenv(variable)
                for variable, value in self.environ.items():
                    patch.setenv(variable, value)
                self._reports[name] = run_check(load_check(file), options)
        return self._reports[name]

    def output(self, program: str) -> str:
        """What a Python program prints there."""
        command = [sys.executable, "-W", "ignore", "-c", program]
        done = subprocess.run(command, env=dict(self.environ), capture_output=True, text=True, check=True, timeout=600)
        return done.stdout


def place_of_double(name: str, folder: Path) -> Place:
    """A double in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    made = install(name, folder)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NEURON_", "TORCH_NEURONX_"))}
    return Place(folder, made.environ(environ), made)


def fallbacks(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == "NST101"]


def seen(report: Report) -> list[tuple[object, ...]]:
    """Of each fallback: op, kind, phase, line, calls, whether that is exact, bytes."""
    return [
        (f.op, f.kind, f.phase, f.site.code if f.site else None, f.calls_per_step, f.exact, f.bytes_per_step)
        for f in fallbacks(report)
    ]
