"""Bytes that autograd keeps for backward."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from smoketest.witness.compat import storage_key
from smoketest.witness.saved import SavedTensors

F32 = 4


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 4))


def test_inputs_and_results_that_backward_needs_are_counted_and_weights_are_not() -> None:
    model, x = net(), torch.randn(5, 8)
    with SavedTensors(model) as saved:
        model(x).sum().backward()
    # x for the first weight's gradient, and sigmoid's result: for its own and for the second weight's.
    assert saved.peak == F32 * (5 * 8 + 5 * 16)


def test_a_storage_kept_twice_is_counted_once_and_a_view_as_the_whole_it_keeps() -> None:
    x = torch.randn(100, requires_grad=True)
    doubled = x * 2
    with SavedTensors(nn.Module()) as saved:
        out = doubled.sin() + doubled[:10].cos().sum()
        out.sum().backward()
    assert saved.peak == F32 * 100


def test_micro_batches_and_losses_are_kept_one_after_another_and_only_the_most_counts() -> None:
    model = net()
    with SavedTensors(model) as saved:
        for size in (5, 9, 3):
            model(torch.randn(size, 8)).sum().backward()
    assert saved.peak == F32 * 9 * (8 + 16)
    with SavedTensors(model) as saved:
        losses = [model(torch.randn(size, 8)).sum() for size in (5, 9)]
        sum(losses[1:], losses[0]).backward()  # type: ignore[no-untyped-call]
    assert saved.peak == F32 * (5 + 9) * (8 + 16)


def test_a_graph_that_is_never_run_backward_is_let_go_with_it() -> None:
    model = net()
    with SavedTensors(model) as saved:
        for _ in range(3):
            seen = model(torch.randn(5, 8))
        del seen
        gc.collect()
    assert saved.peak == 2 * F32 * 5 * (8 + 16)  # the next one is made while the last is still there


def test_gradients_are_the_same_with_it_and_second_ones_too() -> None:
    x = torch.randn(6, requires_grad=True)

    def second() -> Tensor:
        (first,) = torch.autograd.grad(x.exp().sin().sum(), x, create_graph=True)
        (result,) = torch.autograd.grad(first.square().sum(), x)
        return result

    plain = second()
    with SavedTensors(nn.Module()):
        watched = second()
    assert torch.equal(plain, watched)


def test_what_a_checkpoint_recomputes_is_not_kept() -> None:
    model, x = net(), torch.randn(5, 8, requires_grad=True)
    with SavedTensors(model) as saved:
        checkpoint(model, x, use_reentrant=False).sum().backward()
    assert saved.peak == F32 * 5 * 8


def test_a_tensor_without_a_storage_is_not_counted_and_said_to_be_left_out() -> None:
    weight = torch.randn(4, 3, requires_grad=True)
    sparse = torch.eye(4).to_sparse()
    with SavedTensors(nn.Module()) as saved:
        torch.sparse.mm(sparse, weight).sum().backward()
    assert saved.unsized >= 1
    assert storage_key(sparse) is None


def test_storages_are_told_apart_by_what_they_are() -> None:
    x = torch.randn(4)
    assert storage_key(x) == storage_key(x[1:]) == storage_key(x.detach())
    assert storage_key(x) != storage_key(x.clone())


def test_five_models_keep_what_plain_hooks_and_a_walk_through_their_graphs_sum_within_10_percent() -> None:
    """On the emulated device, in a process of its own. Measured: the same by hooks, 0.02 % apart by the graph."""
    script = Path(__file__).parent / "saved_models.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    counted = {name: counts for name, *counts in map(json.loads, done.stdout.splitlines())}
    assert list(counted) == ["GPT2", "Bert", "T5", "ViT", "ResNet"]
    for seen, by_hooks, by_graph in counted.values():
        assert seen > 50_000
        assert seen == pytest.approx(by_hooks, rel=0.1)
        assert seen == pytest.approx(by_graph, rel=0.1)
