"""Does torch load, does its Neuron backend, and does that have a device? No op is run and no device opened by us.

Every step is announced before it is made: where the process dies or hangs, the last one names the place.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


class Steps:
    """Makes steps and writes down how each went."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self, name: str, step: Callable[[], Any]) -> Any:
        """The step's value; None where it raised."""
        self._write(step=name, state="begun")
        try:
            value = step()
        except Exception as error:
            self._write(step=name, state="raised", error=f"{type(error).__name__}: {error}")
            return None
        self._write(step=name, state="done", value=value if isinstance(value, (bool, int, str)) else None)
        return value

    def _write(self, **entry: Any) -> None:
        with self._path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")


def load_backends(steps: Steps, torch: Any) -> None:
    """What ``import torch`` does with the entry points of backends, one by one so that a culprit has a name."""
    for point in importlib.metadata.entry_points(group="torch.backends"):

        def load(point: importlib.metadata.EntryPoint = point) -> bool:
            point.load()()
            return hasattr(torch, "neuron")

        steps.make(f"autoload {point.name}", load)


def main() -> None:
    """Make the steps."""
    steps = Steps(Path(sys.argv[1]))
    question = json.loads(sys.argv[2])
    autoload = os.environ.get(_AUTOLOAD, "1") == "1"
    os.environ[_AUTOLOAD] = "0"
    torch: Any = None

    def import_torch() -> str:
        nonlocal torch
        torch = importlib.import_module("torch")
        return str(torch.__version__)

    if steps.make("import torch", import_torch) is None:
        return
    if autoload and question["autoload"]:
        load_backends(steps, torch)
    if question["import"]:
        steps.make("import torch_neuronx", lambda: importlib.import_module("torch_neuronx") is not None)
    steps.make("torch.device('neuron')", lambda: str(torch.device("neuron")))
    if steps.make("torch.neuron", lambda: hasattr(torch, "neuron")):
        steps.make("torch.neuron.is_available()", lambda: bool(torch.neuron.is_available()))
        steps.make("torch.neuron.device_count()", lambda: int(torch.neuron.device_count()))


if __name__ == "__main__":
    main()
