"""Ops that the CPU has no kernel for, computed from others.

`SUBSTITUTES` are those without a kernel on the device too: it raises on them ([PRE] internals 1.6, for
``_thnn_fused_lstm_cell``), and a run may go on past them. `KERNELS` are those it has a kernel for. Each function takes
and returns what the op's schema says, in CPU tensors; gates are laid out as PyTorch documents them for nn.LSTM (input,
forget, cell, output) and nn.GRU (reset, update, new).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["KERNELS", "SUBSTITUTES"]


def _gates(pieces: int, *terms: Tensor | None) -> tuple[Tensor, ...]:
    given = [term for term in terms if term is not None]
    total = given[0]
    for term in given[1:]:
        total = total + term
    return total.chunk(pieces, 1)


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gates [batch, 4 hidden] and cell state [batch, hidden] to new hidden and cell state, and the activated gates."""
    i, f, g, o = _gates(4, input_gates, hidden_gates, input_bias, hidden_bias)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of the gates [batch, 4 hidden], of the cell state, and of either bias [4 hidden]."""
    i, f, g, o = workspace.chunk(4, 1)
    grad_h = torch.zeros_like(cy) if grad_hy is None else grad_hy
    grad_c = torch.zeros_like(cy) if grad_cy is None else grad_cy
    squashed = cy.tanh()
    grad_c = grad_c + grad_h * o * (1 - squashed * squashed)
    grad_gates = torch.cat(
        [
            grad_c * g * i * (1 - i),
            grad_c * cx * f * (1 - f),
            grad_c * i * (1 - g * g),
            grad_h * squashed * o * (1 - o),
        ],
        1,
    )
    return grad_gates, grad_c * f, grad_gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gates [batch, 3 hidden] and hidden state [batch, hidden] to the new hidden state, and what backward needs."""
    input_r, input_z, input_n = _gates(3, input_gates, input_bias)
    hidden_r, hidden_z, hidden_n = _gates(3, hidden_gates, hidden_bias)
    r, z = (input_r + hidden_r).sigmoid(), (input_z + hidden_z).sigmoid()
    n = (input_n + r * hidden_n).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, hidden_n], 1)


def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of input and hidden gates [batch, 3 hidden], of the hidden state, and of the biases [3 hidden]."""
    r, z, n, hx, hidden_n = workspace.chunk(5, 1)
    grad_z = grad_hy * (hx - n) * z * (1 - z)
    grad_n = grad_hy * (1 - z) * (1 - n * n)
    grad_r = grad_n * hidden_n * r * (1 - r)
    grad_input = torch.cat([grad_r, grad_z, grad_n], 1)
    grad_hidden = torch.cat([grad_r, grad_z, grad_n * r], 1)
    biases = (grad_input.sum(0), grad_hidden.sum(0)) if has_bias else (None, None)
    return grad_input, grad_hidden, grad_hy * z, *biases


def linear_backward(
    x: Tensor, grad: Tensor, weight: Tensor, output_mask: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of x [*, in], weight [out, in] and bias [out], from that of the result [*, out]."""
    count = math.prod(x.shape[:-1])  # not -1: either may have no elements
    rows, out = x.reshape(count, x.shape[-1]), grad.reshape(count, grad.shape[-1])
    return (
        (out @ weight.conj()).reshape(x.shape) if output_mask[0] else None,
        out.t() @ rows.conj() if output_mask[1] else None,
        out.sum(0) if output_mask[2] else None,
    )


def rms_norm_backward(
    grad: Tensor, x: Tensor, normalized_shape: list[int], rstd: Tensor, weight: Tensor | None, output_mask: list[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x [*, *normalized_shape] and weight [*normalized_shape]; 16-bit dtypes are computed in float32."""
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    wide = torch.promote_types(x.dtype, torch.float32)
    grad, normed = grad.to(wide), x.to(wide) * rstd.to(wide)
    scaled = grad if weight is None else grad * weight.to(wide)
    grad_x = rstd.to(wide) * (scaled - normed * (scaled * normed).mean(dims, keepdim=True))
    grad_weight = None
    if weight is not None and output_mask[1]:
        grad_weight = (grad * normed).sum_to_size(weight.shape).to(weight.dtype)
    return grad_x.to(x.dtype) if output_mask[0] else None, grad_weight


KERNELS: dict[str, Callable[..., Any]] = {
    "aten::linear_backward": linear_backward,
    "aten::_fused_rms_norm_backward": rms_norm_backward,
}
"""What the device has a kernel for and the CPU has not, by overload name."""

SUBSTITUTES: dict[str, Callable[..., Any]] = {
    "aten::_thnn_fused_lstm_cell": lstm_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "aten::_thnn_fused_gru_cell": gru_cell,
    "aten::_thnn_fused_gru_cell_backward": gru_cell_backward,
}
"""What can be computed another way, by overload name."""
