"""Modules called within torch.func transforms: compared as far as can be, and what is not seen is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import state_runs

MAML = """
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
class Maml(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    def loss(self, parameters, x, y):
        return (functional_call(self.net, parameters, (x,)) - y).square().mean()
    def task(self, x, y):
        parameters = dict(self.net.named_parameters())
        gradients = grad(self.loss)(parameters, x, y)
        return self.loss({name: p - 0.1 * gradients[name] for name, p in parameters.items()}, x, y)
    def forward(self, x, y):
        return vmap(self.task)(x, y)
def make_model():
    return Maml()
def make_batch(step):
    g = torch.Generator().manual_seed(step)
    return (torch.randn(4, 5, 3, generator=g), torch.randn(4, 5, 1, generator=g)), {}
def loss_fn(output, batch):
    return output.mean()
"""


def test_a_maml_step_is_compared_and_what_is_not_seen_is_said_in_plain_words(tmp_path: Path) -> None:
    file = tmp_path / "maml.py"
    file.write_text(MAML)
    check = {"name": "check", "workload": str(file), "training": {"steps": 1, "warmup": 1}}
    (tmp_path / "asked.json").write_text(json.dumps([{"check": check, "broken": False}]))
    done = subprocess.run(
        [sys.executable, str(Path(state_runs.__file__)), str(tmp_path / "asked.json")],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (seen,) = json.loads(done.stdout)
    assert (seen["raised"], seen["eager"], "NST106" in seen["rules"]) == ([], "ran", False)
    assert seen["parity"]["status"] == "ran"
    assert seen["parity"]["tensors"] >= 8  # gradients and updates of the parameters
    notes = seen["notes"]
    assert notes["parity of what modules take and give within torch.func transforms"].startswith("vmap, grad and the")
    counted = notes["activations kept for backward, and whether shapes move"]
    assert counted.startswith(
        "the step uses transforms of torch.func (grad, vjp and the like), which are not seen into"
    )
    assert not [why for why in notes.values() if ".item()" in why or "open an issue" in why]
