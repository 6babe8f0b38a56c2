"""Limits of the backend that are data of the profile: noted by default, acting under strict limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from smoketest.devices.emulated import EmulatedDevice

FINE = 1.0 + 2**-40
"""Not one in float64, one in float32."""


@pytest.fixture
def strict(device: EmulatedDevice) -> Iterator[EmulatedDevice]:
    device.strict_limits = True
    yield device
    device.strict_limits = False


def test_every_limit_of_the_packaged_profile_has_a_source_and_a_grade(device: EmulatedDevice) -> None:
    assert {limit.what: limit.grade for limit in device.profile.limits} == dict.fromkeys(
        (
            "float64",
            "int64",
            "memory_format",
            "complex",
            "copy_layout",
            "copy_size",
            "copy_destination",
            "fallback_view",
            "fork",
            "forward_ad",
        ),
        "PRE",
    )
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


@pytest.mark.parametrize(
    ("call", "op"),
    [
        (lambda x: x.contiguous(memory_format=torch.channels_last), "clone"),
        (lambda x: x.clone(memory_format=torch.channels_last), "clone"),
        (lambda x: x.to(torch.bfloat16, memory_format=torch.channels_last), "_to_copy"),
        (lambda x: torch.empty_like(x, memory_format=torch.channels_last), "empty"),
    ],
)
def test_every_way_to_a_memory_format_is_refused_under_strict_limits(
    call: Callable[[Tensor], Tensor], op: str, strict: EmulatedDevice
) -> None:
    x = torch.zeros(1, 2, 3, 4).to("neuron")
    with pytest.raises(RuntimeError, match=rf"^{op}: Neuron tensors only support contiguous or preserve memory format"):
        call(x)


COPIES: dict[str, tuple[Callable[[], object], str]] = {
    "copy_layout": (
        lambda: torch.zeros(2, 3, device="neuron").copy_(torch.ones(3, 2, device="neuron").t()),
        "Neuron->Neuron copy with layout change is not supported yet. Please make tensors contiguous first.",
    ),
    "copy_size": (
        lambda: torch.zeros(2, 3, device="neuron").copy_(torch.ones(3, device="neuron")),
        "Neuron->Neuron copy with size mismatch is not supported",
    ),
    "copy_destination": (
        lambda: torch.zeros(3, 2, device="neuron").t().copy_(torch.ones(2, 3)),
        "Destination Neuron tensor must be contiguous",
    ),
}


@pytest.mark.parametrize("what", COPIES)
def test_a_copy_the_backend_refuses_is_noted_and_refused_under_strict_limits(what: str, device: EmulatedDevice) -> None:
    copy, text = COPIES[what]
    assert torch.equal(copy().cpu(), torch.ones(2, 3))  # type: ignore[attr-defined]
    assert what in [limit.what for limit in device.met_limits]
    device.strict_limits = True
    with pytest.raises(RuntimeError) as caught:
        copy()
    assert str(caught.value) == text


def test_copies_that_keep_the_layout_are_taken_under_strict_limits(strict: EmulatedDevice) -> None:
    x = torch.arange(6.0).view(2, 3).to("neuron")
    torch.zeros(2, 3).to("neuron").copy_(x)
    x.copy_(torch.ones(2, 3))
    assert x.t().contiguous().tolist() == [[1, 1], [1, 1], [1, 1]]
    assert x.t().cpu().tolist() == [[1, 1], [1, 1], [1, 1]]


def test_complex_is_noted_and_refused_by_kernels_under_strict_limits(device: EmulatedDevice) -> None:
    z = torch.polar(torch.ones(2).to("neuron"), torch.zeros(2).to("neuron"))
    assert (z * z).tolist() == [1, 1]
    assert "complex" in [limit.what for limit in device.met_limits]
    device.strict_limits = True
    with pytest.raises(RuntimeError, match=r"^aten::mul\.Tensor: complex dtypes are not supported natively on Neuron$"):
        z * z
    assert z.clone().cpu().tolist() == [1, 1], "storage and copies work"


def test_a_float64_out_of_other_inputs_is_refused_under_strict_limits(strict: EmulatedDevice) -> None:
    x, out = torch.ones(2).to("neuron"), torch.empty(2, dtype=torch.float64).to("neuron")
    with pytest.raises(TypeError, match=r"^Output tensor has dtype float64 which is not supported on Neuron$"):
        torch.add(x, x, out=out)
    wide = torch.ones(2, dtype=torch.float64).to("neuron")
    assert torch.add(wide, wide, out=out).tolist() == [2, 2]


def test_a_view_made_on_the_cpu_has_memory_of_its_own_under_strict_limits(device: EmulatedDevice) -> None:
    z = torch.view_as_complex(torch.zeros(2, 2)).to("neuron")
    torch.view_as_real(z).add_(1)
    assert z.tolist() == [1 + 1j, 1 + 1j]
    assert "fallback_view" in [limit.what for limit in device.met_limits]
    device.strict_limits = True
    torch.view_as_real(z).add_(1)
    assert z.tolist() == [1 + 1j, 1 + 1j]


class Moves(torch.utils.data.Dataset[float]):
    """Each item visits the device."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> float:
        return torch.full((1,), float(index)).to("neuron").item()


def test_a_forked_data_loader_worker_is_noted_and_refused_under_strict_limits(device: EmulatedDevice) -> None:
    loader = torch.utils.data.DataLoader(Moves(), num_workers=1, multiprocessing_context="fork")
    assert [batch.tolist() for batch in loader] == [[0.0], [1.0]]
    assert "fork" in [limit.what for limit in device.met_limits]
    device.strict_limits = True
    with pytest.raises(RuntimeError, match=r"Cannot re-initialize Neuron runtime in forked subprocess\. To use Neuron"):
        list(loader)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own use of it
def test_forward_mode_differentiation_is_noted_and_refused_under_strict_limits(device: EmulatedDevice) -> None:
    x = torch.ones(2).to("neuron")
    torch.testing.assert_close(torch.func.jvp(torch.sin, (x,), (x,))[1].cpu(), torch.ones(2).cos())
    assert "forward_ad" in [limit.what for limit in device.met_limits]
    device.strict_limits = True
    with pytest.raises(NotImplementedError, match=r"^neuron: forward-mode automatic differentiation is not there"):
        torch.func.jvp(torch.sin, (x,), (x,))
    assert torch.func.jvp(torch.sin, (torch.zeros(1),), (torch.ones(1),))[1].item() == 1


def test_what_is_met_before_strict_limits_act_stays_known(device: EmulatedDevice) -> None:
    torch.zeros(1, dtype=torch.float64).to("neuron")
    device.strict_limits = True
    assert [device.acts(limit) for limit in device.met_limits if limit.what == "float64"] == [True]
