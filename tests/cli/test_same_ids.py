"""A finding has the same id in every checkout, wherever it lies, however it is called and from where it is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

WORKLOAD = """\
import torch

from helpers.gamma import log_gamma


class Net(torch.nn.Linear):
    def forward(self, x):
        return log_gamma(torch.acos(super().forward(x).tanh() / 2) + 2)


def make_model():
    return Net(4, 4)


def make_batch(step):
    return {"input": torch.randn(2, 4)}


def loss_fn(output, batch):
    return output.sum()
"""
HELPER = """\
import torch


def log_gamma(x):
    return torch.lgamma(x)
"""


def checkout(folder: Path) -> Path:
    """A project without any mark of one: the check in one folder, the workload outside of it."""
    for name, text in {
        "configs/c.yaml": "workload: ../w.py\ntraining: {steps: 1, warmup: 0}\nparity: {enabled: false}\n",
        "w.py": WORKLOAD,
        "helpers/gamma.py": HELPER,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def findings(output: Path, check: Path | str, cwd: Path) -> set[tuple[str, str, str, str]]:
    command = [sys.executable, "-m", "smoketest", "run", str(check), "--device", "emulated", "--no-compile", "--quiet"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--output", str(output)], cwd=cwd, env=environment, timeout=200, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr
    report = json.loads((output / "c" / "report.json").read_text())
    return {(f["id"], f["op"], f["phase"], f["site"]["file"]) for f in report["findings"]}


def test_ids_do_not_depend_on_the_checkout_nor_on_where_the_command_is_typed(tmp_path: Path) -> None:
    one, two = checkout(tmp_path / "alice" / "proj"), checkout(tmp_path / "ci" / "build-17")
    seen = findings(tmp_path / "o1", "configs/c.yaml", one)
    assert {(op, file) for _, op, phase, file in seen if phase == "forward"} == {
        ("aten::acos.out", "w.py"),
        ("aten::lgamma.out", "helpers/gamma.py"),
    }
    assert findings(tmp_path / "o2", two / "configs" / "c.yaml", Path("/")) == seen
