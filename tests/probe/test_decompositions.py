"""Each decomposition of our own computes what the eager op computes, and every name of the profile is served."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from smoketest.operators.decompositions import OWN, decomposition_table, lowering_equivalents
from smoketest.operators.profile import load_profile

F32, I64 = torch.float32, torch.int64
aten = torch.ops.aten


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + seed))


def ints(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(high))


ONE_GROUP = (False, [0, 0], 1, [True, True, True])
LOGITS = draw(6, 5).log_softmax(1)
CALLS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "aten::as_strided": [
        ((draw(4, 6), (2, 3), (6, 2), 1), {}),
        ((draw(4, 6), (2, 2, 2), (1, 6, 1)), {}),
        ((draw(4, 6).t(), (3, 2), (2, 1), 3), {}),
        ((draw(4, 6)[:, :3], (3, 2), (6, 1), 6), {}),
        ((draw(2, 5, 6)[..., :4], (4, 1, 3, 2, 5), (1, 1, 6, 30, 0), 12), {}),
    ],
    "aten::as_strided_scatter": [
        ((draw(4, 6), draw(2, 3), (2, 3), (6, 2), 1), {}),
        ((draw(4, 6).t(), draw(3, 2), (3, 2), (2, 1), 3), {}),
    ],
    "aten::topk": [((draw(4, 9), 3), {}), ((draw(4, 9), 2, 0, False), {}), ((draw(), 1), {})],
    "aten::argsort": [((draw(4, 9),), {}), ((draw(4, 9), 0, True), {})],
    "aten::argsort.stable": [((ints(3, 4, 9),), {"stable": True, "dim": 1})],
    "aten::nonzero_static": [
        ((ints(2, 3, 4),), {"size": 5}),
        ((ints(2, 3, 4),), {"size": 20, "fill_value": 7}),
        ((ints(2, 8),), {"size": 2}),
        ((torch.zeros(3),), {"size": 2}),
    ],
    "aten::value_selecting_reduction_backward": [
        ((draw(4), 1, ints(6, 4), (4, 6), False), {}),
        ((draw(1, 6), 0, ints(4, 1, 6), (4, 6), True), {}),
    ],
    "aten::index_copy": [
        ((draw(5, 4), 0, torch.tensor([3, 1]), draw(2, 4)), {}),
        ((draw(5, 4), 1, torch.tensor([0, 2, 3]), draw(5, 3)), {}),
    ],
    "aten::index_put": [
        ((draw(5, 4), [draw(5, 4) > 0], torch.tensor(2.0)), {}),
        ((draw(5, 4), [draw(5) > 0], torch.tensor(2.0), True), {}),
    ],
    "aten::embedding_dense_backward": [
        ((draw(2, 7, 3), ints(5, 2, 7), 5, -1, False), {}),
        ((draw(2, 7, 3), ints(5, 2, 7), 5, 2, False), {}),
        ((draw(9, 3), ints(5, 9), 5, -1, True), {}),
    ],
    "aten::histc": [((draw(50),), {"bins": 7}), ((draw(50),), {"bins": 4, "min": -1, "max": 1})],
    "aten::scalar_tensor": [((3,), {"dtype": F32}), ((2,), {"dtype": I64}), ((True,), {"dtype": torch.bool})],
    "aten::linalg_vector_norm": [
        ((draw(4, 6), order, dims, keep), {})
        for order in (0, 1, 2, 2.5, 3, math.inf, -math.inf)
        for dims, keep in (((1,), True), (None, False))
    ],
    "aten::sigmoid_backward": [((draw(4), draw(4).sigmoid()), {})],
    "aten::silu_backward": [((draw(4), draw(4)), {}), ((draw(64).bfloat16(), draw(64).bfloat16()), {})],
    "aten::_foreach_pow.Scalar": [(([draw(3).abs(), draw(2, 2).abs()], 1.5), {})],
    "aten::__rshift__.Scalar": [((ints(100, 5), 2), {}), ((torch.tensor([-9, 8]), 1), {})],
    "aten::convolution_backward": [
        ((draw(2, 4, 4, 4), draw(2, 3, 9, 9), draw(4, 3, 3, 3), [4], [2, 2], [0, 0], [1, 1], *ONE_GROUP), {}),
        ((draw(2, 4, 8, 5), draw(2, 3, 8, 9), draw(4, 3, 3, 3), [4], [1, 2], [1, 1], [1, 1], *ONE_GROUP), {}),
        ((draw(2, 4, 6), draw(2, 3, 10), draw(4, 3, 3), None, [1], [0], [2], False, [0], 1, [True, True, False]), {}),
        ((draw(2, 6, 6), draw(2, 4, 12), draw(6, 2, 3), [6], [2], [1], [1], False, [0], 2, [True] * 3), {}),
        ((draw(2, 4, 10), draw(2, 4, 10), draw(4, 1, 3), [4], [1], [1], [1], False, [0], 4, [True] * 3), {}),
        ((draw(2, 3, 12), draw(2, 4, 6), draw(4, 3, 3), [3], [2], [1], [1], True, [1], 1, [True] * 3), {}),
        ((draw(2, 6, 7), draw(2, 4, 5), draw(4, 3, 3), [6], [1], [0], [1], True, [0], 2, [True] * 3), {}),
    ],
    "aten::nll_loss_forward": [
        ((LOGITS, ints(5, 6), None, 1, -100), {}),
        ((LOGITS, ints(5, 6), draw(5).abs(), 1, 2), {}),
        ((LOGITS, ints(5, 6), draw(5).abs(), 2, -100), {}),
        ((LOGITS, torch.tensor([0, -100, 4, 1, -100, 2]), None, 0, -100), {}),
        ((LOGITS[0], torch.tensor(3), None, 1, -100), {}),
    ],
    "aten::_native_batch_norm_legit_functional": [
        ((draw(6, 3, 4, 4), draw(3), draw(3), draw(3), draw(3).abs(), training, 0.1, 1e-5), {})
        for training in (True, False)
    ] + [((draw(6, 3), None, None, draw(3), draw(3).abs(), True, 0.1, 1e-5), {})],
    "aten::max_pool2d_with_indices_backward": [
        ((draw(2, 3, 4, 4), draw(2, 3, 8, 8), [3, 3], [2, 2], [1, 1], [1, 1], False,
          aten.max_pool2d_with_indices(draw(2, 3, 8, 8), [3, 3], [2, 2], [1, 1])[1]), {}),
    ],
}  # fmt: skip
ELSEWHERE = {
    "aten::linear_backward",
    "aten::_grouped_mm",
    "aten::_scaled_dot_product_fused_attention_overrideable",
    "aten::_scaled_dot_product_fused_attention_overrideable_backward",
}
"""Ops with no CPU kernel to compare with directly: their tests are below."""


def functions() -> dict[str, Callable[..., Any]]:
    return {**OWN, **{op.name(): function for op, function in lowering_equivalents().items()}}


def test_every_decomposition_of_our_own_is_tested() -> None:
    assert set(CALLS) | ELSEWHERE == set(functions())


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_decomposition_gives_what_the_op_gives(name: str) -> None:
    namespace, rest = name.split("::")
    base, _, kind = rest.partition(".")
    op = getattr(getattr(getattr(torch.ops, namespace), base), kind or "default")
    for args, kwargs in CALLS[name]:
        expected, given = op(*args, **kwargs), functions()[name](*args, **kwargs)
        torch.testing.assert_close(given, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("groups", [6, 3, 1])
@pytest.mark.parametrize(
    ("causal", "bias_shape"), [(False, None), (True, None), (False, (2, 6, 5, 5)), (False, (1, 6, 1, 5))]
)
def test_fused_attention_and_its_gradients_are_those_of_the_math_path(
    causal: bool, bias_shape: tuple[int, ...] | None, groups: int
) -> None:
    query = draw(2, 6, 5, 8, seed=0).requires_grad_()
    key, value = (draw(2, groups, 5, 8, seed=seed).requires_grad_() for seed in (1, 2))
    bias = draw(*bias_shape).requires_grad_() if bias_shape is not None else None
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, bias, is_causal=causal, enable_gqa=True
    )
    out, logsumexp, *_, max_q, max_k, seed, offset, _ = OWN["aten::_scaled_dot_product_fused_attention_overrideable"](
        query, key, value, bias, 0.0, causal
    )
    grad = draw(2, 6, 5, 8)
    wanted = torch.autograd.grad(expected, [query, key, value, *([bias] if bias is not None else [])], grad)
    backward = OWN["aten::_scaled_dot_product_fused_attention_overrideable_backward"]
    given = backward(
        grad, query, key, value, bias, [True] * 4, out, logsumexp, None, None, max_q, max_k, 0.0, causal, seed, offset
    )
    torch.testing.assert_close(out, expected)
    for ours, theirs in zip(given, wanted, strict=False):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_linear_backward_gives_autograds_gradients() -> None:
    x, weight, bias = draw(2, 3, 4).requires_grad_(), draw(5, 4).requires_grad_(), draw(5).requires_grad_()
    grad = draw(2, 3, 5)
    wanted = torch.autograd.grad(torch.nn.functional.linear(x, weight, bias), (x, weight, bias), grad)
    given = OWN["aten::linear_backward"](x, grad, weight, [True, True, True])
    torch.testing.assert_close(given, wanted)
    assert OWN["aten::linear_backward"](x, grad, weight, [True, False, False])[1:] == (None, None)


def test_grouped_mm_multiplies_each_group_of_rows_by_its_own_matrix() -> None:
    x, weight = draw(7, 4), draw(3, 4, 5)
    given = OWN["aten::_grouped_mm"](x, weight, torch.tensor([2, 2, 7], dtype=torch.int32))
    torch.testing.assert_close(given, torch.cat([x[:2] @ weight[0], x[2:] @ weight[2]]))


def test_what_the_backend_leaves_alone_stays_as_it_is() -> None:
    several_values = (draw(4), [torch.tensor([True, False, True, True])], draw(3))
    assert OWN["aten::as_strided"](draw(4, 6)[:, :3], (4, 6), (6, 1), 0) is NotImplemented
    assert OWN["aten::as_strided_scatter"](draw(4, 6)[:, :3], draw(3), (3,), (1,), 0) is NotImplemented
    assert OWN["aten::index_put"](*several_values) is NotImplemented
    assert OWN["aten::_grouped_mm"](draw(4, 6), draw(6, 4), torch.tensor([6], dtype=torch.int32)) is NotImplemented


def test_every_name_of_the_profile_has_a_decomposition() -> None:
    names = load_profile(None).decompositions
    served = {op.name() for op in decomposition_table(names)}
    custom = {name for name, kind in names.items() if kind != "inherited"}
    assert custom <= served
    # Composites: PyTorch takes them apart before any table is asked.
    assert sorted(set(names) - served) == ["aten::index_select_backward", "aten::split.sizes", "aten::unbind.Dimname"]


def test_a_name_this_pytorch_does_not_have_is_left_out() -> None:
    assert decomposition_table(["aten::no_such_op", "aten::silu"]).keys() == {aten.silu.default}
