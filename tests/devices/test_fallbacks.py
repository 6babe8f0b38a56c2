"""Which ops run on the CPU, under which name, and who is told."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import smoketest
from smoketest.devices import emulated
from smoketest.devices.emulated import EmulatedDevice, FallbackWarning
from smoketest.errors import DeviceUnavailable, ProfileError

REPORTED: list[tuple[str, Callable[[Tensor, Tensor], object]]] = [
    # What a Trainium user saw fall back in EquiformerV3, under the names the real tracker printed [USER-B3].
    ("aten::atan2.out", lambda x, i: torch.atan2(x, x)),
    ("aten::acos.out", lambda x, i: torch.acos(x)),
    ("aten::linalg_cross.out", lambda x, i: torch.linalg.cross(x, x)),
    ("aten::sort.values_stable", lambda x, i: torch.sort(x)),
    ("aten::scatter_reduce.two_out", lambda x, i: torch.zeros_like(x).scatter_reduce(0, i, x, "sum")),
    ("aten::index_fill_.int_Scalar", lambda x, i: x.index_fill_(0, i[:, 0], 0.0)),
    ("aten::uniform_", lambda x, i: torch.empty_like(x).uniform_()),
]


@pytest.mark.parametrize(("name", "call"), REPORTED, ids=[name for name, _ in REPORTED])
def test_an_op_reported_from_trainium_is_recorded_under_the_name_reported(
    name: str, call: Callable[[Tensor, Tensor], object], device: EmulatedDevice
) -> None:
    x, i = torch.rand(3, 3).to("neuron"), torch.zeros(3, 3, dtype=torch.int64).to("neuron")
    device.clear_op_tracking()
    call(x, i)
    assert device.get_fallback_ops() == [name]


def test_repeat_interleave_has_a_kernel_since_and_is_not_recorded(device: EmulatedDevice) -> None:
    torch.repeat_interleave(torch.tensor([1, 2]).to("neuron"))
    assert device.get_fallback_ops() == []
    assert "aten::repeat_interleave.Tensor" in device.get_executed_ops()


def test_the_tracker_gives_unique_names_until_it_is_cleared(device: EmulatedDevice) -> None:
    x = torch.rand(3).to("neuron")
    for _ in range(3):
        torch.acos(x)
        torch.atan2(x, x)
    assert sorted(emulated.get_fallback_ops()) == ["aten::acos.out", "aten::atan2.out"]
    assert "aten::_to_copy" in emulated.get_executed_ops()
    emulated.clear_op_tracking()
    assert emulated.get_fallback_ops() == []
    assert emulated.get_executed_ops() == []


def test_executed_names_are_those_of_the_backends_tracker(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = torch.rand(3).to("neuron"), torch.rand(3)
    device.clear_op_tracking()
    x + x
    assert sorted(device.get_executed_ops()) == ["add", "aten::add.Tensor"], "synchronous: the short name too"
    device.clear_op_tracking()
    torch.empty(2, device="neuron").set_(x)
    assert sorted(device.get_executed_ops()) == ["aten::empty", "aten::set_"], "C++: without overload"
    monkeypatch.setenv("NEURON_LAUNCH_BLOCKING", "0")
    device.clear_op_tracking()
    (x + x).clone().copy_(y).cpu()
    assert sorted(set(device.get_executed_ops()) - {"aten::empty_strided"}) == [
        "aten::_to_copy", "aten::add.Tensor", "aten::clone", "aten::copy_", "neuron::copy::cpu_to_neuron",
        "neuron::copy::neuron_to_cpu",
    ]  # fmt: skip
    device.clear_op_tracking()
    torch.acos(x)
    assert sorted(device.get_executed_ops()) == ["aten::_to_copy", "aten::empty"], "a fallback copies"


def test_ops_of_the_backward_thread_and_the_optimizer_are_recorded(device: EmulatedDevice) -> None:
    w = torch.nn.Parameter(torch.rand(3, 3).to("neuron"))
    optimizer = torch.optim.Rprop([w])
    loss = torch.nn.functional.mse_loss(w, torch.zeros_like(w))
    device.clear_op_tracking()
    loss.backward()
    assert device.get_fallback_ops() == ["aten::mse_loss_backward"]
    device.clear_op_tracking()
    optimizer.step()
    assert device.get_executed_ops() != []


def test_an_op_of_the_view_whitelist_is_silent(device: EmulatedDevice) -> None:
    device.warn = True
    x = torch.rand(3, 2).to("neuron")
    warned = "0The operator aten::{} appears to be a view operator, but it has no implementation for the backend"
    with warnings.catch_warnings(record=True) as caught:  # PyTorch's own fallback, which the backend calls, is not
        warnings.simplefilter("always")
        z = torch.view_as_complex(x)
        torch.view_as_real(z)
        torch.view_as_real(z)
    assert [str(w.message).partition(' "neuron:0". View operators')[0] for w in caught] == [
        warned.format("view_as_complex"),
        warned.format("view_as_real"),
    ]
    assert {w.filename for w in caught} == {__file__}
    assert device.get_fallback_ops() == []


def test_an_op_that_falls_back_warns_once_at_the_users_line(device: EmulatedDevice) -> None:
    x = torch.rand(3).to("neuron")
    device.warn = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.acos(x)
        torch.acos(x)
    assert [str(w.message) for w in caught] == ["Operator ' aten::acos.out ' fell back to CPU"]
    assert caught[0].category is FallbackWarning
    assert issubclass(FallbackWarning, UserWarning)
    assert caught[0].filename == __file__


def test_clearing_the_tracker_lets_an_op_warn_again(device: EmulatedDevice) -> None:
    x = torch.rand(3).to("neuron")
    device.warn = True
    with pytest.warns(FallbackWarning):
        torch.acos(x)
    device.clear_op_tracking()
    with pytest.warns(FallbackWarning):
        torch.acos(x)


def test_a_silent_device_does_not_warn(device: EmulatedDevice) -> None:
    assert smoketest.emulate(warn=False) is device
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.acos(torch.rand(3).to("neuron"))
    assert device.get_fallback_ops() == ["aten::acos.out"]


def test_a_filter_that_makes_errors_of_warnings_stops_at_the_fallback(device: EmulatedDevice) -> None:
    device.warn = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FallbackWarning, match=r"aten::acos\.out"):
            torch.acos(torch.rand(3).to("neuron"))


def test_an_observer_sees_every_op_before_it_runs(device: EmulatedDevice) -> None:
    seen: list[tuple[str, bool]] = []
    x = torch.rand(4).to("neuron")
    device.observe(lambda name, fell_back: seen.append((name, fell_back)))
    torch.acos(x.view(2, 2) + x.view(2, 2))
    device.observe(None)
    x.add(x)
    assert [entry for entry in seen if entry[0] not in ("aten::empty_strided", "aten::empty.memory_format")] == [
        ("aten::view", False),
        ("aten::view", False),
        ("aten::add.Tensor", False),
        ("aten::acos.out", True),
    ]


def test_an_observer_sees_the_op_that_raises(device: EmulatedDevice) -> None:
    seen: list[str] = []
    device.observe(lambda name, fell_back: seen.append(name))
    with pytest.raises(RuntimeError):
        torch.mm(torch.rand(2, 3).to("neuron"), torch.rand(2, 3).to("neuron"))
    assert seen[-1] == "aten::mm"


def test_emulating_again_gives_the_same_device(device: EmulatedDevice) -> None:
    assert smoketest.emulate(warn=False) is device


def test_another_profile_is_refused_in_the_same_process(device: EmulatedDevice, tmp_path) -> None:  # type: ignore[no-untyped-def]
    other = device.profile.model_copy(update={"name": "other"})
    path = tmp_path / "other.json"
    path.write_text(other.model_dump_json(by_alias=True))
    with pytest.raises(DeviceUnavailable) as caught:
        smoketest.emulate(str(path))
    assert str(caught.value) == (
        "this process already emulates a device with the profile 'torch-neuronx-prerelease-2026-04', "
        "and cannot change to 'other'\n  hint: start another Python process for the other profile"
    )


def test_a_profile_that_is_not_there_is_one_error(device: EmulatedDevice) -> None:
    with pytest.raises(ProfileError, match=r"nowhere\.json: cannot read this operator profile"):
        smoketest.emulate("nowhere.json")


def test_the_profile_decides_what_falls_back(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """With a list of its own, in a process of its own: atan2 is native, mm is not."""
    path = tmp_path / "mine.json"
    path.write_text(
        '{"name": "mine", "note": "", "source": "", "date": "2026-12", "grade": "EXPORT", "torch_version": "2.13",'
        '"native": {"aten::atan2.out": "cpp", "aten::add.Tensor": "cpp"}}'
    )
    program = (
        "import sys, smoketest, torch; d = smoketest.emulate(sys.argv[1], warn=False);"
        "x = torch.eye(2).to('neuron'); torch.atan2(x, x); x.mm(x); x + x; print(sorted(d.get_fallback_ops()))"
    )
    out = subprocess.run([sys.executable, "-c", program, path], check=True, capture_output=True, text=True).stdout
    assert out == "['aten::mm']\n" or out == "['aten::mm.out']\n"
