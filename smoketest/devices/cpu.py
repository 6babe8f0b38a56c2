"""Plain CPU: the reference a device is compared with."""

from __future__ import annotations

from typing import Literal

from smoketest.operators.profile import OperatorProfile

__all__ = ["CpuDevice"]


class CpuDevice:
    """PyTorch's CPU backend; nothing falls back and nothing is predicted."""

    kind: Literal["cpu"] = "cpu"
    torch_device = "cpu"
    profile: OperatorProfile | None = None

    def synchronize(self) -> None:
        """Return: CPU ops are done when they return."""

    def fallback_names(self) -> list[str] | None:
        """None: there is no tracker."""
        return None

    def clear_tracking(self) -> None:
        """Nothing to forget."""

    def continued_past(self) -> list[str]:
        """Nothing: an op that raises on the CPU raises."""
        return []

    def note(self) -> str:
        """What this device is."""
        return "plain CPU, the reference: nothing can fall back here"
