"""A model that every release can compile goes through the compile part of a run on the real device."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from running import Place

from smoketest.config.load import load_check
from smoketest.supervise.run import Options, run_check

CHECK = """
name: linear
model: {target: "torch.nn:Linear", args: [8, 4]}
batch:
  tensors: {x: {shape: [2, 8]}, y: {shape: [2, 4]}}
  forward: [x]
loss: {name: mse_loss, input: output, target: batch.y}
optimizer: {name: SGD, lr: 0.1}
training: {steps: 1, warmup: 1}
parity: {enabled: false}
device: neuron
"""


@pytest.mark.parametrize(
    "name",
    [pytest.param("late", marks=pytest.mark.doubles), pytest.param("genuine", marks=pytest.mark.neuron)],
)
def test_a_linear_map_compiles_runs_and_gives_what_eager_mode_gives(
    name: str, place: Callable[[str], Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = place(name).environ
    for variable in os.environ.keys() - environ.keys():
        monkeypatch.delenv(variable)
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    (tmp_path / "linear.yaml").write_text(CHECK)
    report = run_check(load_check(tmp_path / "linear.yaml"), Options(output=tmp_path / "out"))
    assert report.compile.status == "ran", report.headline
    assert [(graph.id, graph.status, graph.stage) for graph in report.compile.graphs] == [
        ("0.forward", "lowered", "executed"),
        ("0.backward", "lowered", "executed"),
    ]
    assert all(graph.first_ms and graph.steady_ms for graph in report.compile.graphs)
    assert [finding.rule for finding in report.findings if finding.rule.startswith("NST2")] == []
