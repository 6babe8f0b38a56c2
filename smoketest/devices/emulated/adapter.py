"""The emulated device behind the seam of `smoketest.devices.base`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from smoketest.devices.emulated.device import EmulatedDevice, emulate
from smoketest.operators.profile import Limit, OperatorProfile

__all__ = ["EmulatedAdapter"]


@dataclass(frozen=True)
class EmulatedAdapter:
    """What a run asks of a device, answered by the emulated one."""

    device: EmulatedDevice
    kind: Literal["emulated"] = "emulated"
    torch_device: str = EmulatedDevice.name

    @classmethod
    def open(
        cls, profile: Path | None, *, warn: bool, continue_past_errors: bool, strict_limits: bool
    ) -> EmulatedAdapter:
        """Give this process the device; see `emulate` for what is raised."""
        device = emulate(profile, warn=warn)
        device.continue_past_errors = continue_past_errors
        device.strict_limits = strict_limits
        return cls(device)

    @property
    def profile(self) -> OperatorProfile:
        """The profile the device was made from."""
        return self.device.profile

    def synchronize(self) -> None:
        """Return: every op has finished when it returns."""

    def fallback_names(self) -> list[str]:
        """Names the tracker holds."""
        return self.device.get_fallback_ops()

    def clear_tracking(self) -> None:
        """Empty the tracker."""
        self.device.clear_op_tracking()

    def continued_past(self) -> list[str]:
        """Overloads computed by a substitute."""
        return self.device.continued_past

    def limits_let_past(self) -> list[Limit]:
        """Limits of the profile that were met and did not act."""
        return [limit for limit in self.device.met_limits if not self.device.acts(limit)]

    def note(self) -> str:
        """What this device is."""
        profile = self.profile
        return (
            f"emulated on the CPU with the operator list {profile.name} "
            f"({profile.grade}, {profile.date}, torch {profile.torch_version}); a prediction, nothing ran on Trainium"
        )
