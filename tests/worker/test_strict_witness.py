"""Why an op ran on the CPU: no kernel, a kernel that failed, or nobody could tell; always the same finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smoketest.witness.strict import refusal

NET = """import os
import torch
from torch import nn
import smoketest


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 4)

    def forward(self, x):
        y = self.out(x).exp()
        return torch.atan2(y, x)


def make_model():
    if os.environ.get("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS") == "1":
        ONCE_MORE
    device = smoketest.emulate()
    device.inject_failure("aten::exp")
    return Net()


def make_batch(step):
    return (torch.ones(2, 4),), {}


def loss_fn(output, batch):
    return output.square().mean()
"""


def run(run_worker: Any, folder: Path, once_more: str) -> Any:
    file = folder / "net.py"
    file.write_text(NET.replace("ONCE_MORE", once_more))
    return run_worker({"workload": str(file), "training": {"steps": 1}})


@pytest.fixture(scope="module")
def told(run_worker: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(run_worker, tmp_path_factory.mktemp("told"), "pass")


@pytest.fixture(scope="module")
def untold(run_worker: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(run_worker, tmp_path_factory.mktemp("untold"), "raise OSError('the cores are taken')")


def of(worker: Any, op: str) -> Any:
    (found,) = [f for f in worker.findings if f.op == op and f.phase == "forward"]
    return found


def test_a_kernel_that_fails_is_recovered_and_a_missing_one_unimplemented(told: Any) -> None:
    assert told.eager.status == "ran"
    failing = of(told, "aten::exp")
    assert failing.kind == "recovered"
    assert failing.site.code == "y = self.out(x).exp()"
    assert (failing.calls_per_step, failing.exact) == (1, True)
    assert {"dispatch", "kernels", "strict", "tracker"} <= set(failing.witnesses)
    assert failing.message == "aten::exp has a kernel on the device, which failed, and the CPU took over"
    missing = of(told, "aten::atan2.out")
    assert missing.kind == "unimplemented"
    assert "strict" not in missing.witnesses


def test_without_the_strict_witness_the_kind_is_unknown_and_the_finding_the_same(told: Any, untold: Any) -> None:
    failing = of(untold, "aten::exp")
    assert failing.kind == "unknown"
    assert "strict" not in failing.witnesses
    assert failing.id == of(told, "aten::exp").id
    assert {f.id for f in untold.findings} == {f.id for f in told.findings}
    (note,) = [n.not_checked for n in untold.of("note") if n.not_checked.what.startswith("why ")]
    assert note.what == "why aten::exp ran on the CPU"
    assert "the cores are taken" in note.why


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (
            "CPU fallback disabled because TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS=1. Operation add failed to"
            " execute on Neuron (last implementation: ImplementationWrapper). Details: x",
            ("aten::add", "recovered"),
        ),
        (
            "CPU fallback disabled because TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS=1. Operation topk failed"
            " to be handled by any Neuron implementation (last implementation: unknown). Details: Unknown error",
            ("aten::topk", "rejected"),
        ),
        ("CPU fallback is disabled for operation=aten::mul.Tensor", ("aten::mul", "recovered")),
        ("Expected all tensors to be on the same device", None),
    ],
)
def test_the_backends_refusals_are_read_in_each_wording(text: str, seen: Any) -> None:
    assert refusal(text) == seen
