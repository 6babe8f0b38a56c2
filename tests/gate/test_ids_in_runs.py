"""Ids of findings in real runs: the same whenever and wherever they are made; lines, layers and witnesses aside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORKLOAD = """\
import torch
import torch.nn.functional as F
LAYERS = 2


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        x = torch.lgamma(self.inner(x).tanh() + 2)
        order = torch.sort(x, dim=-1).values
        order = torch.sort(order, dim=-1, descending=True).values
        if order.mean().item() > 1e9:
            order = order * 0
        return x + order


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def make_model():
    return Net()


def make_batch(step):
    return {"x": torch.randn(2, 8, generator=torch.Generator().manual_seed(step))}


def loss_fn(output, batch):
    return F.mse_loss(output, torch.zeros_like(output))
"""
CHECK: dict[str, Any] = {"name": "net", "workload": "net.py", "training": {"steps": 1, "warmup": 0}}
FEWER = {"tracker": False, "warnings": False}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Variants of one project, each in a folder of its own."""
    top = tmp_path_factory.mktemp("variants")
    edited = WORKLOAD.replace("LAYERS = 2", "# a comment\n\nUNUSED = 1\nLAYERS = 2")
    variants = {
        "first": (top / "a", WORKLOAD, CHECK),
        "again": (top / "a", WORKLOAD, CHECK),
        "elsewhere": (top / "ci" / "build-17", WORKLOAD, CHECK),
        "edited above": (top / "b", edited, CHECK),
        "more layers": (top / "c", WORKLOAD.replace("LAYERS = 2", "LAYERS = 5"), CHECK),
        "fewer witnesses": (top / "d", WORKLOAD, CHECK | {"witnesses": FEWER}),
    }
    files = []
    for folder, text, check in variants.values():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "net.py").write_text(text)
        (folder / "check.json").write_text(json.dumps(check))
        files.append(str(folder / "check.json"))
    command = [sys.executable, str(Path(__file__).parent / "run_variants.py"), *files]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment)
    assert done.returncode == 0, done.stderr
    return dict(zip(variants, json.loads(done.stdout), strict=True))


def ids(run: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {f["id"]: (f["rule"], f["op"], f["phase"]) for f in run["findings"]}


def test_the_run_finds_something_of_several_rules_and_phases(runs: dict[str, dict[str, Any]]) -> None:
    told = set(ids(runs["first"]).values())
    assert ("NST101", "aten::lgamma.out", "forward") in told
    assert ("NST101", "aten::digamma.out", "backward") in told
    assert "NST103" in {rule for rule, _, _ in told}


@pytest.mark.parametrize("variant", ["again", "elsewhere", "edited above", "more layers", "fewer witnesses"])
def test_ids_are_the_same(runs: dict[str, dict[str, Any]], variant: str) -> None:
    assert ids(runs[variant]) == ids(runs["first"])


def test_the_edit_moved_the_lines_and_the_layers_changed_the_counts(runs: dict[str, dict[str, Any]]) -> None:
    def lgamma(run: dict[str, Any]) -> dict[str, Any]:
        (found,) = [f for f in run["findings"] if f["op"] == "aten::lgamma.out"]
        return found

    assert lgamma(runs["edited above"])["site"]["line"] == lgamma(runs["first"])["site"]["line"] + 3
    assert (lgamma(runs["first"])["calls_per_step"], lgamma(runs["more layers"])["calls_per_step"]) == (2, 5)
    assert lgamma(runs["fewer witnesses"])["witnesses"] == ["dispatch", "kernels"]


def test_the_same_run_twice_differs_in_times_only(runs: dict[str, dict[str, Any]]) -> None:
    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: timeless(inner) for key, inner in value.items() if not key.endswith("_ms")}
        return [timeless(inner) for inner in value] if isinstance(value, list) else value

    assert timeless(runs["again"]) == timeless(runs["first"])
