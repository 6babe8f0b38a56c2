"""The compile part of a check, from its YAML to the events it sends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from smoketest.config.load import load_check
from smoketest.devices.base import open_device
from smoketest.findings import SitePolicy
from smoketest.findings.report import Environment
from smoketest.supervise.protocol import Facts, FindingsSoFar, Message, Note, PhaseStarted, Progress, Result
from smoketest.worker import compile as compile_part
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.job import Job

WORKLOAD = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.LazyLinear(4)

    def forward(self, x):
        y = torch.lgamma(self.first(x).abs() + 1)
        return torch.erfinv(y.tanh())

def make_model():
    return Model()

def make_batch(step):
    return (torch.rand(3 if step < 2 else 2, 5),), {}

def loss_fn(output, batch):
    return output.sum()
"""


@pytest.fixture
def ran(tmp_path: Path) -> Callable[..., list[Message]]:
    def run(text: str = "") -> list[Message]:
        (tmp_path / "model.py").write_text(WORKLOAD)
        (tmp_path / "check.yaml").write_text(f"name: check\nworkload: model.py\ntraining: {{steps: 3}}\n{text}")
        breadcrumb = tmp_path / "breadcrumb"
        breadcrumb.write_bytes(b" " * 1024)
        sent: list[Message] = []
        job = Job(
            check=load_check(tmp_path / "check.yaml"),
            device=open_device("cpu"),
            policy=SitePolicy(tmp_path),
            environment=Environment(),
            emit=sent.append,
            breadcrumb=BreadcrumbFile(breadcrumb),
        )
        compile_part.run(job)
        return sent

    return run


def test_the_compile_part_sends_phases_progress_findings_and_its_result(ran: Callable[..., list[Message]]) -> None:
    sent = ran()
    phases = [message.name for message in sent if isinstance(message, PhaseStarted)]
    assert phases == ["setup", "capture", "lower", "lower whole graphs"]
    assert isinstance(sent[1], Facts)
    assert sent[1].device.profile == "torch-neuronx-prerelease-2026-04"
    done = [message for message in sent if isinstance(message, Progress) and message.what == "lower"]
    assert [message.done for message in done] == list(range(done[-1].total + 1))

    (findings,) = [message.findings for message in sent if isinstance(message, FindingsSoFar)]
    seen = {(f.rule, f.op, f.phase, f.site and (f.site.file, f.site.line), f.grounds) for f in findings}
    lgamma, erfinv = ("model.py", 11), ("model.py", 12)
    assert {
        ("NST201", "aten::lgamma", "forward", lgamma, "cannot_lower"),
        ("NST201", "aten::digamma", "backward", lgamma, "cannot_lower"),
        ("NST201", "aten::erfinv", "forward", erfinv, None),
        ("NST205", None, "forward", ("model.py", 10), None),
    } <= seen
    assert {f.op: f.calls_per_step for f in findings if f.phase == "forward"}["aten::lgamma"] == 1

    result = sent[-1]
    assert isinstance(result, Result)
    assert result.compile is not None
    assert (result.compile.status, result.compile.reason, result.compile.recompiles) == ("ran", None, 1)
    assert {graph.status for graph in result.compile.graphs} == {"failed"}
    rows = {row.op: row.compile for row in result.operators}
    assert (rows["aten::lgamma"], rows["aten::erfinv"], rows["aten::add.Tensor"]) == ("fails", "unknown", "lowers")


def test_without_torch_mlir_the_part_is_skipped_with_what_to_type(
    ran: Callable[..., list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = 'torch-mlir is not installed: pip install ".[lowering]" in a clone of smoketest'
    monkeypatch.setattr("smoketest.probe.probe.missing_reason", lambda: reason)
    *before, findings, result = ran()
    assert isinstance(result, Result)
    assert result.compile is not None
    assert (result.compile.status, result.compile.reason) == ("skipped", reason)
    assert result.compile.ops_probed is None
    assert isinstance(findings, FindingsSoFar)
    assert {found.rule for found in findings.findings} == {"NST205"}
    notes = [message.not_checked for message in before if isinstance(message, Note)]
    assert ("lowering", reason) in [(note.what, note.why) for note in notes]
