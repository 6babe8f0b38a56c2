"""What nobody looks at, since a witness is switched off or has nothing to look with."""

from __future__ import annotations

from collections.abc import Iterator

from smoketest.config.models import Witnesses
from smoketest.devices.base import Device
from smoketest.witness.compat import registry_is_readable

__all__ = ["not_heard"]

_TOLD_BY = {
    "tracker": "fallbacks that only the device's own list of ops tells of",
    "registry": "whether an op that ran on the CPU has a kernel on the device",
    "dispatch": "lines, modules, counts and host synchronisation",
    "kernels": "exact counts of what one call of a composite reaches",
    "warnings": "fallbacks that only warnings, log records and what the backend prints tell of",
    "copies": "copies to the host inside native ops",
    "strict": "why ops that have a kernel ran on the CPU",
}
_NOTHING_TO_TELL = {("kernels", "neuron"), ("registry", "emulated"), ("copies", "emulated")}


def not_heard(device: Device, heard: Witnesses) -> Iterator[tuple[str, str]]:
    """(what, why) of all that the eager run does not tell since nobody looks; on plain CPU there is nothing to see."""
    if device.kind == "cpu":
        return
    for name, what in _TOLD_BY.items():
        if not getattr(heard, name) and (name, device.kind) not in _NOTHING_TO_TELL:
            yield what, f"the witness is switched off in the check (witnesses.{name})"
    if device.kind != "neuron":
        return
    if heard.registry and not registry_is_readable():
        yield _TOLD_BY["registry"], "this PyTorch does not let its table of kernels be read"
    if heard.copies and heard.dispatch:
        yield (
            "copies to the host inside native ops that neither PyTorch dispatches nor Python makes",
            "no witness sees what the backend's C++ asks of the runtime itself",
        )
