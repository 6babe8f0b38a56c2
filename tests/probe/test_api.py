"""`smoketest.probe`: the compile probe of a model and its inputs, in this process."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import smoketest


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> SimpleNamespace | torch.Tensor:
        y = torch.lgamma(self.norm(x) * self.weight + 9)
        return y if labels is None else SimpleNamespace(loss=(y - labels).square().mean(), other=y)


def test_forward_and_backward_are_probed_again_and_again_and_nothing_is_changed() -> None:
    model, x, given = Net(), torch.rand(3, 4, requires_grad=True), torch.rand(3, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    for labels in (None, given):
        result = smoketest.probe(model, x, labels=labels)
        refused = {(f.op, f.phase, f.site and f.site.code) for f in result.findings if f.rule == "NST201"}
        code = "y = torch.lgamma(self.norm(x) * self.weight + 9)"
        assert {("aten::lgamma", "forward", code), ("aten::digamma", "backward", code)} <= refused
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert (model.weight.grad, x.grad) == (None, None)
    assert torch.equal(torch.get_rng_state(), random)


def test_the_text_of_the_result_is_a_summary() -> None:
    first, second, *rest = repr(smoketest.probe(Net(), torch.rand(3, 4))).splitlines()
    assert first.startswith("2 graphs of ")
    assert " failed, 0 unknown, 0 not reached" in first
    assert second == "0 graph breaks, 0 skipped frames, 0 recompiles"
    assert any("test_api.py:" in line and ": NST201 (forward) aten::lgamma does not lower" in line for line in rest)
    assert rest[-1].startswith("not checked: ")


def test_without_anything_to_differentiate_only_forward_is_probed() -> None:
    result = smoketest.probe(nn.ReLU(), torch.rand(3))
    assert [graph.id for graph in result.graphs] == ["0.forward"]
    assert result.findings == ()


def test_what_the_model_raises_itself_is_raised() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        smoketest.probe(nn.Linear(4, 4), torch.rand(2, 3))


def test_the_name_stays_callable_after_the_package_behind_it_is_imported() -> None:
    code = (
        "import smoketest, sys; assert 'torch' not in sys.modules; first = smoketest.probe\n"
        "import smoketest.probe.graphs, torch\n"
        "assert smoketest.probe is not first\n"
        "print(len(smoketest.probe(torch.nn.ReLU(), torch.rand(2)).graphs))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
