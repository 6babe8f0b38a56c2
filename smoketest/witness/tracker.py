"""The second witness: the device's own record of what ran on the CPU."""

from __future__ import annotations

from typing import Protocol

__all__ = ["TrackedDevice", "Tracker"]


class TrackedDevice(Protocol):
    """The part of a device this witness needs (see `smoketest.devices.base.Device`)."""

    def synchronize(self) -> None:
        """Wait until all work handed to the device is done."""

    def fallback_names(self) -> list[str] | None:
        """Overloads that ran on the CPU since the last clearing, unique and unordered; None without a tracker."""

    def clear_tracking(self) -> None:
        """Forget the names."""


class Tracker:
    """Reads the names and clears them, so that each belongs to what ran since the last reading.

    The device works asynchronously and enters names late ([PRE] NeuronOpTracking.cpp and the project's own test
    helper), so it is waited for before reading and before clearing.

    It sees every op that the backend records, of any thread and phase, by name: no count, order, line or shape. Host
    work inside native ops it does not see, nor the views that the backend does not record ([PRE] internals 1.4).

    Args:
        device: whose names to read.
        on: whether to read them at all.

    Attributes:
        exists: whether there is anything to read.
    """

    def __init__(self, device: TrackedDevice, on: bool = True) -> None:
        self._device = device
        self.exists = on and device.fallback_names() is not None

    def take(self) -> frozenset[str]:
        """The names recorded since the last call; empty where the device has no tracker."""
        if not self.exists:
            return frozenset()
        self._device.synchronize()
        names = self._device.fallback_names()
        if not names:
            return frozenset()
        self._device.clear_tracking()
        return frozenset(names)
