"""The compile part and a data loader: its shapes become a finding at its line, and what was not looked at is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smoketest.config.models import Check
from smoketest.devices.cpu import CpuDevice
from smoketest.findings import SitePolicy
from smoketest.findings.report import Environment
from smoketest.probe.probe import ProbeResult
from smoketest.supervise.protocol import Message, Note
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.compile import with_loader
from smoketest.worker.job import Job

SOURCE = """import torch


def make_loader():
    return [torch.zeros(2, length) for length in (3, 6, 3, 5)]
"""


def sampled(folder: Path, **batch: Any) -> tuple[ProbeResult, list[Message]]:
    (folder / "data.py").write_text(SOURCE)
    (folder / "crumb").write_bytes(b" " * 1024)
    sent: list[Message] = []
    model = {"target": "torch.nn:Identity"}
    check = {"name": "c", "model": model, "batch": {"loader": f"{folder / 'data.py'}:make_loader", **batch}}
    job = Job(
        check=Check.model_validate(check),
        device=CpuDevice(),
        policy=SitePolicy(folder),
        environment=Environment(python="3", platform="here"),
        emit=sent.append,
        breadcrumb=BreadcrumbFile(folder / "crumb"),
    )
    return with_loader(job, ProbeResult()), sent


def notes(sent: list[Message]) -> list[str]:
    return [f"{m.not_checked.what}: {m.not_checked.why}" for m in sent if isinstance(m, Note)]


def test_the_finding_is_at_the_loaders_line_and_counts_all_its_batches(tmp_path: Path) -> None:
    result, sent = sampled(tmp_path)
    (finding,) = result.findings
    assert (finding.rule, finding.class_) == ("NST205", "recompile")
    assert finding.site is not None
    assert (finding.site.file, finding.site.line, finding.site.code) == ("data.py", 4, "def make_loader():")
    assert finding.message.startswith("make_loader gives 3 distinct shapes in 4 batches: 3 compiles of every graph")
    assert finding.witnesses == ("loader",)
    assert notes(sent) == []


def test_batches_beyond_the_sample_are_not_checked(tmp_path: Path) -> None:
    result, sent = sampled(tmp_path, sample=1)
    assert result.findings == ()
    (note,) = notes(sent)
    assert (
        note == "shapes of further batches of make_loader, if there are more: the first 1 were looked at (batch.sample)"
    )


def test_a_sample_of_none_says_so(tmp_path: Path) -> None:
    result, sent = sampled(tmp_path, sample=0)
    assert result.findings == ()
    assert notes(sent) == ["shapes of the batches of make_loader: batch.sample is 0"]
