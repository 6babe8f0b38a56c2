"""The seam between a run and the PyTorch backend it runs on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

from smoketest.operators.profile import OperatorProfile

__all__ = ["Device", "Kind", "neuron_available", "open_device"]

Kind = Literal["emulated", "neuron", "cpu"]


class Device(Protocol):
    """What a run asks of a device.

    Attributes:
        kind: which of the three this is.
        torch_device: what tensors and modules are moved to, ``"neuron"`` or ``"cpu"``.
        profile: the operator profile predictions are made from; None where nothing is predicted.
    """

    @property
    def kind(self) -> Kind: ...  # noqa: D102
    @property
    def torch_device(self) -> str: ...  # noqa: D102
    @property
    def profile(self) -> OperatorProfile | None: ...  # noqa: D102

    def synchronize(self) -> None:
        """Wait until all work given to the device is done."""

    def fallback_names(self) -> list[str] | None:
        """Overloads that ran on the CPU since `clear_tracking`, unordered; None: the device has no tracker."""

    def clear_tracking(self) -> None:
        """Forget the names recorded so far."""

    def continued_past(self) -> list[str]:
        """Overloads the device would have raised on, and the run went on past; sorted."""

    def note(self) -> str:
        """One line about what this device is, for the report."""


def open_device(
    kind: Kind,
    profile_path: Path | None = None,
    warn: bool = True,
    continue_past_errors: bool = False,
    strict_limits: bool = False,
    before_use: Callable[[], None] | None = None,
) -> Device:
    """Make the device usable in this process.

    Args:
        kind: which device.
        profile_path: operator profile of the emulated device; the packaged one when None.
        warn: whether the emulated device warns once per op that falls back.
        continue_past_errors: whether the emulated device computes past ops the real one raises on.
        strict_limits: whether limits act on the emulated device that only a pre-release is known to have.
        before_use: called once the device's backend is there and before its first use: it joins a process group.

    Raises:
        DeviceUnavailable: it cannot be used here; the hint says what to do.
        ProfileError: the profile cannot be read.
    """
    if kind == "cpu":
        from smoketest.devices.cpu import CpuDevice

        return CpuDevice()
    if kind == "neuron":
        from smoketest.devices.neuron import open_neuron

        return open_neuron(before_use)
    from smoketest.devices.emulated.adapter import EmulatedAdapter

    device = EmulatedAdapter.open(
        profile_path, warn=warn, continue_past_errors=continue_past_errors, strict_limits=strict_limits
    )
    if before_use is not None:
        before_use()
    return device


def neuron_available() -> bool:
    """Whether the genuine torch-neuronx is installed in a version this package drives; imports no torch."""
    from smoketest.devices.installed import find_problem

    return find_problem() is None
