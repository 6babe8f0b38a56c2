"""What the probes saw, as frozen data; nothing in here judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from smoketest.doctor.limited import Ending

__all__ = ["Backend", "Distribution", "Folder", "Listing", "Machine", "Observed", "Packages", "Step", "Tool"]


@dataclass(frozen=True)
class Distribution:
    """An installed distribution.

    Attributes:
        name: normalised.
        version: as registered.
        entry_points: each as ``(group, name)``.
        folders: that it brought.
        requires: normalised names of the distributions it says it needs; those of its extras left out.
    """

    name: str
    version: str
    entry_points: tuple[tuple[str, str], ...] = ()
    folders: tuple[str, ...] = ()
    requires: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Packages:
    """What the interpreter examined has, found without importing it.

    Attributes:
        python: its version.
        distributions: those of interest, in the order of its path; more than one of a name is a fault.
        modules: top-level modules and the folders they would come from.
        submodules: those of interest in ``torch_neuronx``.
    """

    python: tuple[int, int, int]
    distributions: tuple[Distribution, ...] = ()
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    submodules: frozenset[str] = frozenset()

    def all(self, name: str) -> tuple[Distribution, ...]:
        """The distributions of this name."""
        return tuple(found for found in self.distributions if found.name == name)

    def version(self, name: str) -> str | None:
        """The version of the distribution of this name that is in force; None where there is none."""
        return next((found.version for found in self.all(name)), None)


@dataclass(frozen=True)
class Step:
    """One step of the backend probe; ``begun`` means that it never ended."""

    name: str
    state: Literal["begun", "done", "raised"]
    value: bool | int | str | None = None
    error: str = ""


@dataclass(frozen=True)
class Backend:
    """How the steps towards ``torch.neuron`` went, and how the process ended."""

    steps: tuple[Step, ...]
    ending: Ending

    def step(self, name: str) -> Step | None:
        """The step of this name; None where it was not made."""
        return next((step for step in self.steps if step.name == name), None)


@dataclass(frozen=True)
class Tool:
    """A command-line tool: where it is (None: nowhere) and how running it ended (None: it was not run)."""

    path: str | None
    ending: Ending | None = None


@dataclass(frozen=True)
class Folder:
    """A folder something will write to.

    Attributes:
        variable: the environment variable that names it.
        path: of the folder.
        exists: whether it is there already.
        folder: whether it, or the nearest thing above it, is a folder.
        writable: whether that can be written to.
        free: bytes free there.
    """

    variable: str
    path: str
    exists: bool
    folder: bool
    writable: bool
    free: int


@dataclass(frozen=True)
class Listing:
    """The folders looked at, and how looking ended."""

    folders: tuple[Folder, ...]
    ending: Ending


@dataclass(frozen=True)
class Machine:
    """The machine, from its files: None where there is no such file.

    Attributes:
        system: such as ``Linux``.
        architecture: such as ``x86_64``.
        distribution: ID and VERSION_ID of os-release.
        pretty: its PRETTY_NAME.
        vendor: DMI's sys_vendor.
        product: DMI's product_name.
        driver: version of the loaded driver module; empty where it is loaded and says none.
    """

    system: str
    architecture: str
    distribution: tuple[str, str] | None = None
    pretty: str | None = None
    vendor: str | None = None
    product: str | None = None
    driver: str | None = None


@dataclass(frozen=True)
class Observed:
    """Everything the probes saw. `packages` is an ending where that probe itself failed."""

    packages: Packages | Ending
    machine: Machine
    backend: Backend
    neuron_ls: Tool
    collect_env: Tool
    folders: Listing
    environ: Mapping[str, str]
