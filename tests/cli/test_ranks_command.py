"""`smoketest run --nproc`, as typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NET = """\
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)
"""
CHECK = """\
model: {target: net.py:Net}
batch: {tensors: {x: {shape: [6, 4]}, y: {shape: [6, 4]}}, forward: [x]}
loss: {name: mse_loss, target: batch.y}
training: {steps: 1, warmup: 0}
device: emulated
compile: {enabled: false}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    Path("net.yaml").write_text(CHECK)


def typed(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "smoketest", "run", "net.yaml", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("arguments", "expected"), [
    (("--nproc", "4"),
     "error: net.yaml:2:31: batch.tensors.x: the first dimension, 6, does not split into equal parts for 4 ranks"
     " (and 1 more mistake)"),
    (("--nproc", "2", "--device", "cpu"),
     "error: --nproc 2: parallel: 2 ranks need device neuron or emulated: on plain CPU there is nothing to"
     " see\n  hint: use --nproc 1 for one plain process"),
    (("--set", "parallel.nproc=2", "--set", "device=cpu"), "error: --set parallel.nproc=2: parallel: 2 ranks"),
    (("--nproc", "0"), "Invalid value for '--nproc': Input should be greater than or equal to 1"),
])  # fmt: skip
def test_ranks_that_cannot_be_are_refused_before_anything_runs(arguments: tuple[str, ...], expected: str) -> None:
    code, said = typed(*arguments)
    assert code == 2
    assert expected in said


@pytest.mark.skipif(not os.environ.get("SMOKETEST_LONG"), reason="`make ranks`, or SMOKETEST_LONG=1")
def test_without_parallel_ranks_run_under_ddp_which_is_said() -> None:
    code, said = typed("--nproc", "3", "--quiet")
    assert code == 0, said
    assert "net: the check has no `parallel`, so its 3 ranks run under ddp" in said
    assert "3 ranks (ddp)" in said
    assert "--nproc 3" in Path("reports/net/report.md").read_text()
