"""A kernel that fails: recovered on the CPU, or raised where the backend's strict variable is set."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch

from smoketest.devices.emulated import EmulatedDevice, FallbackWarning
from smoketest.devices.emulated.recovery import STRICT


@pytest.fixture(autouse=True)
def working_again(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(STRICT, raising=False)
    yield
    device.inject_failure(None)


def test_a_failing_kernel_is_recorded_and_computed_on_the_cpu(device: EmulatedDevice) -> None:
    x = torch.ones(2).to("neuron")
    device.inject_failure("aten::mul.Tensor")
    device.clear_op_tracking()
    assert (x * 3).tolist() == [3.0, 3.0]
    assert device.get_fallback_ops() == ["aten::mul.Tensor"]
    assert "aten::mul.Tensor" not in device.get_executed_ops()
    device.inject_failure(None)
    device.clear_op_tracking()
    assert (x * 3).tolist() == [3.0, 3.0]
    assert device.get_fallback_ops() == []


def test_an_op_reached_through_its_out_form_is_named_by_either(device: EmulatedDevice) -> None:
    x = torch.ones(2, dtype=torch.int32).to("neuron")
    device.inject_failure("aten::bitwise_and.Tensor")
    device.clear_op_tracking()
    assert (x & x).tolist() == [1, 1]
    assert device.get_fallback_ops() == ["aten::bitwise_and.Tensor_out"]


def test_a_hand_written_op_is_recorded_under_its_bare_name(device: EmulatedDevice) -> None:
    x = torch.eye(2).to("neuron")
    device.inject_failure("aten::gather")
    device.clear_op_tracking()
    assert x.gather(0, torch.zeros(1, 2, dtype=torch.int64).to("neuron")).tolist() == [[1.0, 0.0]]
    assert device.get_fallback_ops() == ["gather"]


def test_the_observer_is_told_that_it_fell_back(device: EmulatedDevice) -> None:
    x = torch.ones(2).to("neuron")
    seen: list[tuple[str, bool]] = []
    device.inject_failure("aten::mul.Tensor")
    device.observe(lambda name, fell_back: seen.append((name, fell_back)))
    x * x
    assert seen == [("aten::mul.Tensor", True)]


def test_it_warns_in_the_words_of_the_second_path(device: EmulatedDevice) -> None:
    x = torch.ones(2).to("neuron")
    device.inject_failure("aten::mul.Tensor")
    device.warn = True
    with pytest.warns(FallbackWarning, match=r"^Operator 'aten::mul\.Tensor' fell back to CPU$"):
        x * x


def test_the_strict_variable_makes_it_raise_in_the_backends_words(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.ones(5).to("neuron")
    device.inject_failure("aten::mul.Tensor")
    monkeypatch.setenv(STRICT, "1")
    device.clear_op_tracking()
    with pytest.raises(RuntimeError) as raised, caplog.at_level(logging.DEBUG):
        x * x
    assert str(raised.value).startswith(
        "CPU fallback disabled because TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS=1. Operation mul failed to "
        "execute on Neuron (last implementation: ImplementationWrapper). Details: ImplementationWrapper: failure "
        "injected into the emulated kernel. Args: [arg0: Tensor(shape=torch.Size([5]), dtype=torch.float32, "
        "device=neuron:0, dispatch keys: DispatchKeySet(PrivateUse1, "
    )
    assert str(raised.value).endswith("Kwargs: []")
    assert device.get_fallback_ops() == []
    last = caplog.records[-1]
    assert (last.name, last.levelname) == ("root", "ERROR")


def test_the_strict_variable_does_not_stop_an_op_without_a_kernel(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STRICT, "1")
    device.clear_op_tracking()
    assert torch.atan2(torch.ones(1).to("neuron"), torch.ones(1).to("neuron")).item() == pytest.approx(0.7853982)
    assert device.get_fallback_ops() == ["aten::atan2.out"]


def test_the_log_lines_come_once_and_through_the_root_logger(
    device: EmulatedDevice, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.ones(7).to("neuron")
    device.inject_failure("aten::exp")
    with caplog.at_level(logging.DEBUG):
        x.exp()
        x.exp()
    root = [
        (r.levelname, r.getMessage()) for r in caplog.records if r.name == "root" and "operation exp." in r.getMessage()
    ]
    assert len(root) == 1
    assert root[0][0] == "DEBUG"
    assert root[0][1].startswith("No implementation could handle operation exp. Falling back on CPU. Args: [arg0: ")
    assert root[0][1].endswith("Details: ImplementationWrapper: failure injected into the emulated kernel")
    ours = [r.getMessage() for r in caplog.records if r.name == "torch_neuronx.python_ops.torch_mlir.op_impl"]
    assert ours == ["Execution failed: failure injected into the emulated kernel"] * 2


def test_an_op_whose_name_the_recovery_cannot_look_up_raises(device: EmulatedDevice) -> None:
    x, out = torch.ones(2).to("neuron"), torch.empty(1).to("neuron")
    device.inject_failure("aten::gather.out")
    with pytest.raises(NotImplementedError, match=r"^Operation gather\.out is not implemented for Neuron$"):
        torch.gather(x, 0, torch.zeros(1, dtype=torch.int64).to("neuron"), out=out)


def test_backward_recovers_too(device: EmulatedDevice) -> None:
    x = torch.ones(2).to("neuron").requires_grad_()
    device.inject_failure("aten::threshold_backward")
    device.clear_op_tracking()
    x.relu().sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0]
    assert device.get_fallback_ops() == ["aten::threshold_backward"]


@pytest.mark.parametrize(
    ("op", "why"),
    [
        ("aten::atan2", "has no kernel on the device that could fail: it runs on the CPU anyway"),
        ("aten::clone", "has a kernel in C\\+\\+: the backend recovers from failures of Python kernels only"),
    ],
)
def test_what_cannot_fail_so_is_refused(op: str, why: str, device: EmulatedDevice) -> None:
    with pytest.raises(ValueError, match=rf"^{op} {why}$"):
        device.inject_failure(op)
