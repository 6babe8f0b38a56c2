"""One lowering process for all tests of the probe; they run on plain CPU unless they say otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from smoketest.findings import SitePolicy
from smoketest.operators.profile import load_profile
from smoketest.probe.lower import LoweringProcess
from smoketest.probe.probe import ProbeResult, probe

pytest.importorskip("torch_mlir", reason="nothing lowers without torch-mlir")

Probe = Callable[..., ProbeResult]


@pytest.fixture(scope="session")
def lowering() -> Iterator[LoweringProcess]:
    with LoweringProcess() as process:
        yield process


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test begins with an empty cache."""
    monkeypatch.setenv("SMOKETEST_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def probed(lowering: LoweringProcess) -> Probe:
    """Probe a model on given batches: ``probed(model, x, …)`` with a step that sums up the output."""

    def run(model: nn.Module, *inputs: torch.Tensor, **options: Any) -> ProbeResult:
        def step(call: Callable[..., Any], index: int) -> None:
            call(*inputs).sum().backward()

        options = {"run_step": step, "process": lowering, **options}
        return probe(model, profile=load_profile(None), site_policy=SitePolicy(Path(__file__).parent), **options)

    return run
