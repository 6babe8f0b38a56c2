"""Limits of the backend that are data of the profile: noted by default, acting under strict limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from smoketest.devices.emulated import EmulatedDevice

FINE = 1.0 + 2**-40
"""Not one in float64, one in float32."""


@pytest.fixture
def strict(device: EmulatedDevice) -> Iterator[EmulatedDevice]:
    device.strict_limits = True
    yield device
    device.strict_limits = False


def test_every_limit_of_the_packaged_profile_has_a_source_and_a_grade(device: EmulatedDevice) -> None:
    assert {limit.what: limit.grade for limit in device.profile.limits} == {
        "float64": "PRE",
        "int64": "PRE",
        "memory_format": "PRE",
    }
    assert all(limit.source and limit.effect for limit in device.profile.limits)


def test_float64_is_noted_and_computed_as_on_the_cpu(device: EmulatedDevice) -> None:
    x = torch.tensor([FINE], dtype=torch.float64).to("neuron")
    assert "float64" in [limit.what for limit in device.met_limits]
    assert (x - 1).item() == 2**-40


def test_float64_is_computed_as_float32_under_strict_limits(strict: EmulatedDevice) -> None:
    x = torch.tensor([FINE], dtype=torch.float64).to("neuron")
    assert (x - 1).dtype == torch.float64
    assert (x - 1).item() == 0.0
    assert (x * torch.tensor([1 / 3], dtype=torch.float64).to("neuron")).item() == torch.tensor(1 / 3).item()
    assert x.item() == FINE  # the input keeps what was copied into it


def test_float64_written_in_place_is_narrowed(strict: EmulatedDevice) -> None:
    x = torch.tensor([1.0], dtype=torch.float64).to("neuron")
    x.add_(2**-40)
    assert x.item() == 1.0


def test_float64_without_dimensions_is_left_alone(strict: EmulatedDevice) -> None:
    x = torch.tensor(FINE, dtype=torch.float64).to("neuron")
    y = torch.tensor(1.0, dtype=torch.float64).to("neuron")
    assert x.dim() == 0
    assert (x.reshape(()) - y).dtype == torch.float64


def test_an_op_on_the_cpu_keeps_float64(strict: EmulatedDevice) -> None:
    x = torch.tensor([FINE], dtype=torch.float64).to("neuron")
    assert x.log1p().item() == torch.tensor([FINE], dtype=torch.float64).log1p().item()


def test_int64_wraps_at_32_bits_under_strict_limits_only(device: EmulatedDevice) -> None:
    largest = torch.tensor([2**31 - 1]).to("neuron")
    assert (largest + 1).tolist() == [2**31]
    device.strict_limits = True
    try:
        assert (largest + 1).tolist() == [-(2**31)]
        assert largest.tolist() == [2**31 - 1]
    finally:
        device.strict_limits = False


def test_float32_is_not_touched(strict: EmulatedDevice) -> None:
    x = torch.randn(3, 3)
    torch.testing.assert_close((x.to("neuron") @ x.to("neuron")).cpu(), x @ x, rtol=0, atol=0)


def test_a_memory_format_is_noted_and_refused_under_strict_limits(device: EmulatedDevice) -> None:
    made = torch.empty(1, 2, 3, 4, device="neuron", memory_format=torch.channels_last)
    assert made.is_contiguous(memory_format=torch.channels_last)
    assert "memory_format" in [limit.what for limit in device.met_limits]
    device.strict_limits = True
    try:
        with pytest.raises(
            RuntimeError, match=r"^empty: Neuron tensors only support contiguous or preserve memory format$"
        ):
            torch.empty(1, 2, 3, 4, device="neuron", memory_format=torch.channels_last)
    finally:
        device.strict_limits = False
