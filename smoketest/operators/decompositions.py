"""What torch.compile on the Neuron backend replaces by simpler ops before it lowers a graph.

The *names* are data of the operator profile ([PRE] neuron_dynamo_backend/decompositions.py, read in April 2026): 42
are PyTorch's own decompositions, about 20 are the backend's. Of the latter only the names are known here; the functions
below compute what the op means, and each is tested against the eager op. They need not be the backend's formulas, only
made of ops that lower where its own do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from smoketest.operators.compat import stock_decompositions
from smoketest.operators.profile import load_profile

__all__ = ["OWN", "decomposition_table", "lowering_equivalents"]

Decomposition = Callable[..., Any]

OWN: dict[str, Decomposition] = {}
"""The backend's own decompositions, by overload name, as written here."""

_EQUIVALENT: dict[str, Decomposition] = {}


def decomposition_table(names: Iterable[str] | None = None) -> dict[OpOverload, Decomposition]:
    """Decompositions that torch.compile on the backend applies.

    Args:
        names: overload names, such as ``aten::split.Tensor`` (`OperatorProfile.decompositions`); the default is the
            packaged profile's. A name that this PyTorch does not have, or has no decomposition of, is left out.
    """
    wanted = load_profile(None).decompositions if names is None else names
    decompositions = stock_decompositions()
    table: dict[OpOverload, Decomposition] = {}
    for name in wanted:
        op = _overload(name)
        if op is None:
            continue
        function = OWN.get(name) or decompositions.get(op)
        if function is not None:
            table[op] = function
    return table


def lowering_equivalents() -> dict[OpOverload, Decomposition]:
    """Other ways to write ops that models known to train on the device use, and public torch-mlir refuses or dies of.

    Not what the backend does under torch.compile: only used to lower such an op a second time, so that a gap of the
    public compiler is not taken for one of the device. Calibrated on transformers' GPT-2, BERT, Llama, ViT and ResNet.
    """
    return {op: function for name, function in _EQUIVALENT.items() if (op := _overload(name)) is not None}


def _overload(name: str) -> OpOverload | None:
    namespace, _, rest = name.partition("::")
    base, _, kind = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    found = getattr(packet, kind or "default", None)
    return found if isinstance(found, OpOverload) else None


def _own(*names: str) -> Callable[[Decomposition], Decomposition]:
    def register(function: Decomposition) -> Decomposition:
        for name in names:
            OWN[name] = function
        return function

    return register


def _equivalent(*names: str) -> Callable[[Decomposition], Decomposition]:
    def register(function: Decomposition) -> Decomposition:
        for name in names:
            _EQUIVALENT[name] = function
        return function

    return register


# --- views by stride ---------------------------------------------------------------------------------------------


def _memory_order(x: Tensor) -> list[int]:
    strides, sizes = tuple(x.stride()), tuple(x.shape)
    return sorted(range(x.dim()), key=lambda dim: (-strides[dim], int(sizes[dim]) == 1))


def _flat_memory(x: Tensor) -> Tensor:
    """The elements of a dense tensor in the order they lie in memory."""
    return x.permute(_memory_order(x)).reshape(-1)


def _offsets(size: Iterable[int], stride: Iterable[int], start: int, device: torch.device) -> Tensor:
    """Positions in memory of every element of a strided view, flat."""
    size = tuple(size)
    places = torch.full(size, start, dtype=torch.int64, device=device)
    for dim, (extent, step) in enumerate(zip(size, stride, strict=True)):
        shape = [1] * len(size)
        shape[dim] = extent
        places = places + (torch.arange(extent, device=device) * step).view(shape)
    return places.reshape(-1)


def _is_dense(x: Tensor) -> bool:
    """Whether the elements of `x` lie in memory without holes and without overlap."""
    extent = 1
    for dim in reversed(_memory_order(x)):
        if x.size(dim) != 1 and x.stride(dim) != extent:
            return False
        extent *= x.size(dim)
    return True


def _start(x: Tensor, storage_offset: int | None) -> int:
    """Where a strided view begins, counted from the first element of `x`."""
    return 0 if storage_offset is None else storage_offset - int(x.storage_offset())


def _as_slices(x: Tensor, size: list[int], stride: list[int], start: int) -> Tensor | None:
    """A strided view whose steps are those of `x`, by narrowing, permuting and expanding; None for any other."""
    first = {}
    for dim in _memory_order(x):
        first[dim] = 0 if x.size(dim) == 1 else start // x.stride(dim)
        start -= first[dim] * x.stride(dim)
        if not 0 <= first[dim] < x.size(dim):
            return None
    free = {x.stride(dim): dim for dim in range(x.dim()) if x.size(dim) != 1}
    dims = [None if extent == 1 or step == 0 else free.pop(step, -1) for extent, step in zip(size, stride, strict=True)]
    if start != 0 or -1 in dims:
        return None
    kept = {dim: size[place] for place, dim in enumerate(dims) if dim is not None}
    if any(first[dim] + extent > x.size(dim) for dim, extent in kept.items()):
        return None
    for dim in range(x.dim()):
        x = x.narrow(dim, first[dim], kept.get(dim, 1))
    # Dimensions in the order of the view, then those of one element, which go away.
    x = x.permute([*kept, *(dim for dim in range(x.dim()) if dim not in kept)])
    x = x.reshape([extent if dim is not None else 1 for extent, dim in zip(size, dims, strict=True)])
    return x.expand(size)


@_own("aten::as_strided")
def as_strided(x: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Any:
    """The view by slices where its steps are those of `x`, else as a gather from memory order if `x` is dense."""
    start = _start(x, storage_offset)
    slices = _as_slices(x, size, stride, start)
    if slices is not None or not _is_dense(x):
        return NotImplemented if slices is None else slices
    return _flat_memory(x).index_select(0, _offsets(size, stride, start, x.device)).reshape(size)


@_own("aten::as_strided_scatter")
def as_strided_scatter(
    x: Tensor, src: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> Any:
    """`x` with the elements of a strided view replaced by `src`; `x` must be dense."""
    if not _is_dense(x):
        return NotImplemented
    order = _memory_order(x)
    places = _offsets(size, stride, _start(x, storage_offset), x.device)
    flat = _flat_memory(x).scatter(0, places, src.reshape(-1))
    back = [order.index(dim) for dim in range(x.dim())]
    return flat.reshape([x.size(dim) for dim in order]).permute(back)


# --- sorting and selection ---------------------------------------------------------------------------------------


@_own("aten::topk")
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The first k of a full sort."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, indices = torch.sort(x, dim=dim, descending=largest)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


@_own("aten::argsort")
def argsort(x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """The indices of a sort."""
    return torch.sort(x, dim=dim, descending=descending)[1]


@_own("aten::argsort.stable")
def argsort_stable(x: Tensor, *, stable: bool, dim: int = -1, descending: bool = False) -> Tensor:
    """The indices of a stable sort."""
    return torch.sort(x, stable=stable, dim=dim, descending=descending)[1]


@_own("aten::nonzero_static")
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Coordinates of the first `size` elements that are not zero, filled up: a shape known beforehand.

    Returns:
        int64 [size, x.dim()].
    """
    if x.dim() == 0:
        return torch.full((size, 0), fill_value, dtype=torch.int64, device=x.device)
    taken = (x != 0).reshape(-1)
    count = taken.numel()
    # Elements to keep first, each in its place: a stable sort on "is zero".
    order = torch.sort(torch.logical_not(taken).to(torch.int32), stable=True)[1]
    if count < size:
        order = torch.nn.functional.pad(order, (0, size - count))
    order = order[:size]
    found = torch.arange(size, device=x.device) < taken.to(torch.int64).sum()
    columns = []
    for extent in reversed(x.shape):
        columns.append(torch.remainder(order, extent))
        order = torch.div(order, extent, rounding_mode="floor")
    coordinates = torch.stack(columns[::-1], dim=1)
    return torch.where(found[:, None], coordinates, torch.full_like(coordinates, fill_value))


@_own("aten::value_selecting_reduction_backward")
def value_selecting_reduction_backward(
    grad: Tensor, dim: int, indices: Tensor, sizes: list[int], keepdim: bool
) -> Tensor:
    """The gradient of max, min, median, mode along a dimension: zeros with `grad` at the selected places."""
    if not keepdim and len(sizes) > 0:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return torch.zeros(sizes, dtype=grad.dtype, device=grad.device).scatter(dim, indices, grad)


# --- writing at indices ------------------------------------------------------------------------------------------


@_own("aten::index_copy")
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`x` with the slices at `index` replaced."""
    if x.dim() == 0:
        return source.reshape(()).clone()
    shape = [1] * x.dim()
    shape[dim] = index.numel()
    return x.scatter(dim, index.view(shape).expand(source.shape), source)


@_own("aten::index_put")
def index_put(x: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    """One boolean mask and one value become a where; anything else stays as it is."""
    first = indices[0] if indices else None
    if len(indices) == 1 and first is not None and first.dtype == torch.bool and values.numel() == 1:
        mask = first.reshape(*first.shape, *[1] * (x.dim() - first.dim()))
        new = values.reshape(()).to(x.dtype)
        return torch.where(mask, x + new if accumulate else new, x)
    return NotImplemented


@_own("aten::embedding_dense_backward")
def embedding_dense_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Rows of the gradient added up by index.

    Args:
        grad: [*indices.shape, width].
        indices: integers of any shape.
        num_weights: rows of the table.
        padding_idx: a row that gets no gradient; negative for none.
        scale_grad_by_freq: divide a row's gradient by how often it was looked up.

    Returns:
        [num_weights, width], of the dtype of `grad`.
    """
    rows = indices.reshape(-1).to(torch.int64)
    grad = grad.reshape(rows.numel(), -1)
    if scale_grad_by_freq:
        count = torch.zeros(num_weights, dtype=grad.dtype, device=grad.device)
        count = count.scatter_add(0, rows, torch.ones_like(rows, dtype=grad.dtype))
        grad = grad / count.index_select(0, rows)[:, None]
    if padding_idx >= 0:
        grad = torch.where((rows == padding_idx)[:, None], torch.zeros_like(grad), grad)
    table = torch.zeros(num_weights, grad.size(1), dtype=grad.dtype, device=grad.device)
    return table.scatter_add(0, rows[:, None].expand(grad.shape), grad)


@_own("aten::histc")
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts in equal bins between min and max, or between the extremes of `x` where both are 0."""
    x = x.reshape(-1)
    low: Any = min
    high: Any = max
    if min == max == 0:
        low, high = x.amin(), x.amax()
        equal = low == high
        low, high = torch.where(equal, low - 1, low), torch.where(equal, high + 1, high)
    elif min == max:
        low, high = min - 1, max + 1
    inside = (x >= low) & (x <= high)
    place = torch.floor((x - low) * bins / (high - low)).clamp(0, bins - 1).to(torch.int64)
    empty = torch.zeros(bins, dtype=x.dtype, device=x.device)
    return empty.scatter_add(0, torch.where(inside, place, torch.zeros_like(place)), inside.to(x.dtype))


# --- arithmetic --------------------------------------------------------------------------------------------------


@_own("aten::scalar_tensor")
def scalar_tensor(
    s: float,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Tensor:
    """A tensor of no dimensions."""
    return torch.full((), s, dtype=dtype or torch.get_default_dtype(), device=device)


@_own("aten::linalg_vector_norm")
def linalg_vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The p-norm by plain reductions."""
    x = x if dtype is None else x.to(dtype)
    size = x.abs() if ord % 2 or math.isinf(ord) or ord == 0 or x.is_complex() else x
    dims = list(range(x.dim())) if dim is None else dim
    if ord == math.inf:
        return size.amax(dims, keepdim)
    if ord == -math.inf:
        return size.amin(dims, keepdim)
    if ord == 0:
        return torch.sum((x != 0).to(size.dtype), dims, keepdim)
    if ord == 1:
        return torch.sum(size, dims, keepdim)
    if ord == 2:
        return torch.sqrt(torch.sum(size * size, dims, keepdim))
    return torch.pow(torch.sum(torch.pow(size, ord), dims, keepdim), 1.0 / ord)


@_own("aten::sigmoid_backward")
def sigmoid_backward(grad: Tensor, output: Tensor) -> Tensor:
    """The gradient of sigmoid, from its output."""
    return grad * (output * (1 - output)).conj()


@_own("aten::silu_backward")
def silu_backward(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of x * sigmoid(x); computed in float32 for 16-bit inputs, as the CPU's kernel does."""
    wide = torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype
    wide_x = x.to(wide)
    sigmoid = torch.sigmoid(wide_x)
    return (grad.to(wide) * sigmoid * (1 + wide_x * (1 - sigmoid))).to(x.dtype)


@_own("aten::linear_backward")
def linear_backward(
    x: Tensor, grad: Tensor, weight: Tensor, output_mask: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of x @ weight.T + bias.

    Args:
        x: [*, in].
        grad: [*, out].
        weight: [out, in].
        output_mask: which of (x, weight, bias) are wanted.
    """
    count = math.prod(x.shape[:-1])  # not -1: either may have no elements
    rows, out = x.reshape(count, x.size(-1)), grad.reshape(count, grad.size(-1))
    grad_x = torch.mm(out, weight.conj()).reshape(x.shape) if output_mask[0] else None
    grad_weight = torch.mm(out.t(), rows.conj()) if output_mask[1] else None
    grad_bias = out.sum(0) if output_mask[2] else None
    return grad_x, grad_weight, grad_bias


@_own("aten::_foreach_pow.Scalar")
def foreach_pow_scalar(tensors: list[Tensor], exponent: float) -> list[Tensor]:
    """Each tensor to the same power."""
    return [torch.pow(tensor, exponent) for tensor in tensors]


@_own("aten::__rshift__.Scalar")
def rshift_scalar(x: Tensor, other: int) -> Tensor:
    """A shift by a number as a shift by a tensor."""
    return torch.bitwise_right_shift(x, torch.full((), other, dtype=x.dtype, device=x.device))


@_own("aten::_grouped_mm")
def grouped_mm(
    x: Tensor,
    weight: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """A matmul per group of rows.

    Args:
        x: [rows, in] with `offs`, or [groups, rows, in] without.
        weight: [groups, in, out].
        offs: int32 [groups], where each group's rows end.
        bias: added to every row; None for none.
        out_dtype: dtype of the result; that of `x` by default.
    """
    if x.dim() == 3 and weight.dim() == 3:
        product = torch.bmm(x, weight)
    elif x.dim() == 2 and weight.dim() == 3 and offs is not None:
        row = torch.arange(x.size(0), device=x.device)
        # Every group's weights on every row, and zeros where the row is another group's: static shapes.
        ends = offs.to(torch.int64)
        starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
        member = (row[None, :] >= starts[:, None]) & (row[None, :] < ends[:, None])
        product = torch.bmm(x.unsqueeze(0).expand(weight.size(0), -1, -1), weight)
        product = torch.where(member[:, :, None], product, torch.zeros_like(product)).sum(0)
    else:
        # [PRE]: the backend's own gives up here too.
        return NotImplemented
    product = product if bias is None else product + bias
    return product.to(out_dtype or x.dtype)


@_own("aten::convolution_backward")
def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
) -> Any:
    """The gradients of a convolution by two further convolutions.

    Args:
        grad: [batch, out, *].
        x: [batch, in, *].
        weight: [out, in / groups, kernel…]; transposed: [in, out / groups, kernel…].
        bias_sizes: not needed.
        stride: with padding, dilation and output_padding one number per spatial dimension.
        output_mask: which of (x, weight, bias) are wanted.
    """
    grad_x = grad_weight = grad_bias = None
    if output_mask[0]:
        grad_x = _convolution_input(grad, x, weight, stride, padding, dilation, transposed, groups)
    if output_mask[1]:
        # A transposed convolution is a convolution with input and output exchanged.
        source, result = (grad, x) if transposed else (x, grad)
        grad_weight = _convolution_weight(result, source, weight, stride, padding, dilation, groups)
    if output_mask[2]:
        grad_bias = grad.sum([0, *range(2, x.dim())])
    return grad_x, grad_weight, grad_bias


def _convolution_input(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    groups: int,
) -> Tensor:
    # What the stride did not reach at the far end of x.
    lost = [
        0 if transposed else x.size(d) + 2 * pad - 1 - step * (grad.size(d) - 1) - spread * (weight.size(d) - 1)
        for d, step, pad, spread in zip(range(2, x.dim()), stride, padding, dilation, strict=True)
    ]
    result: Tensor = torch.ops.aten.convolution(
        grad, weight, None, stride, padding, dilation, not transposed, lost, groups
    )
    for dim in range(2, x.dim()):
        result = result.narrow(dim, 0, x.size(dim))
    return result


def _convolution_weight(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    """The gradient of the weight: batch and channels change places, stride and dilation too.

    [in / groups, groups · batch, …] convolved with [out, batch, …] in groups gives [in / groups, out, kernel…].
    """
    batch, channels = x.shape[:2]
    folded = x.reshape(batch, groups, channels // groups, *x.shape[2:]).transpose(0, 2)
    folded = folded.reshape(channels // groups, groups * batch, *x.shape[2:])
    nothing = [0] * len(stride)
    full: Tensor = torch.ops.aten.convolution(
        folded, grad.transpose(0, 1), None, dilation, padding, stride, False, nothing, groups
    )
    for dim in range(2, x.dim()):
        full = full.narrow(dim, 0, weight.size(dim))
    return full.transpose(0, 1)


# --- attention ---------------------------------------------------------------------------------------------------


@_own("aten::_scaled_dot_product_fused_attention_overrideable")
def sdpa_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """Attention written out: softmax(q kᵀ · scale + bias) v.

    Args:
        query: [batch, heads, rows, width]; key and value alike with their own number of rows, and with as many heads
            or a divisor of it: each is then used by several heads of the query.
        attn_bias: added to the scores; broadcasts to [batch, heads, rows, columns].
        dropout_p: not applied here: which elements fall out is the device's choice.

    Returns:
        (output, logsumexp, None, None, max_q, max_k, seed, offset, None), as the operator's schema says.
    """
    heads = query.size(1)
    scores = _scores(query, _for_heads(key, heads), attn_bias, is_causal, scale)
    logsumexp = torch.logsumexp(scores, -1)
    output = torch.matmul(torch.exp(scores - logsumexp.unsqueeze(-1)), _for_heads(value, heads))
    empty = torch.zeros((), dtype=torch.int64, device=query.device)
    return output, logsumexp, None, None, query.size(-2), key.size(-2), empty, empty, None


@_own("aten::_scaled_dot_product_fused_attention_overrideable_backward")
def sdpa_backward(
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
) -> Any:
    """The gradients of `sdpa_forward` in query, key, value and bias."""
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    heads, groups = query.size(1), key.size(1)
    key, value = _for_heads(key, heads), _for_heads(value, heads)
    scores = _scores(query, key, attn_bias, is_causal, scale)
    weights = torch.exp(scores - logsumexp.unsqueeze(-1))
    grad_value = _of_heads(torch.matmul(weights.transpose(-2, -1), grad_out), groups)
    grad_weights = torch.matmul(grad_out, value.transpose(-2, -1))
    grad_scores = weights * (grad_weights - (grad_out * out).sum(-1, keepdim=True))
    grad_query = torch.matmul(grad_scores, key) * factor
    grad_key = _of_heads(torch.matmul(grad_scores.transpose(-2, -1), query), groups) * factor
    grad_bias = grad_scores.sum_to_size(attn_bias.shape) if attn_bias is not None and grad_input_mask[3] else None
    return grad_query, grad_key, grad_value, grad_bias


def _for_heads(x: Tensor, heads: int) -> Tensor:
    """Keys or values with a head for each of the query's."""
    if x.size(1) == heads:
        return x
    batch, groups, rows, width = x.shape
    return x.unsqueeze(2).expand(batch, groups, heads // groups, rows, width).reshape(batch, heads, rows, width)


def _of_heads(grad: Tensor, groups: int) -> Tensor:
    """The gradient of what `_for_heads` spread."""
    if grad.size(1) == groups:
        return grad
    batch, heads, rows, width = grad.shape
    return grad.reshape(batch, groups, heads // groups, rows, width).sum(2)


def _scores(query: Tensor, key: Tensor, bias: Tensor | None, is_causal: bool, scale: float | None) -> Tensor:
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if is_causal:
        rows, columns = scores.shape[-2:]
        row = torch.arange(rows, device=scores.device)[:, None]
        column = torch.arange(columns, device=scores.device)[None, :]
        scores = torch.where(column <= row, scores, torch.full_like(scores, -math.inf))
    return scores if bias is None else scores + bias


# --- equivalents for lowering ------------------------------------------------------------------------------------


@_equivalent("aten::nll_loss_forward")
def nll_loss_forward(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """The negative log likelihood of the target classes and the sum of their weights."""
    counted = target != ignore_index
    safe = torch.where(counted, target, torch.zeros_like(target))
    classes = 1 if x.dim() == 2 else 0
    picked = -x.gather(classes, safe.unsqueeze(classes)).squeeze(classes)
    share = (
        torch.ones_like(picked) if weight is None else weight.index_select(0, safe.reshape(-1)).reshape(picked.shape)
    )
    share = torch.where(counted, share, torch.zeros_like(share))
    loss = picked * share
    if reduction == 0 and x.dim() == 2:
        return loss, torch.zeros((), dtype=x.dtype, device=x.device)
    total, count = loss.sum(), share.sum()
    return (total / count if reduction == 1 else total), count


@_equivalent("aten::_native_batch_norm_legit_functional")
def native_batch_norm_functional(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Batch norm and the new running statistics.

    Args:
        x: [batch, channels, *]; the other tensors are [channels].

    Returns:
        (output, mean, 1 / standard deviation, new running mean, new running variance).
    """
    others = [dim for dim in range(x.dim()) if dim != 1]
    shape = [1, x.size(1)] + [1] * (x.dim() - 2)
    wide = x.to(torch.float32) if x.dtype in (torch.bfloat16, torch.float16) else x
    if training:
        mean = wide.mean(others)
        var = ((wide - mean.view(shape)) ** 2).mean(others)
        count = x.numel() // x.size(1)
        unbiased = var * (count / max(count - 1, 1))
        new_mean = mean.to(running_mean.dtype) * momentum + running_mean * (1 - momentum)
        new_var = unbiased.to(running_var.dtype) * momentum + running_var * (1 - momentum)
        invstd = torch.rsqrt(var + eps)
        saved = (mean, invstd)
    else:
        mean, invstd = running_mean.to(wide.dtype), torch.rsqrt(running_var.to(wide.dtype) + eps)
        new_mean, new_var = running_mean.clone(), running_var.clone()
        saved = (x.new_zeros((0,)), x.new_zeros((0,)))
    output = (wide - mean.view(shape)) * invstd.view(shape)
    output = output if weight is None else output * weight.view(shape)
    output = output if bias is None else output + bias.view(shape)
    return output.to(x.dtype), *saved, new_mean, new_var


@_equivalent("aten::max_pool2d_with_indices_backward")
def max_pool2d_with_indices_backward(
    grad: Tensor,
    x: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """The gradient added at the places the maxima came from.

    Args:
        grad: [*, height, width] of the output.
        x: [*, height, width] of the input.
        indices: like `grad`, positions in a flattened input plane.
    """
    planes = x.shape[:-2]
    flat = torch.zeros((*planes, x.size(-2) * x.size(-1)), dtype=grad.dtype, device=grad.device)
    places, values = indices.reshape(*planes, -1), grad.reshape(*planes, -1)
    return flat.scatter_add(-1, places, values).reshape(x.shape)
