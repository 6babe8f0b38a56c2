"""Tests here share one emulated device: PyTorch's spare backend can be renamed once per process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import smoketest
from smoketest.devices.emulated import EmulatedDevice


@pytest.fixture(scope="session")
def process_device() -> EmulatedDevice:
    torch.set_num_threads(1)
    return smoketest.emulate(warn=False)


@pytest.fixture
def device(process_device: EmulatedDevice) -> Iterator[EmulatedDevice]:
    """The device with an empty tracker, silent, stopping at errors, whatever the test before did to it."""
    process_device.clear_op_tracking()
    torch.manual_seed(0)
    yield process_device
    process_device.warn = False
    process_device.continue_past_errors = False
    process_device.observe(None)
    process_device.clear_op_tracking()
