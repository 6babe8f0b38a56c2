"""Kernels made to compute wrongly, for tests of what finds them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from smoketest.devices.emulated import EmulatedDevice


@pytest.fixture(autouse=True)
def right_again(device: EmulatedDevice) -> Iterator[None]:
    yield
    device.inject_failure(None)


def test_a_kernel_can_be_one_percent_off_and_nobody_is_told(device: EmulatedDevice) -> None:
    x = torch.ones(2, device="neuron")
    device.inject_fault("aten::mul.Tensor", "off_by_one_percent")
    device.clear_op_tracking()
    assert (x * 3).tolist() == pytest.approx([3.03, 3.03])
    assert device.get_fallback_ops() == []
    assert "aten::mul.Tensor" in device.get_executed_ops()
    device.inject_failure(None)
    assert (x * 3).tolist() == [3.0, 3.0]


def test_a_kernel_can_ignore_strides(device: EmulatedDevice) -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="neuron")
    device.inject_fault("aten::exp", "ignores_strides")
    assert x.t().exp().log().round().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert x.exp().log().round().tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_kernel_can_leave_what_was_in_memory_and_draws_nothing(device: EmulatedDevice) -> None:
    x = torch.ones(64, device="neuron")
    device.inject_fault("aten::exp", "uninitialised")
    state = torch.get_rng_state()
    assert not torch.equal(x.exp().cpu(), torch.ones(64).exp())
    assert torch.equal(torch.get_rng_state(), state)


def test_only_a_kernel_of_the_device_can_be_wrong(device: EmulatedDevice) -> None:
    with pytest.raises(ValueError, match="has no kernel on the device that could be wrong"):
        device.inject_fault("aten::atan2.out", "off_by_one_percent")
    with pytest.raises(KeyError):
        device.inject_fault("aten::exp", "tired")
