"""Under a mode of ours PyTorch goes the way it goes without one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from smoketest.witness.modes import WatchingMode


class Names(WatchingMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


def loss(lengths: torch.Tensor, **options: Any) -> torch.Tensor:
    scores, targets = torch.zeros(5, 2, 3).log_softmax(-1), torch.ones(2, 2, dtype=torch.long)
    return torch.ctc_loss(
        log_probs=scores, targets=targets, input_lengths=lengths, target_lengths=torch.tensor([2, 1]), **options
    )


def test_ctc_loss_takes_lengths_as_numbers_and_is_itself_again_afterwards() -> None:
    plain, original = loss(torch.tensor([5, 4])), torch.ctc_loss
    with Names() as outer, Names():
        watched = loss(torch.tensor([5, 4]))
    assert torch.equal(watched, plain)
    assert "aten::_ctc_loss" in outer.seen
    assert "aten::_ctc_loss.Tensor" not in outer.seen
    assert torch.ctc_loss is original


def test_what_ctc_loss_refuses_it_refuses_under_a_mode_too() -> None:
    with Names(), pytest.raises(RuntimeError, match="must be integral"):
        loss(torch.tensor([5.0, 4.0]))


def test_every_mode_that_watches_a_step_is_one_of_these() -> None:
    from smoketest.witness import copies, dispatch, moved, nonfinite, signatures, strict
    from smoketest.worker import lastop

    modes = {
        value
        for module in (copies, dispatch, moved, nonfinite, signatures, strict, lastop)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, TorchDispatchMode) and value is not WatchingMode
    }
    assert len(modes) >= 8
    assert all(issubclass(mode, WatchingMode) for mode in modes)
