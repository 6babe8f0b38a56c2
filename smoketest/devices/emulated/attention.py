# mypy: allow-untyped-calls
"""Scaled dot-product attention as the device takes it: the fused op of the profile, for 4-D inputs.

PyTorch asks a C++ stub which implementation a backend wants, and without one takes the math path. The backend's stub
chooses ``_scaled_dot_product_fused_attention_overrideable`` for 4-D query, key and value, and the math path otherwise
([PRE] ``_fused_sdp_choice_stub``, internals 1.3). Here ``scaled_dot_product_attention`` itself is registered for the
device and makes that choice; the fused op is computed by the CPU's fused kernel where PyTorch would choose it on the
CPU, and else by the formula.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from smoketest.devices.emulated.crossing import leave, same_device, to_cpu

__all__ = ["BACKWARD", "FUSED", "attention", "fused", "fused_backward"]

FUSED = "aten::_scaled_dot_product_fused_attention_overrideable"
BACKWARD = f"{FUSED}_backward"

_aten = torch.ops.aten
_FLASH = 1  # SDPBackend.FLASH_ATTENTION, what PyTorch calls the CPU's fused kernel
_NO_INTEGERS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``aten::scaled_dot_product_attention`` above autograd: which op computes it, and nothing more.

    What PyTorch's own function refuses is left to it, and so are inputs that are not 4-D.
    """
    inputs = (query, key, value)
    plain = all(x.dim() == 4 and x.device == query.device and x.dtype == query.dtype for x in inputs)
    heads = key.shape[1:2] == value.shape[1:2] and (enable_gqa or key.shape[1:2] == query.shape[1:2])
    if not plain or not heads or query.dtype not in _NO_INTEGERS or (is_causal and attn_mask is not None):
        stock: Tensor = _aten.scaled_dot_product_attention.default.decompose(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        return stock
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        never = torch.scalar_tensor(-math.inf, dtype=query.dtype, device=attn_mask.device)
        attn_mask = torch.where(attn_mask, 0.0, never)
    out: Tensor = _aten._scaled_dot_product_fused_attention_overrideable.default(
        query, key, value, attn_mask, dropout_p, is_causal, False, scale=scale
    )[0]
    return out


@dataclass
class _Attention:
    """One call, on CPU aliases: ``query`` (B, H, L, E), ``key`` (B, H', S, E), ``value`` (B, H', S, V)."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    dropout: float
    causal: bool
    scale: float | None

    @property
    def takes_flash(self) -> bool:
        """Whether PyTorch's CPU backend would take its fused kernel for this call."""
        grouped = self.query.shape[1] != self.key.shape[1]
        chosen = torch._fused_sdp_choice(
            self.query, self.key, self.value, self.bias, self.dropout, self.causal, scale=self.scale, enable_gqa=grouped
        )
        return chosen == _FLASH and not grouped

    def in_float(self) -> _Attention:
        """The call in float32 where its dtype is narrower: the math path computes so."""
        query, key, value, bias = (
            x.float() if x is not None and x.itemsize == 2 else x for x in (self.query, self.key, self.value, self.bias)
        )
        assert query is not None
        assert key is not None
        assert value is not None
        return replace(self, query=query, key=key, value=value, bias=bias)

    @property
    def factor(self) -> float:
        return 1 / math.sqrt(self.query.shape[-1]) if self.scale is None else self.scale

    def expanded(self, x: Tensor) -> Tensor:
        """Keys or values with one head for each head of the queries."""
        return x.repeat_interleave(self.query.shape[1] // x.shape[1], 1)

    def gathered(self, grad: Tensor, like: Tensor) -> Tensor:
        """The gradient of what `expanded` made of ``like``."""
        summed: Tensor = grad.unflatten(1, (like.shape[1], -1)).sum(2)
        return summed.to(like.dtype)

    def scores(self) -> Tensor:
        """(B, H, L, S)"""
        scores = (self.query * self.factor) @ self.expanded(self.key).transpose(-2, -1)
        if self.causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~seen, -math.inf)
        return scores if self.bias is None else scores + self.bias

    def weights(self, scores: Tensor) -> Tensor:
        """Softmax over the keys; a query that sees none of them attends to nothing."""
        return scores.softmax(-1).masked_fill(scores.amax(-1, keepdim=True) == -math.inf, 0.0)

    def kept(self, weights: Tensor) -> Tensor:
        """What dropout multiplies the weights with; draws from the CPU's generator as PyTorch's math path does."""
        return torch.dropout(torch.ones_like(weights), self.dropout, True)


def _enter(query: Any, key: Any, value: Any, bias: Any, dropout: float, causal: bool, scale: Any) -> _Attention:
    query, key, value, bias = (
        same_device(to_cpu, f"arg{index}", FUSED)(x).detach() if isinstance(x, Tensor) else None
        for index, x in enumerate((query, key, value, bias))
    )
    return _Attention(query, key, value, bias, dropout, causal, scale)


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Kernel of ``aten::_scaled_dot_product_fused_attention_overrideable``.

    In the place of a random seed it returns the state the generator had before dropout, so that backward draws the same
    mask.
    """
    call = _enter(query, key, value, attn_bias, dropout_p, is_causal, scale)
    state = torch.get_rng_state() if dropout_p else torch.zeros((), dtype=torch.int64)
    if call.takes_flash:
        out, logsumexp = _aten._scaled_dot_product_flash_attention_for_cpu(
            call.query, call.key, call.value, 0.0, is_causal, attn_mask=call.bias, scale=scale
        )
    else:
        call = call.in_float()
        scores = call.scores()
        logsumexp, weights = scores.logsumexp(-1), call.weights(scores)
        if dropout_p:
            weights = weights * call.kept(weights)
        out = (weights @ call.expanded(call.value)).to(query.dtype)
    lengths = query.shape[-2], key.shape[-2]
    nothing = torch.empty(0, dtype=torch.int64)
    mask = torch.empty(0, dtype=query.dtype)
    results = (out, logsumexp, nothing, nothing, *lengths, state, torch.zeros((), dtype=torch.int64), mask)
    return tuple(leave(result) for result in results)


def fused_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    grad_input_mask: list[bool],
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Kernel of ``aten::_scaled_dot_product_fused_attention_overrideable_backward``."""
    call, grad = _enter(query, key, value, attn_bias, dropout_p, is_causal, scale), to_cpu(grad_out).detach()
    if call.takes_flash and not grad_input_mask[3]:
        grads = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, call.query, call.key, call.value, to_cpu(out).detach(), to_cpu(logsumexp).detach(), 0.0, is_causal,
            attn_mask=call.bias, scale=scale,
        )  # fmt: skip
        return (*(leave(grad) for grad in grads), None)
    call, grad = call.in_float(), grad.float() if grad.itemsize == 2 else grad
    weights = call.weights(call.scores())
    kept = _kept_again(call, weights, to_cpu(philox_seed)) if dropout_p else None
    grad_value = (weights if kept is None else weights * kept).transpose(-2, -1) @ grad
    grad_weights = grad @ call.expanded(call.value).transpose(-2, -1)
    if kept is not None:
        grad_weights = grad_weights * kept
    grad_scores = weights * (grad_weights - (grad_weights * weights).sum(-1, keepdim=True))
    grad_query = grad_scores @ call.expanded(call.key) * call.factor
    grad_key = grad_scores.transpose(-2, -1) @ call.query * call.factor
    grad_bias = grad_scores.sum_to_size(call.bias.shape) if call.bias is not None and grad_input_mask[3] else None
    grads = (grad_query, call.gathered(grad_key, call.key), call.gathered(grad_value, call.value), grad_bias)
    return tuple(None if grad is None else leave(grad.to(query.dtype)) for grad in grads)


def _kept_again(call: _Attention, weights: Tensor, state: Tensor) -> Tensor:
    now = torch.get_rng_state()
    torch.set_rng_state(state)
    kept = call.kept(weights)
    torch.set_rng_state(now)
    return kept
