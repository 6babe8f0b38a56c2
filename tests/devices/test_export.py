"""A profile read from the dispatcher: what a real backend's registrations give."""

from __future__ import annotations

from smoketest.devices.emulated import EmulatedDevice
from smoketest.devices.export import from_dispatcher
from smoketest.operators.profile import OperatorProfile


def test_the_dispatcher_tells_kernels_and_what_they_reach(device: EmulatedDevice) -> None:
    read = from_dispatcher("read")
    assert read.grade == "EXPORT"
    # What the emulated device leaves to PyTorch's composites has no registration of its own.
    assert {"aten::add.out", "aten::mm", "aten::topk", "aten::sum"} <= read.native
    assert len(device.profile.native - read.native) < 30
    assert read.fallback_name("aten::atan2") == device.profile.fallback_name("aten::atan2") == "aten::atan2.out"
    assert read.fallback_name("aten::normal_") == "aten::normal_"


def test_what_is_exported_can_be_read_again(device: EmulatedDevice) -> None:
    from smoketest.devices.export import as_text

    read = from_dispatcher("read")
    assert OperatorProfile.model_validate_json(as_text(read)) == read
