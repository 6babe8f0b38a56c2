"""Tests here share one emulated device: PyTorch's spare backend can be renamed once per process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import smoketest
from smoketest.devices.emulated import EmulatedDevice


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    """The device with an empty tracker, silent, stopping at errors, whatever the test before did to it."""
    torch.set_num_threads(1)
    device = smoketest.emulate(warn=False)
    _reset(device)
    torch.manual_seed(0)
    yield device
    _reset(device)


def _reset(device: EmulatedDevice) -> None:
    device.warn = False
    device.continue_past_errors = False
    device.strict_limits = False
    device.observe(None)
    device.clear_op_tracking()
