"""Writing a device's operator profile: ``python -m smoketest.devices.export KIND FILE [PROFILE]``.

``smoketest operators export`` starts this in a process of its own, for it imports torch and whatever backend there is.
"""

from __future__ import annotations

import datetime
import json
import sys
from importlib import metadata
from pathlib import Path

from smoketest.errors import SmoketestError
from smoketest.operators.profile import OperatorProfile, load_profile

__all__ = ["from_dispatcher", "main", "of_backend", "of_emulated"]


def of_emulated(profile: Path | None) -> OperatorProfile:
    """The profile the emulated device has: what it was given, unchanged.

    The dispatcher would not tell it: some of the overloads it lists are computed by PyTorch's composites here, and
    kernels are registered for overloads that only lead to a listed one.
    """
    from smoketest.devices.emulated.device import emulate

    return emulate(profile, warn=False).profile


def of_backend() -> OperatorProfile:
    """The profile of the genuine torch-neuronx in this process, read from PyTorch's dispatcher.

    Raises:
        DeviceUnavailable: torch-neuronx is absent or not usable.
    """
    from smoketest.devices.neuron import open_neuron

    open_neuron()
    return from_dispatcher(f"torch-neuronx-{metadata.version('torch-neuronx')}")


def from_dispatcher(name: str) -> OperatorProfile:
    """What is registered for PyTorch's spare backend in this process, as a profile.

    What the dispatcher does not know is taken from the packaged profile: the view whitelist, and what the backend takes
    apart before it lowers.
    """
    import torch

    from smoketest.operators import derive

    native, known = derive.registered(), load_profile()
    return OperatorProfile(
        name=name,
        note=(
            "Exported from the kernels registered in a running Python. Registered is not the same as working. The view "
            f"whitelist, names after recovery, decompositions and known refusals are those of {known.name}."
        ),
        source="PyTorch's dispatcher, key PrivateUse1",
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        grade="EXPORT",
        torch_version=torch.__version__,
        registered_by={op: known.registered_by.get(op, "PrivateUse1") for op in native},
        reaches={op: out for op, out in derive.reaches().items() if op not in native},
        recovered_as={op: short for op, short in known.recovered_as.items() if op in native},
        unimplemented=frozenset(derive.unimplemented(frozenset(native))),
        view_whitelist=known.view_whitelist,
        decompositions=known.decompositions,
        known_unsupported=known.known_unsupported,
    )


def main(kind: str, file: str, profile: str | None = None) -> int:
    """Write the profile of one kind of device to a file; messages go to stderr, the result is the exit code."""
    try:
        made = of_backend() if kind == "neuron" else of_emulated(Path(profile) if profile else None)
    except SmoketestError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    Path(file).write_text(as_text(made), encoding="utf-8")
    return 0


def as_text(profile: OperatorProfile) -> str:
    """The profile as a file: sorted, one entry a line, so that a difference can be read."""
    content = profile.model_dump(by_alias=True, mode="json")
    content |= {key: sorted(content[key]) for key in ("unimplemented", "view_whitelist")}
    return json.dumps(content, indent=0, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
