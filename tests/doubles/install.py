"""Doubles of torch-neuronx as installed packages: metadata, entry points and modules in a folder on Python's path.

``PYTHONPATH=tests python -m doubles.install NAME FOLDER`` makes one by hand.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from doubles.behaviours import BEHAVIOURS, Behaviour
from doubles.packages import add_legacy, add_lookalike, add_placeholder
from doubles.site import Site

__all__ = ["Installed", "install"]

_SOURCES = Path(__file__).parent / "native"
_ENTRY_POINTS = {
    # [PRE] pyproject.toml of torch-neuronx
    "torch.backends": {"torch_neuronx": "torch_neuronx:_autoload"},
    "torch_dynamo_backends": {"neuron": "torch_neuronx.neuron_dynamo_backend:neuron_backend_wrapper"},
}


@dataclass(frozen=True)
class Installed:
    """A double in a folder.

    Attributes:
        folder: its ``site-packages``, to be on Python's path.
        version: of the distribution torch-neuronx; None where there is none.
    """

    folder: Path
    version: str | None

    @property
    def core(self) -> Path:
        """The lock file that stands for the core: who holds it, keeps every other process from the device."""
        return self.folder / "torch_neuronx" / "core.lock"

    def environ(self, base: dict[str, str] | None = None) -> dict[str, str]:
        """Variables with which a Python process finds this package, as if it were installed there."""
        environ = dict(os.environ if base is None else base)
        path = [str(self.folder), *([environ["PYTHONPATH"]] if environ.get("PYTHONPATH") else [])]
        tools = [str(self.folder / "bin"), environ.get("PATH", os.defpath)]
        return environ | {"PYTHONPATH": os.pathsep.join(path), "PATH": os.pathsep.join(tools)}


def install(behaviour: str | Behaviour, folder: Path) -> Installed:
    """Make a double.

    Args:
        behaviour: one of `BEHAVIOURS` by name, or another.
        folder: that gets a ``site-packages`` with it, which is how an installed file is told from the user's own.
    """
    folder = folder / "site-packages"
    wanted = BEHAVIOURS[behaviour] if isinstance(behaviour, str) else behaviour
    site = Site(folder)
    if wanted.product == "legacy":
        add_legacy(site)
        return Installed(folder, "2.9.0.2.15.32035")
    if wanted.product == "placeholder":
        add_placeholder(site)
        return Installed(folder, "1.0")
    if wanted.product == "lookalike":
        add_lookalike(site, "torch.utils.rename_privateuse1_backend('neuron')")
        return Installed(folder, None)
    version = _version_for(metadata.version("torch"))
    site.add("torch-neuronx", version, _files(wanted), _ENTRY_POINTS)
    compiler = folder / "bin" / "neuronx-cc"
    site.write({"bin/neuronx-cc": f"#!{sys.executable}\n" + (_SOURCES / "bin" / "neuronx_cc.py").read_text("utf-8")})
    compiler.chmod(0o755)
    site.add("neuronx-cc", "2.28.7631.0", {"neuronxcc/__init__.py": ""})  # [PUB] component list of SDK 2.33.0
    return Installed(folder, version)


def _version_for(torch: str) -> str:
    """A release number that goes with the torch that is here. [PUB] pairs 2.13.0 with 2.13.3.0, 2.14.0 with 2.14.3.0"""
    return "2.13.3.0.0" if torch.startswith("2.13.") else "2.14.3.0.0"


def _files(behaviour: Behaviour) -> dict[str, str]:
    sources = sorted((_SOURCES / "torch_neuronx").rglob("*.py"))
    files = {str(path.relative_to(_SOURCES)): path.read_text("utf-8") for path in sources}
    return files | {"torch_neuronx/behaviour.json": json.dumps(asdict(behaviour), indent=1)}


if __name__ == "__main__":
    made = install(sys.argv[1], Path(sys.argv[2]).absolute())
    sys.stdout.write(f"PYTHONPATH={made.folder}\n")
