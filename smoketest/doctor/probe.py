"""The probes: what is on this machine. They judge nothing, ask no network, and end in time."""

from __future__ import annotations

import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from smoketest.doctor import facts, limited
from smoketest.doctor.identity import identify
from smoketest.doctor.observed import (
    Backend,
    Distribution,
    Folder,
    Listing,
    Machine,
    Observed,
    Packages,
    Step,
    Tool,
)

__all__ = ["Limits", "Place", "observe", "observe_quickly"]


@dataclass(frozen=True)
class Limits:
    """Seconds for each probe; at most 2 s more pass where the kernel holds on to a killed process.

    The probes run one after the other: two processes that open a device at once can make both fail ([USER-B4]).
    """

    packages: float = 8
    folders: float = 3
    neuron_ls: float = 6
    backend: float = 24
    collect_env: float = 8
    total: float = 47

    def __post_init__(self) -> None:
        """The grace of five probes and these seconds stay below a minute."""
        if self.total > 47:
            raise ValueError("the doctor answers within 60 s: total is at most 47")


@dataclass(frozen=True)
class Place:
    """Where the machine's own facts are read.

    Attributes:
        root: folder that stands for ``/``.
        system: such as ``Linux``; this machine's when None.
        architecture: such as ``x86_64``; this machine's when None.
    """

    root: Path = Path("/")
    system: str | None = None
    architecture: str | None = None


def observe(
    environ: Mapping[str, str],
    *,
    python: str = sys.executable,
    place: Place = Place(),
    limits: Limits = Limits(),
) -> Observed:
    """Look at everything once.

    Args:
        environ: the environment to examine, given to every probe.
        python: the interpreter to examine.
        place: where the machine's files are.
        limits: how long each probe may take.
    """
    probes = _Probes(dict(environ), python, place, limits, time.monotonic() + limits.total)
    packages = probes.packages()
    return Observed(
        packages=packages,
        machine=read_machine(place),
        folders=probes.folders(),
        neuron_ls=probes.neuron_ls(),
        backend=probes.backend(packages),
        collect_env=probes.collect_env(packages),
        environ=dict(environ),
    )


def observe_quickly(
    environ: Mapping[str, str],
    *,
    torch: str | None,
    python: str = sys.executable,
    place: Place = Place(),
    limits: Limits = Limits(),
) -> Observed:
    """Look at packages, folders and files only: neither torch is loaded nor the device touched.

    Args:
        environ: the environment to examine.
        torch: the version of the torch that a run loaded; None where none did.
        python: the interpreter to examine.
        place: where the machine's files are.
        limits: how long each probe may take; of the packages and the folders those count.
    """
    probes = _Probes(dict(environ), python, place, limits, time.monotonic() + limits.total)
    steps = (Step("import torch", "done", torch),) if torch is not None else ()
    return Observed(
        packages=probes.packages(),
        machine=read_machine(place),
        folders=probes.folders(),
        neuron_ls=Tool(None),
        backend=Backend(steps, limited.NotStarted("the device is not asked")),
        collect_env=Tool(None),
        environ=dict(environ),
    )


@dataclass(frozen=True)
class _Probes:
    """The probes that need a process, with the time that is left for all of them."""

    environ: dict[str, str]
    python: str
    place: Place
    limits: Limits
    deadline: float

    def packages(self) -> Packages | limited.Ending:
        """Distributions and modules."""
        question = {"distributions": facts.DISTRIBUTIONS, "modules": facts.MODULES, "submodules": facts.SUBMODULES}
        answers, ending = self._ask("packages", question, self.limits.packages)
        return _packages(answers[0]) if answers else ending

    def folders(self) -> Listing:
        """The folders torch-neuronx would write to."""
        named = [(cache.name, self.environ.get(cache.name) or cache.default) for cache in facts.CACHES]
        wanted = [(name, str(self._below_root(path))) for name, path in named if path]
        answers, ending = self._ask("folders", [path for _, path in wanted], self.limits.folders)
        found = [
            Folder(name, path, answer["exists"], answer["folder"], answer["writable"], answer["free"])
            for (name, path), answer in zip(wanted, answers, strict=False)
        ]
        return Listing(tuple(found), ending)

    def neuron_ls(self) -> Tool:
        """The list of devices."""
        folder = self._below_root(facts.NEURON_LS_FOLDER)
        path = shutil.which(facts.NEURON_LS, path=self.environ.get("PATH", "")) or shutil.which(
            facts.NEURON_LS, path=str(folder)
        )
        if path is None:
            return Tool(None)
        return Tool(path, self._run([path, *facts.NEURON_LS_ARGUMENTS], self.limits.neuron_ls))

    def backend(self, packages: Packages | limited.Ending) -> Backend:
        """torch, its backends, ``torch.neuron``. The XLA-based product and the placeholder are never loaded."""
        identity = identify(packages) if isinstance(packages, Packages) else None
        question = {
            "import": identity is not None and identity.native,
            "autoload": identity is None or identity.family not in ("legacy", "placeholder"),
        }
        answers, ending = self._ask("backend", question, self.limits.backend)
        steps: dict[str, Step] = {}
        for answer in answers:
            name = answer["step"]
            steps[name] = Step(name, answer["state"], answer.get("value"), answer.get("error", ""))
        return Backend(tuple(steps.values()), ending)

    def collect_env(self, packages: Packages | limited.Ending) -> Tool:
        """The backend's own account of its environment."""
        if not isinstance(packages, Packages) or "collect_env" not in packages.submodules:
            return Tool(None)
        if not identify(packages).native:
            return Tool(None)
        command = [self.python, "-m", "torch_neuronx.collect_env"]
        return Tool("torch_neuronx.collect_env", self._run(command, self.limits.collect_env))

    def _ask(self, script: str, question: Any, seconds: float) -> tuple[list[Any], limited.Ending]:
        """Run a script of `inside` in the interpreter examined; what it wrote before it ended, however it did."""
        source = resources.files("smoketest.doctor.inside").joinpath(f"{script}.py").read_text("utf-8")
        try:
            scratch = tempfile.TemporaryDirectory(prefix="smoketest-doctor-")
        except OSError as error:
            return [], limited.NotStarted(f"no folder for temporary files can be made: {error.strerror}")
        with scratch as folder:
            path = Path(folder) / "answer.jsonl"
            command = [self.python, "-c", source, str(path), json.dumps(question)]
            ending = self._run(command, seconds)
            return _json_lines(path), ending

    def _run(self, command: list[str], seconds: float) -> limited.Ending:
        left = min(seconds, self.deadline - time.monotonic())
        return limited.run(command, self.environ, left)

    def _below_root(self, path: str) -> Path:
        """A path of the machine, below the folder that stands for its root."""
        given = Path(path)
        return self.place.root / given.relative_to(given.anchor) if given.is_absolute() else given


def read_machine(place: Place) -> Machine:
    """System, distribution, instance type and driver, from files only."""
    release = _os_release(_read(place.root / "etc/os-release") or "")
    dmi = place.root / "sys/devices/virtual/dmi/id"
    module = place.root / facts.DRIVER_MODULE
    return Machine(
        system=place.system or platform.system(),
        architecture=place.architecture or platform.machine(),
        distribution=(release["ID"].lower(), release.get("VERSION_ID", "")) if "ID" in release else None,
        pretty=release.get("PRETTY_NAME"),
        vendor=_read(dmi / "sys_vendor"),
        product=_read(dmi / "product_name"),
        driver=(_read(module / "version") or "") if module.is_dir() else None,
    )


def _packages(answer: Any) -> Packages:
    """The answer of the script, as data."""
    distributions = [
        Distribution(
            found["name"],
            found["version"],
            tuple((group, name) for group, name in found["entry_points"]),
            tuple(found["folders"]),
            frozenset(found["requires"]),
        )
        for found in answer["distributions"]
    ]
    major, minor, micro = answer["python"]
    return Packages(
        (major, minor, micro),
        tuple(distributions),
        {name: tuple(folders) for name, folders in answer["modules"].items()},
        frozenset(answer["submodules"]),
    )


def _json_lines(path: Path) -> list[Any]:
    """The whole lines of a file; one cut short by a death is left out."""
    try:
        lines = path.read_text("utf-8").split("\n")[:-1]
    except OSError:
        return []
    return [json.loads(line) for line in lines]


def _os_release(text: str) -> dict[str, str]:
    """The assignments of an os-release file, quotes taken off."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip()[:4000]
    except OSError:
        return None
