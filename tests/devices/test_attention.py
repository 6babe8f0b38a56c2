"""Scaled dot-product attention takes the device's fused op for 4-D inputs, with the CPU's results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from smoketest.devices.emulated import EmulatedDevice
from smoketest.devices.emulated.attention import BACKWARD, FUSED

SHAPES = {
    "same": ((2, 4, 5, 8), (2, 4, 5, 8)),
    "cross": ((2, 4, 5, 8), (2, 4, 7, 8)),
    "grouped": ((2, 4, 5, 8), (2, 2, 5, 8)),
    "3-D": ((4, 5, 8), (4, 5, 8)),
}
MASKS = {
    "none": lambda rows, columns: None,
    "bool": lambda rows, columns: torch.rand(rows, columns) > 0.3,
    "a row of false": lambda rows, columns: torch.arange(rows).unsqueeze(1).expand(rows, columns) > 0,
    "float": lambda rows, columns: torch.randn(rows, columns),
}


def attended(where: str, shapes: str, mask: str, grad_of_mask: bool = False, **how: Any) -> list[Tensor]:
    """Result and gradients."""
    torch.manual_seed(0)
    queries, keys = SHAPES[shapes]
    inputs = [torch.randn(shape).to(where).requires_grad_() for shape in (queries, keys, keys)]
    drawn = MASKS[mask](queries[-2], keys[-2])
    moved = None if drawn is None else drawn.to(where).requires_grad_(grad_of_mask)
    out = scaled_dot_product_attention(*inputs, attn_mask=moved, enable_gqa=shapes == "grouped", **how)
    grads = torch.autograd.grad(out.square().sum(), [*inputs, *([moved] if grad_of_mask and moved is not None else [])])
    return [tensor.detach().cpu() for tensor in (out, *grads)]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("how", [{}, {"dropout_p": 0.5}, {"scale": 0.3}], ids=["plain", "dropout", "scale"])
def test_result_and_gradients_are_the_cpus(shapes: str, mask: str, how: dict[str, Any], device: EmulatedDevice) -> None:
    cpu, neuron = attended("cpu", shapes, mask, **how), attended("neuron", shapes, mask, **how)
    torch.testing.assert_close(neuron, cpu, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
def test_causal_attention_is_the_cpus(dropout_p: float, device: EmulatedDevice) -> None:
    cpu, neuron = (attended(d, "same", "none", is_causal=True, dropout_p=dropout_p) for d in ("cpu", "neuron"))
    torch.testing.assert_close(neuron, cpu, rtol=1e-4, atol=1e-5)


def test_a_mask_can_be_learned(device: EmulatedDevice) -> None:
    cpu, neuron = (attended(where, "same", "float", grad_of_mask=True) for where in ("cpu", "neuron"))
    assert len(neuron) == 5
    torch.testing.assert_close(neuron, cpu, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shapes", "is_fused"), [("same", True), ("cross", True), ("grouped", True), ("3-D", False)])
def test_the_fused_op_is_reached_for_4_d_inputs_only(shapes: str, is_fused: bool, device: EmulatedDevice) -> None:
    device.clear_op_tracking()
    attended("neuron", shapes, "bool")
    assert ({FUSED, BACKWARD} <= set(device.get_executed_ops())) is is_fused
    assert device.get_fallback_ops() == []


def test_the_fused_op_is_reached_in_inference_mode(device: EmulatedDevice) -> None:
    with torch.inference_mode():
        x = torch.randn(1, 2, 3, 4).to("neuron")
        device.clear_op_tracking()
        scaled_dot_product_attention(x, x, x)
    assert set(device.get_executed_ops()) == {FUSED, FUSED.removeprefix("aten::")}


def test_a_dispatch_mode_sees_the_fused_op(device: EmulatedDevice) -> None:
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.name())
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    x = torch.randn(1, 2, 3, 4).to("neuron").requires_grad_()
    with Mode():
        scaled_dot_product_attention(x, x, x).sum().backward()
    assert seen.count(FUSED) == seen.count(BACKWARD) == 1


def test_what_pytorch_refuses_is_refused_in_its_words(device: EmulatedDevice) -> None:
    x = torch.randn(1, 2, 3, 4).to("neuron")
    with pytest.raises(RuntimeError, match="Expected query, key, and value to have the same dtype"):
        scaled_dot_product_attention(x, x, x.half())
    with pytest.raises(RuntimeError, match="Explicit attn_mask should not be set when is_causal=True"):
        scaled_dot_product_attention(x, x, x, attn_mask=torch.zeros(3, 3).to("neuron"), is_causal=True)


def test_attention_on_the_cpu_is_untouched(device: EmulatedDevice) -> None:
    x = torch.randn(1, 2, 3, 4)
    device.clear_op_tracking()
    scaled_dot_product_attention(x, x, x)
    assert device.get_executed_ops() == []
