"""What a check says of the emulated device reaches it: limits that act or are told, and a profile of one's own."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

WIDE = """import torch
class Net(torch.nn.Linear):
    def forward(self, x, wide): return super().forward(x)
def make_model(): return Net(2, 2)
def make_batch(step): return (torch.ones(3, 2), torch.tensor([1 + 2.0**-40], dtype=torch.float64)), {}
def loss_fn(output, batch): return output.mean() * 0 + ((batch[0][1] - 1) * 2.0**40).sum().float()
"""
BENT = """import torch
def make_model(): return torch.nn.Linear(2, 2)
def make_batch(step): return (torch.ones(3, 2),), {}
def loss_fn(output, batch): return torch.atan2(output, output.exp()).sinh().mean()
"""
PLACE = "limits of the device that this model met, possible problems"


def _workload(folder: Path, text: str, **check: Any) -> dict[str, Any]:
    (folder / "work.py").write_text(text)
    return {"workload": str(folder / "work.py"), **check}


def test_a_limit_of_a_prerelease_is_told_and_acts_only_when_asked(run_worker: Any, tmp_path: Path) -> None:
    check = _workload(tmp_path, WIDE)
    let_past, strict = run_worker(check), run_worker(check, strict_limits=True)
    notes = {note.not_checked.what: note.not_checked.why for note in let_past.of("note")}
    assert notes[PLACE] == (
        "only a pre-release is known to have them, and without --strict-limits they do not act: "
        "float64: computed as float32 and cast back; tensors without dimensions are left alone"
    )
    assert {step.loss for step in let_past.eager.steps} == {1.0}
    assert {step.loss for step in strict.eager.steps} == {0.0}
    assert PLACE not in {note.not_checked.what for note in strict.of("note")}


def test_a_profile_of_the_checks_decides_what_falls_back(run_worker: Any, tmp_path: Path) -> None:
    text = (resources.files("smoketest.operators") / "data" / "torch-neuronx-prerelease-2026-04.json").read_text()
    content = json.loads(text)
    content["native"]["aten::atan2.out"] = "torch_mlir"
    (tmp_path / "mine.json").write_text(json.dumps(content | {"name": "mine"}))
    run = run_worker(_workload(tmp_path, BENT, profile=str(tmp_path / "mine.json")))
    assert {finding.op for finding in run.findings if finding.phase == "forward"} == {"aten::sinh.out"}
    assert {facts.device.profile for facts in run.of("facts")} == {"mine"}
    assert run.of("facts")[0].device.profile_note.startswith("emulated on the CPU with the operator list mine (PRE, ")
