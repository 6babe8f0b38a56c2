"""The compile probe from Python: `smoketest.probe`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from smoketest.findings import SitePolicy
from smoketest.findings.sites import project_root
from smoketest.operators.profile import load_profile
from smoketest.probe.capture import unchanged
from smoketest.probe.probe import ProbeResult
from smoketest.probe.probe import probe as probe_steps

__all__ = ["loss_of", "probe"]


def probe(model: nn.Module, *args: Any, **kwargs: Any) -> ProbeResult:
    """See `smoketest.probe`."""

    def step(call: Callable[..., Any], _index: int) -> None:
        loss = loss_of(call(*args, **kwargs))
        if loss is not None:
            loss.backward()  # type: ignore[no-untyped-call]

    with _gradients_kept((args, kwargs)):
        with unchanged(model):
            step(model, 0)  # fills caches and lazy modules, and raises what the model raises anyhow
        return probe_steps(model, step, profile=load_profile(None), site_policy=SitePolicy(project_root(Path.cwd())))


def loss_of(output: Any) -> torch.Tensor | None:
    """What to go backward from: the output's own loss, else the sum of all that requires a gradient."""
    own = getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own if own.requires_grad else None
    tensors = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not tensors:
        return None
    return sum((tensor.abs() if tensor.is_complex() else tensor).sum() for tensor in tensors)  # type: ignore[return-value]


@contextmanager
def _gradients_kept(inputs: Any) -> Iterator[None]:
    """Inputs that collect gradients have afterwards those they had."""
    kept = [(leaf, leaf.grad) for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor) and leaf.is_leaf]
    try:
        yield
    finally:
        for tensor, gradient in kept:
            tensor.grad = gradient
