"""What a report says of a workload: names and sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoketest.config.load import load_check
from smoketest.config.models import Witnesses
from smoketest.devices.cpu import CpuDevice
from smoketest.worker import describe
from smoketest.worker.unheard import not_heard
from smoketest.workload import build

STEP_OF_ITS_OWN = """
import torch

def make_model():
    return torch.nn.Linear(3, 2)

def make_batch(step):
    return {"seen": torch.ones(4, 3), "reward": torch.ones(4)}

def train_step(model, batch, optimizers):
    loss = (model(batch["seen"]).sum(-1) * batch["reward"]).sum()
    loss.backward()
    optimizers.step()
    return loss
"""


def test_the_batch_of_a_custom_step_is_described_by_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(STEP_OF_ITS_OWN)
    (tmp_path / "own.yaml").write_text("workload: own.py\n")
    check = load_check(tmp_path / "own.yaml")
    said = describe.workload(build(check, CpuDevice()), check)
    assert said.batch == {"seen": "f32[4, 3]", "reward": "f32[4]"}
    assert said.model == "Linear"
    assert said.parameters == 8


class Neuron(CpuDevice):
    kind = "neuron"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("copies", "what"),
    [
        (True, "copies to the host inside native ops that neither PyTorch dispatches nor Python makes"),
        (False, "copies to the host inside native ops"),
    ],
)
def test_on_a_real_device_the_copies_that_nothing_counts_are_named_and_what_it_prints_is_not(
    copies: bool, what: str
) -> None:
    notes = [note for note, _ in not_heard(Neuron(), Witnesses(copies=copies))]
    assert [note for note in notes if note.startswith("copies")] == [what]
    assert not [note for note in notes if "prints" in note]
