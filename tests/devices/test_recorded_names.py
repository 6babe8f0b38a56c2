"""Recorded and executed names are those the registry of April 2026 predicts, for all that operator samples reach.

``make conformance`` does the same with all samples.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from recorded_names import REGISTRY, Seen, sweep
from torch import nn

from smoketest.devices.emulated import EmulatedDevice

_swept: list[Seen] = []


@pytest.fixture
def seen(device: EmulatedDevice) -> Seen:
    """One sample of every op and dtype, run once for this module."""
    if not _swept:
        _swept.append(sweep(device))
    return _swept[0]


def test_what_is_recorded_is_what_the_registry_says(seen: Seen, device: EmulatedDevice) -> None:
    assert seen.differences(device.profile.view_whitelist) == {}
    told = [overload for overload in seen.recorded if seen.expected(overload) is not None]
    assert len(told) > 800, "of 2368 that the registry names; the rest is of other backends, layouts, dtypes"
    assert sum(overload in REGISTRY["recorded"] for overload in told) > 450


def test_a_difference_would_be_found() -> None:
    wrong = Seen({"aten::acos": [frozenset({"aten::acos"})], "aten::mm": [frozenset({"aten::mm"})]})
    assert wrong.differences(()) == {
        "aten::acos": "recorded ['aten::acos'], the registry says ['aten::acos.out']",
        "aten::mm": "recorded ['aten::mm'], the registry says []",
    }


# ---------------------------------------------------------------- what the tree's own tests assert

DIFFERS = {
    "aten::cross_entropy_loss": "a composite: the test that asserts it is skipped",
    "aten::eye_": "no such overload: aten::eye.m_out has the kernel",
    "aten::index_select_backward": "composed of others here, so that it can be differentiated twice",
    "native_multi_head_attn_mid": "a kernel inside the backend's own attention, no ATen op",
    **dict.fromkeys(
        (
            "aten::batch_norm_backward_elemt",
            "aten::batch_norm_backward_reduce",
            "aten::batch_norm_elemt",
            "aten::batch_norm_gather_stats_with_counts",
            "aten::batch_norm_stats",
        ),
        "pieces of SyncBatchNorm, which needs several processes; PyTorch has no CPU kernel to compute them with",
    ),
}
"""Asserted to be native, and not seen among the executed names here."""

OF_A_CASE = {
    "aten::cat": "of one case in that test: an op with a kernel",
    "aten::nonzero_static": "of one case in that test: an op with a kernel",
    "index": "of one case in that test: an op with a kernel",
}
"""Asserted not to run on the device, and seen there."""


def _train(device: EmulatedDevice) -> set[str]:
    """Executed by what no operator sample does: modules, optimizers, ``out=`` and reductions in a scatter."""
    torch.manual_seed(0)
    device.clear_op_tracking()
    linear, norm = nn.Linear(8, 8).to("neuron"), nn.RMSNorm(8).to("neuron")
    x = torch.rand(1, 2, 8, 8).to("neuron").requires_grad_()
    h = norm(linear(x))
    h = nn.functional.scaled_dot_product_attention(h, h, h)
    for mode in ("reflect", "replicate"):
        h = nn.functional.pad(nn.functional.pad(h, (1, 1, 1, 1), mode=mode)[None], (1,) * 6, mode=mode)[0]
    h.max(-1)[0].sum().backward()
    parameters = [*linear.parameters(), *norm.parameters()]
    torch.optim.AdamW(parameters, fused=True).step()
    torch.optim.AdamW(parameters, foreach=True).step()
    nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
    weights = [p.detach() for p in parameters]
    torch._foreach_add_(torch._foreach_mul(torch._foreach_add(weights, 1.0), weights), weights)
    torch._foreach_mul_(weights, weights)
    v, i, out = weights[1], torch.tensor([1, 0]).to("neuron"), torch.empty(8).to("neuron")
    torch.clamp_max(v, 1.0, out=out)
    torch.full((8,), 1.0, out=out)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, that reductions in a scatter are deprecated
        torch.scatter(v, 0, i, v, reduce="add", out=out), v.scatter(0, i, 2.0, reduce="multiply")
    v.isfinite(), nn.functional.one_hot(i), torch.repeat_interleave(i)
    torch._grouped_mm(torch.ones(1, 16, 16).to("neuron").bfloat16(), torch.ones(1, 16, 16).to("neuron").bfloat16())
    return set(device.get_executed_ops())


def _base(name: str) -> str:
    return name.removeprefix("aten::")


def _executed(name: str, executed: set[str]) -> bool:
    """As the tree's own helper judges: the name is part of an executed one ([PRE] tests/utils)."""
    return any(_base(name) in one for one in executed)


def test_what_the_trees_tests_assert_to_be_native_is_executed(seen: Seen, device: EmulatedDevice) -> None:
    executed = seen.executed | _train(device)
    missing = {name for name in REGISTRY["asserted_native"] if not _executed(name, executed)}
    assert missing - set(DIFFERS) == set()
    assert set(DIFFERS) - missing == set(), "agrees now: the reason is out of date"


def test_what_they_assert_not_to_be_native_is_recorded_as_a_fallback(seen: Seen) -> None:
    recorded = {name.partition(".")[0] for calls in seen.recorded.values() for names in calls for name in names}
    asserted = set(REGISTRY["asserted_not_on_neuron"])
    assert asserted - recorded == set(OF_A_CASE)
    short = {_base(name) for name in asserted - set(OF_A_CASE)}
    assert not short & {name.removeprefix("aten::").partition(".")[0] for name in seen.executed}
