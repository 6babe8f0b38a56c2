"""What ``python -m benchmarks`` writes: the machine, the day, the versions, the load, and every figure."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from benchmarks.figures import Figure

__all__ = ["RESULTS", "Machine", "Results", "Script", "load_average", "this_machine"]

RESULTS = Path(__file__).with_name("results.json")
_VERSIONS = ("torch", "transformers", "torch-mlir")


class Machine(BaseModel):
    """What the figures were measured on and with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    processor: str
    cores: int
    memory_gb: float | None
    system: str
    python: str
    versions: dict[str, str | None]


class Script(BaseModel):
    """One script of the run.

    Attributes:
        name: of its module in ``benchmarks``.
        seconds: it took.
        problem: why its figures are not complete; None where they are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    seconds: float
    problem: str | None = None


class Results(BaseModel):
    """One run of the benchmarks.

    Attributes:
        quick: tiny sizes: the figures say nothing.
        load_before: the load average of one minute when it began; None where the system keeps none.
        load_after: the same, when it was over: the run itself adds between one and two.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    date: dt.date
    quick: bool
    machine: Machine
    load_before: float | None
    load_after: float | None
    scripts: tuple[Script, ...]
    figures: tuple[Figure, ...]


def this_machine() -> Machine:
    """The machine this runs on."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gb=_memory(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        versions={name: _version(name) for name in _VERSIONS},
    )


def load_average() -> float | None:
    """The load average of one minute; None where the system keeps none."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> float | None:
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return None
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
