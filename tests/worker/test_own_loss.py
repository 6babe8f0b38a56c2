"""A loss that the YAML names has no line of Python: findings of it say whose it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smoketest.render import words

MODEL = """import torch
def make_model(): return torch.nn.Linear(2, 2)
def make_batch(step): return {"input": torch.ones(3, 2), "target": torch.ones(3, 2)}
"""


def test_findings_of_a_loss_that_the_yaml_names_say_that_it_is_the_checks_own(run_worker: Any, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(MODEL)
    loss = {"name": "mse_loss", "target": "batch.target"}
    check = {"workload": str(tmp_path / "work.py"), "batch": {"forward": ["input"]}, "loss": loss}
    run = run_worker(check, fresh=True)  # a forked worker has a frame of the tests around it all
    of_loss = [finding for finding in run.findings if finding.op.startswith("aten::mse_loss")]
    assert {finding.phase for finding in of_loss} == {"forward", "backward"}
    for finding in of_loss:
        assert finding.site is None
        assert finding.message.endswith(", in the check's own loss (mse_loss)")
        assert words.no_place(finding) == "the check's own loss (its key `loss`)"


def test_a_loss_of_the_users_keeps_its_line(run_worker: Any, tmp_path: Path) -> None:
    text = MODEL + "def loss_fn(output, batch): return torch.nn.functional.mse_loss(output, batch['target'])\n"
    (tmp_path / "work.py").write_text(text)
    run = run_worker({"workload": str(tmp_path / "work.py"), "batch": {"forward": ["input"]}})
    of_loss = [finding for finding in run.findings if finding.op.startswith("aten::mse_loss")]
    assert {finding.site.line for finding in of_loss} == {4}
    assert not any("own loss" in finding.message for finding in of_loss)
