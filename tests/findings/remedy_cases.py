"""What each rewrite of `smoketest.findings.remedies` is compared with, and on which inputs.

As a script (``python remedy_cases.py``) it runs every rewrite on the emulated device, forward and backward, and prints
the ops that fell back as one JSON object: that changes the whole process, so no test does it in its own.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from smoketest.findings.remedies import REWRITES

Names = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """`original` is what the user wrote, an expression over the names that `make` gives.

    `prepare` is run before the rewrite: the assignments that the remedy's prose speaks of. `gradients` is False where
    there are none, or where they differ as the remedy says.
    """

    make: Callable[[], Names]
    original: str
    prepare: str = ""
    atol: float = 1e-5
    gradients: bool = True


def snippet(op: str) -> str:
    """The first piece of code in a remedy."""
    found = re.search(r"`([^`]+)`", REWRITES[op])
    assert found, f"the remedy of {op} holds no code"
    return found[1]


def evaluate(names: Names, expression: str, prepare: str = "") -> torch.Tensor:
    scope = {"torch": torch, "F": F, "math": math, **names}
    exec(prepare, scope)
    result: torch.Tensor = eval(expression, scope)
    return result


def normal(*shape: int, low: float | None = None, high: float | None = None) -> torch.Tensor:
    values = torch.randn(shape) if low is None or high is None else torch.rand(shape) * (high - low) + low
    return values.requires_grad_()


def x(low: float | None = None, high: float | None = None) -> Callable[[], Names]:
    return lambda: {"x": normal(4, 6, low=low, high=high)}


def xy() -> Names:
    return {"x": normal(4, 6), "y": normal(4, 6)}


def image() -> Names:
    return {"x": normal(2, 3, 8, 8), "n": 2, "c": 3, "h": 8, "w": 8, "k": 2, "s": 2}


def rolling(shift: int, dim: int) -> Callable[[], Names]:
    return lambda: {"x": normal(2, 3, 4, 6), "n": (2, 3, 4, 6)[dim], "k": shift % (2, 3, 4, 6)[dim], "dim": dim}


def edges(*batch: int) -> Callable[[], Names]:
    """Values and ascending boundaries, some equal; with `batch`, boundaries of their own for every row."""

    def make() -> Names:
        boundaries = (torch.randint(-2, 3, (*batch, 5)) / 2).sort(-1).values
        return {"x": (normal(4, 6).detach() * 2).round() / 2, "edges": boundaries}

    return make


def nearest() -> Names:
    def places(size: int) -> torch.Tensor:
        line = torch.arange(float(size))[None, None, :, None]
        return F.interpolate(line, scale_factor=(1.7, 1.0))[0, 0, :, 0].long()

    return {"x": normal(2, 3, 7, 5), "rows": places(7), "columns": places(5)}


def factor() -> Names:
    def matrix(size: int) -> torch.Tensor:
        line = torch.eye(size)[None, :, :, None]
        return F.interpolate(line, scale_factor=(1.7, 1.0), mode="bicubic")[0, :, :, 0].T.contiguous()

    return {"x": normal(2, 3, 7, 5), "rows": matrix(7), "columns": matrix(5)}


def quantized() -> Names:
    return {"x": normal(40), "scale": 0.1, "zero_point": 3, "low": -8, "high": 7}


def inverse_fourier() -> Names:
    names = fourier()
    weight = torch.tensor([1.0, 2, 2, 2, 1])[:, None]
    given = {"real": normal(4, 5), "imaginary": normal(4, 5)}
    return given | {"a": weight * names["cosines"].T / 8, "b": weight * names["sines"].T / 8}


def resizing() -> Names:
    def matrix(size: int, new: int) -> torch.Tensor:
        return F.interpolate(torch.eye(size)[None, :, :, None], (new, 1), mode="bicubic")[0, :, :, 0].T.contiguous()

    return {"x": normal(2, 3, 6, 5), "rows": matrix(6, 9), "columns": matrix(5, 11)}


def resampling() -> Names:
    rows, columns = torch.arange(6)[:, None], torch.arange(7)[:, None]
    grid = (torch.rand(2, 4, 5, 2) * 3 - 1.5).requires_grad_()
    return {"image": normal(2, 3, 6, 7), "grid": grid, "h": 6, "w": 7, "rows": rows, "columns": columns}


def moving() -> Names:
    xy = F.affine_grid(torch.eye(2, 3)[None], (1, 1, 6, 7), align_corners=False).view(-1, 2)
    return {"theta": normal(2, 2, 3), "h": 6, "w": 7, "xy": xy}


def lstm() -> Names:
    return {
        "x": normal(4, 5),
        "h": normal(4, 3),
        "c": normal(4, 3),
        "w_ih": normal(12, 5),
        "w_hh": normal(12, 3),
        "b_ih": normal(12),
        "b_hh": normal(12),
    }


def gru() -> Names:
    names = lstm()
    sizes = {"w_ih": 9, "w_hh": 9, "b_ih": 9, "b_hh": 9}
    return names | {name: names[name].detach()[:size].requires_grad_() for name, size in sizes.items()}


def complex_pair() -> Names:
    return {name: normal(4, 6) for name in "abcs"}


def fourier() -> Names:
    angle = 2 * math.pi * torch.outer(torch.arange(8.0), torch.arange(5.0)) / 8
    return {"x": normal(4, 8), "cosines": angle.cos(), "sines": angle.sin()}


def classes() -> Names:
    return {"x": normal(2, 3, 4, 5), "y": torch.randint(0, 3, (2, 4, 5))}


def masked() -> Names:
    return {"x": normal(4, 6), "mask": torch.randn(4, 6) > 0}


def scattered() -> Names:
    index = torch.tensor([0, 2, 2, 1, 0, 3])
    return {"out": normal(4, 3), "index": index, "src": normal(6, 3)}


def matrices() -> Names:
    return {"x": normal(2, 3, 5), "a": normal(2, 3, 4), "b": normal(2, 4, 5), "beta": 0.5, "alpha": 2.0}


CASES: dict[str, Case] = {
    "atan2": Case(xy, "torch.cos(torch.atan2(y, x))"),
    "acos": Case(lambda: {"c": normal(4, 6, low=-0.9, high=0.9)}, "torch.sin(torch.acos(c))"),
    "asin": Case(lambda: {"s": normal(4, 6, low=-0.9, high=0.9)}, "torch.cos(torch.asin(s))"),
    "atan": Case(lambda: {"t": normal(4, 6)}, "torch.sin(torch.atan(t))"),
    "tan": Case(x(-1.2, 1.2), "torch.tan(x)"),
    "sinh": Case(x(), "torch.sinh(x)"),
    "cosh": Case(x(), "torch.cosh(x)"),
    "asinh": Case(x(0.0, 5.0), "torch.asinh(x)"),
    "acosh": Case(x(1.2, 5.0), "torch.acosh(x)"),
    "atanh": Case(x(-0.9, 0.9), "torch.atanh(x)"),
    "hypot": Case(xy, "torch.hypot(x, y)"),
    "linalg_cross": Case(
        lambda: {"a": normal(5, 3), "b": normal(5, 3)},
        "torch.linalg.cross(a, b)",
        "a0, a1, a2 = a.unbind(-1); b0, b1, b2 = b.unbind(-1)",
    ),
    "_cdist_forward": Case(lambda: {"a": normal(2, 5, 3), "b": normal(2, 4, 3)}, "torch.cdist(a, b)"),
    "exp2": Case(x(), "torch.exp2(x)"),
    "expm1": Case(x(-0.01, 0.01), "torch.expm1(x)", atol=1e-8),
    "log1p": Case(x(0.01, 5.0), "torch.log1p(x)"),
    "log2": Case(x(0.1, 5.0), "torch.log2(x)"),
    "log10": Case(x(0.1, 5.0), "torch.log10(x)"),
    "logaddexp": Case(xy, "torch.logaddexp(x, y)"),
    "_logcumsumexp": Case(x(), "torch.logcumsumexp(x, -1)", "m = x.amax(-1, keepdim=True)"),
    "logit": Case(lambda: {"p": normal(4, 6, low=0.1, high=0.9)}, "torch.logit(p)", atol=1e-4),
    "xlogy": Case(lambda: {"x": normal(4, 6), "y": normal(4, 6, low=0.1, high=2.0)}, "torch.xlogy(x, y)"),
    "erfc": Case(x(-2.0, 2.0), "torch.erfc(x)"),
    "lgamma": Case(x(0.1, 20.0), "torch.lgamma(x)", "z = x + 5", atol=2e-5),
    "digamma": Case(x(0.2, 20.0), "torch.digamma(x)", "z = x + 5", atol=2e-5),
    "pow": Case(lambda: {"x": normal(4, 6), "base": 3.0}, "3.0 ** x", atol=1e-4),
    "floor": Case(x(), "torch.floor(x)"),
    "round": Case(x(), "torch.round(x)"),
    "frac": Case(x(), "torch.frac(x)"),
    "fmod": Case(xy, "torch.fmod(x, y)", gradients=False),
    "rsub": Case(xy, "torch.rsub(x, y)"),
    "maximum": Case(xy, "torch.maximum(x, y)"),
    "minimum": Case(xy, "torch.minimum(x, y)"),
    "argmax": Case(x(), "torch.argmax(x, -1)"),
    "argmin": Case(x(), "torch.argmin(x, -1)"),
    "min": Case(x(), "torch.min(x, -1).values"),
    "median": Case(x(), "torch.median(x, -1).values", "n = x.shape[-1]"),
    "kthvalue": Case(lambda: {"x": normal(4, 6), "k": 3}, "torch.kthvalue(x, k, -1).values", "n = x.shape[-1]"),
    "nan_to_num": Case(
        lambda: {"x": torch.tensor([1.0, math.nan, -math.inf, math.inf, -2.0], requires_grad=True)},
        "torch.nan_to_num(x)",
        "low, high = torch.finfo(x.dtype).min, torch.finfo(x.dtype).max",
    ),
    "norm": Case(lambda: {"x": normal(4, 6), "p": 3}, "F.pairwise_distance(x, torch.zeros_like(x), p=p, eps=0.0)"),
    "binary_cross_entropy_with_logits": Case(
        lambda: {"x": normal(4, 6), "y": torch.rand(4, 6)}, "F.binary_cross_entropy_with_logits(x, y)"
    ),
    "embedding_renorm": Case(
        lambda: {"weight": normal(9, 6), "ids": torch.tensor([[1, 1, 8], [0, 3, 2]]), "max_norm": 2.0},
        "F.embedding(ids, weight.detach().clone(), max_norm=max_norm)",
        "rows = F.embedding(ids, weight)",
        gradients=False,
    ),
    "sort": Case(x(), "torch.sort(x, -1).values"),
    "searchsorted": Case(edges(), "torch.searchsorted(edges, x)"),
    "bucketize": Case(edges(), "torch.bucketize(x, edges)"),
    "isin": Case(lambda: {"x": torch.randint(0, 9, (4, 6)), "values": torch.tensor([1, 5])}, "torch.isin(x, values)"),
    "equal": Case(lambda: {"x": torch.ones(3), "y": torch.ones(3)}, "torch.tensor(torch.equal(x, y))"),
    "count_nonzero": Case(lambda: {"x": torch.tensor([0.0, 2.0, 0.0, 3.0])}, "torch.count_nonzero(x)"),
    "prod": Case(x(0.5, 1.5), "torch.prod(x, -1)"),
    "cumprod": Case(x(0.5, 1.5), "torch.cumprod(x, -1)"),
    "var": Case(x(), "torch.var(x, -1)"),
    "trace": Case(x(), "torch.trace(x)"),
    "nansum": Case(lambda: {"x": torch.tensor([1.0, float("nan"), 2.0], requires_grad=True)}, "torch.nansum(x)"),
    "scatter_reduce": Case(scattered, "out.scatter_reduce(0, index[:, None].expand_as(src), src, 'sum')"),
    "index_fill": Case(
        lambda: {"x": normal(4, 6), "index": torch.tensor([1, 3]), "value": 2.5}, "x.index_fill(0, index, value)"
    ),
    "repeat_interleave": Case(
        lambda: {
            "x": normal(4, 6),
            "repeats": torch.tensor([1, 0, 3, 2]),
            "n": 4,
            "index": torch.tensor([0, 2, 2, 2, 3, 3]),
        },
        "torch.repeat_interleave(x, repeats, 0)",
    ),
    "roll": Case(rolling(2, 3), "torch.roll(x, k, dim)"),
    "take": Case(lambda: {"x": normal(4, 6), "index": torch.tensor([[0, 7], [7, 23]])}, "torch.take(x, index)"),
    "bincount": Case(lambda: {"ids": torch.tensor([0, 2, 2, 4]), "n": 6}, "torch.bincount(ids, minlength=n).float()"),
    "masked_select": Case(masked, "torch.masked_select(x, mask).mean()"),
    "vdot": Case(lambda: {"x": normal(6), "y": normal(6)}, "torch.vdot(x, y)"),
    "baddbmm": Case(matrices, "torch.baddbmm(x, a, b, beta=beta, alpha=alpha)"),
    "addbmm": Case(lambda: matrices() | {"x": normal(3, 5)}, "torch.addbmm(x, a, b, beta=beta, alpha=alpha)"),
    "im2col": Case(lambda: image() | {"eye": torch.eye(12)}, "F.unfold(x, k, stride=s)"),
    "unfold": Case(
        lambda: {"x": normal(2, 3, 8), "index": torch.arange(8).unfold(0, 3, 2).contiguous()}, "x.unfold(-1, 3, 2)"
    ),
    "linalg_matrix_exp": Case(
        lambda: {"a": normal(2, 3, 3, low=-0.16, high=0.16), "eye": torch.eye(3)}, "torch.linalg.matrix_exp(a)"
    ),
    "fake_quantize_per_tensor_affine_cachemask": Case(
        quantized,
        "torch.fake_quantize_per_tensor_affine(x, scale, zero_point, low, high)",
        "c = x.clamp((low - zero_point) * scale, (high - zero_point) * scale)",
        gradients=False,
    ),
    "reflection_pad1d": Case(
        lambda: {"x": normal(2, 3, 6), "left": 2, "right": 1}, "F.pad(x, (left, right), mode='reflect')"
    ),
    "_prelu_kernel": Case(lambda: {"x": normal(4, 6), "w": normal(1)}, "F.prelu(x, w)"),
    "leaky_relu": Case(lambda: {"x": normal(4, 6), "slope": 0.2}, "F.leaky_relu(x, slope)"),
    "elu": Case(
        lambda: {"x": normal(4, 6), "alpha": 1.3, "scale": 1.1, "slope": 0.7},
        "torch.ops.aten.elu(x, alpha, scale, slope)",
    ),
    "hardtanh": Case(lambda: {"x": normal(4, 6), "low": -0.5, "high": 0.7}, "F.hardtanh(x, low, high)"),
    "hardswish": Case(x(-5.0, 5.0), "F.hardswish(x)"),
    "hardsigmoid": Case(x(-5.0, 5.0), "F.hardsigmoid(x)"),
    "mish": Case(x(), "F.mish(x)"),
    "glu": Case(x(), "F.glu(x)", "a, b = x.chunk(2, -1)"),
    "log_sigmoid_forward": Case(x(), "F.logsigmoid(x)"),
    "softshrink": Case(lambda: {"x": normal(4, 6), "cut": 0.5}, "F.softshrink(x, cut)"),
    "hardshrink": Case(lambda: {"x": normal(4, 6), "cut": 0.5}, "F.hardshrink(x, cut)"),
    "mse_loss": Case(xy, "F.mse_loss(x, y)"),
    "smooth_l1_loss": Case(lambda: xy() | {"beta": 0.7}, "F.smooth_l1_loss(x, y, beta=beta)", "d = (x - y).abs()"),
    "huber_loss": Case(lambda: xy() | {"delta": 0.7}, "F.huber_loss(x, y, delta=delta)", "d = (x - y).abs()"),
    "binary_cross_entropy": Case(
        lambda: {"x": normal(4, 6), "y": torch.rand(4, 6)}, "F.binary_cross_entropy(torch.sigmoid(x), y)"
    ),
    "nll_loss2d_forward": Case(classes, "F.cross_entropy(x, y)"),
    "native_batch_norm": Case(
        lambda: image() | {"eps": 1e-5},
        "F.batch_norm(x, None, None, training=True, eps=eps)",
        "dims = (0, *range(2, x.dim())); m = x.mean(dims, keepdim=True)",
        atol=1e-4,
    ),
    "native_group_norm": Case(
        lambda: {"x": normal(2, 6, 4, 4), "n": 2, "groups": 3, "eps": 1e-3},
        "F.group_norm(x, groups, eps=eps)",
        atol=1e-4,
    ),
    "_weight_norm_interface": Case(lambda: {"v": normal(4, 6), "g": normal(4, 1)}, "torch._weight_norm(v, g, 0)"),
    "max_pool2d_with_indices": Case(image, "F.max_pool2d(x, k)"),
    "avg_pool2d": Case(image, "F.avg_pool2d(x, k)"),
    "_adaptive_avg_pool2d": Case(image, "F.adaptive_avg_pool2d(x, 4)"),
    "upsample_nearest2d": Case(image, "F.interpolate(x, scale_factor=s)"),
    "upsample_bilinear2d": Case(resizing, "F.interpolate(x, (9, 11), mode='bicubic')"),
    "affine_grid_generator": Case(moving, "F.affine_grid(theta, (2, 3, h, w), align_corners=False)"),
    "grid_sampler_2d": Case(
        resampling,
        "F.grid_sample(image, grid, align_corners=False).flatten(2)",
        "x = ((grid[..., 0].flatten(1)[:, None] + 1) * w - 1) / 2;"
        "y = ((grid[..., 1].flatten(1)[:, None] + 1) * h - 1) / 2;"
        "across = torch.relu(-(x - columns).abs() + 1); down = torch.relu(-(y - rows).abs() + 1)",
    ),
    "_embedding_bag": Case(
        lambda: {"ids": torch.randint(0, 9, (4, 3)), "table": normal(9, 5)}, "F.embedding_bag(ids, table, mode='mean')"
    ),
    "_thnn_fused_lstm_cell": Case(
        lstm,
        "torch.lstm_cell(x, (h, c), w_ih, w_hh, b_ih, b_hh)[1]",
        "i, f, g, o = (F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh)).chunk(4, -1)",
    ),
    "_thnn_fused_gru_cell": Case(
        gru,
        "torch.gru_cell(x, h, w_ih, w_hh, b_ih, b_hh)",
        "i_r, i_z, i_n = F.linear(x, w_ih, b_ih).chunk(3, -1); h_r, h_z, h_n = F.linear(h, w_hh, b_hh).chunk(3, -1);"
        "r = torch.sigmoid(i_r + h_r); z = torch.sigmoid(i_z + h_z); n = torch.tanh(i_n + r * h_n)",
    ),
    "_sparse_mm": Case(
        lambda: {
            "x": normal(5, 3),
            "values": normal(4),
            "rows": torch.tensor([0, 2, 2, 3]),
            "columns": torch.tensor([1, 0, 4, 4]),
            "n": 4,
        },
        "torch.sparse.mm(torch.sparse_coo_tensor(torch.stack((rows, columns)), values, (4, 5), check_invariants=True)"
        ", x)",
    ),
    "polar": Case(complex_pair, "torch.view_as_real(torch.complex(a, b) * torch.complex(c, s))"),
    "_fft_r2c": Case(fourier, "torch.fft.rfft(x).real"),
}


MORE: list[tuple[str, str, Case]] = [
    ("searchsorted", "(edges[..., None, :] < x[..., None]).sum(-1)", Case(edges(4), "torch.searchsorted(edges, x)")),
    (
        "searchsorted",
        "(edges[..., None, :] <= x[..., None]).sum(-1)",
        Case(edges(4), "torch.searchsorted(edges, x, right=True)"),
    ),
    (
        "searchsorted",
        "(edges[..., None, :] <= x[..., None]).sum(-1)",
        Case(edges(), "torch.searchsorted(edges, x, side='right')"),
    ),
    ("bucketize", "(edges <= x[..., None]).sum(-1)", Case(edges(), "torch.bucketize(x, edges, right=True)")),
    (
        "isin",
        "(x[..., None] != values.flatten()).all(-1)",
        Case(
            lambda: {"x": torch.randint(0, 9, (4, 6)), "values": torch.tensor([[1, 5]])},
            "torch.isin(x, values, invert=True)",
        ),
    ),
    (
        "binary_cross_entropy_with_logits",
        "((F.softplus(x) - x * y) * weight).mean()",
        Case(
            lambda: {"x": normal(4, 6), "y": torch.rand(4, 6), "weight": torch.rand(6)},
            "F.binary_cross_entropy_with_logits(x, y, weight=weight)",
        ),
    ),
    (
        "binary_cross_entropy_with_logits",
        "((-y + 1) * x + ((pos_weight - 1) * y + 1) * F.softplus(-x)).mean()",
        Case(
            lambda: {"x": normal(4, 6), "y": torch.rand(4, 6), "pos_weight": torch.rand(6) * 3},
            "F.binary_cross_entropy_with_logits(x, y, pos_weight=pos_weight)",
        ),
    ),
    ("rsub", "-(x * alpha - y)", Case(lambda: xy() | {"alpha": 2.5}, "torch.rsub(x, y, alpha=alpha)")),
    ("min", "x.amin()", Case(x(), "torch.min(x)")),
    ("min", "x.clamp(max=y)", Case(xy, "torch.min(x, y)")),
    ("sort", "torch.topk(x, x.shape[-1]).values", Case(x(), "torch.sort(x, -1, descending=True).values")),
    (
        "scatter_reduce",
        "torch.zeros_like(out).index_add(0, index, src)",
        Case(
            lambda: scattered() | {"out": torch.randn(4, 3)},
            "out.scatter_reduce(0, index[:, None].expand_as(src), src, 'sum', include_self=False)",
        ),
    ),
    (
        "scatter_reduce",
        "out.flatten().index_add(0, (index * out.shape[1] + torch.arange(index.shape[1], device=index.device))"
        ".flatten(), src.flatten()).view_as(out)",
        Case(lambda: scattered() | {"index": torch.randint(0, 4, (6, 3))}, "out.scatter_reduce(0, index, src, 'sum')"),
    ),
    (
        "im2col",
        "F.conv_transpose2d(columns.unflatten(2, (rows, -1)), eye.view(-1, c, k, k), stride=s)",
        Case(
            lambda: {"columns": normal(2, 12, 16), "eye": torch.eye(12), "c": 3, "k": 2, "s": 2, "rows": 4},
            "F.fold(columns, (8, 8), k, stride=s)",
        ),
    ),
    (
        "binary_cross_entropy",
        "((F.softplus(x) - x * y) * weight).mean()",
        Case(
            lambda: {"x": normal(4, 6), "y": torch.rand(4, 6), "weight": torch.rand(6)},
            "F.binary_cross_entropy(torch.sigmoid(x), y, weight)",
        ),
    ),
    (
        "upsample_nearest2d",
        "x.index_select(2, rows).index_select(3, columns)",
        Case(nearest, "F.interpolate(x, scale_factor=1.7)"),
    ),
    (
        "upsample_bilinear2d",
        "rows @ x @ columns.mT",
        Case(factor, "F.interpolate(x, scale_factor=1.7, mode='bicubic')"),
    ),
    (
        "upsample_bilinear2d",
        "x @ columns.mT",
        Case(
            lambda: {
                "x": normal(2, 3, 7),
                "columns": F.interpolate(torch.eye(7)[None], scale_factor=1.7, mode="linear")[0].T.contiguous(),
            },
            "F.interpolate(x, scale_factor=1.7, mode='linear')",
        ),
    ),
    (
        "_fft_r2c",
        "real @ a - imaginary @ b",
        Case(inverse_fourier, "torch.fft.irfft(torch.complex(real, imaginary), n=8)"),
    ),
    *(
        (
            "roll",
            "torch.cat((x.narrow(dim, n - k, k), x.narrow(dim, 0, n - k)), dim)",
            Case(rolling(shift, dim), f"torch.roll(x, {shift}, dim)"),
        )
        for shift, dim in ((1, 2), (-1, 3), (0, 0), (7, 1))
    ),
]
"""Further pieces of code of a remedy, and its first one with other arguments of the op: op, code, case."""


def to_device(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("neuron").requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(to_device(inner) for inner in value)
    return value


def run_on(device: Any, case: Case, expression: str, prepare: str) -> list[str]:
    """Names of what fell back in forward and backward, and the error where one was raised."""
    torch.manual_seed(0)
    names = {name: to_device(value) for name, value in case.make().items()}
    errors = []
    device.clear_op_tracking()
    try:
        result = evaluate(names, expression, prepare)
        if result.requires_grad:
            result.sum().backward()
    except Exception as raised:
        errors = [f"{type(raised).__name__}: {raised}"]
    return sorted(device.get_fallback_ops()) + errors


def main() -> None:
    """Print {op: {"original": [...], "rewrite": [...]}}: what fell back on the emulated device."""
    import smoketest

    device = smoketest.emulate(warn=False)
    seen = {
        op: {
            "original": run_on(device, case, case.original, ""),
            "rewrite": run_on(device, case, snippet(op), case.prepare),
        }
        for op, case in CASES.items()
    }
    for op, code, case in MORE:
        seen[op]["rewrite"] += run_on(device, case, code, case.prepare)
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
