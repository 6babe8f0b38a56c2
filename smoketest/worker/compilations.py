"""Whether a step compiled something, by the device's own counter; the supervisor looks for compilers as well."""

from __future__ import annotations

from smoketest.devices.base import Device
from smoketest.devices.neuron import NeuronDevice

__all__ = ["compilations", "has_compiled"]


def compilations(device: Device) -> int | None:
    """How often the device compiled in this process; None where it does not count, or compiles nothing."""
    return device.compilations() if isinstance(device, NeuronDevice) else None


def has_compiled(device: Device, before: int | None) -> bool | None:
    """Whether it compiled since it had counted `before`; None where that cannot be told."""
    now = compilations(device)
    return None if now is None or before is None else now > before
