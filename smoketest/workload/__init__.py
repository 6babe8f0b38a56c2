"""The user's model, batches, loss, optimizer and step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smoketest.config.models import Check
from smoketest.workload.build import Moving, build_workload, unwatched
from smoketest.workload.workload import Workload

if TYPE_CHECKING:
    from smoketest.devices.base import Device
    from smoketest.workload.ranks import Ranks

__all__ = ["Workload", "build"]


def build(
    check: Check, device: Device, moving: Moving = unwatched, ranks: Ranks | None = None, parts: int = 1
) -> Workload:
    """The workload of `check` on `device`; `moving` is entered around the move of the model.

    With `ranks` it is what one of them trains; with `parts` its step divides each batch into so many, as ranks do.

    Raises `UserCodeError` where the user's code does not give one.
    """
    return build_workload(check, device.torch_device, moving, ranks, parts)
