"""Why an op ran on the CPU: no kernel, a kernel that failed, or nobody could tell; always the same finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smoketest.config import Check
from smoketest.findings import Report
from smoketest.supervise.run import Options, run_check
from smoketest.witness.strict import refusal

NET = """import os
import torch
from torch import nn
import smoketest

STRICT = os.environ.get("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS") == "1"
LOCK = os.path.join(os.path.dirname(__file__), "core")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 4)

    def forward(self, x):
        y = self.out(x).exp()
        y = y[torch.tensor([1, 0], device=x.device)]
        return torch.atan2(y, x)


def make_model():
    import fcntl

    global core  # one process at a time has it, until it ends
    core = open(LOCK, "w")
    fcntl.flock(core, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if STRICT:
        ONCE_MORE
    device = smoketest.emulate()
    device.inject_failure("aten::exp")
    device.inject_failure("aten::index.Tensor")
    return Net()


def make_batch(step):
    return (torch.ones(2, 4),), {}


def loss_fn(output, batch):
    return output.square().mean()
"""


def run(folder: Path, once_more: str, worker: str = "smoketest.worker", **check: Any) -> Report:
    file = folder / "net.py"
    file.write_text(NET.replace("ONCE_MORE", once_more))
    asked = Check.model_validate(
        {
            "name": "net",
            "workload": file,
            "training": {"steps": 1},
            "compile": {"enabled": False},
            "parity": {"enabled": False},  # plain CPU needs no core
            **check,
        }
    )
    return run_check(asked, Options(output=folder, root=folder, worker=worker))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return run(tmp_path_factory.mktemp("told"), "pass")


@pytest.fixture(scope="module")
def untold(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return run(tmp_path_factory.mktemp("untold"), "raise OSError('no room')")


def of(report: Report, op: str) -> Any:
    (found,) = [f for f in report.findings if f.op == op and f.phase == "forward"]
    return found


def why(report: Report) -> dict[str, str]:
    return {entry.what: entry.why for entry in report.not_checked if entry.what.startswith("why ")}


def test_a_kernel_that_fails_is_recovered_and_a_missing_one_unimplemented(told: Report) -> None:
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
    assert why(told) == {}


def test_a_bare_name_as_hand_written_kernels_record_it_is_that_of_an_op_with_a_kernel(told: Report) -> None:
    index = of(told, "index")
    assert (index.kind, index.called_as, index.grounds) == ("recovered", "aten::index.Tensor", None)


def test_without_the_strict_witness_the_kind_is_unknown_and_the_finding_the_same(told: Report, untold: Report) -> None:
    failing = of(untold, "aten::exp")
    assert failing.kind == "unknown"
    assert "strict" not in failing.witnesses
    assert failing.message == "aten::exp has a kernel on the device, and ran on the CPU all the same"
    assert failing.id == of(told, "aten::exp").id
    assert {f.id for f in untold.findings} == {f.id for f in told.findings}
    ((what, reason),) = why(untold).items()
    assert what == "why aten::exp, index ran on the CPU"
    assert reason.startswith("the strict witness could not tell: the step raised there: ")
    assert "no room" in reason


def test_on_a_device_with_room_for_one_process_the_strict_witness_starts_when_the_eager_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKER", "1")
    report = run(tmp_path, "pass", worker="tests.supervise.neuron_worker", device="neuron")
    assert report.eager.status == "ran"  # `make_model` takes the only core, and keeps it while its process lives
    assert (of(report, "aten::exp").kind, of(report, "aten::exp").grounds) == ("recovered", "measured")
    assert of(report, "aten::atan2.out").kind == "unimplemented"
    assert why(report) == {}
    lines = (tmp_path / "net" / "log" / "events.jsonl").read_text().splitlines()
    assert [e["part"] for e in map(json.loads, lines) if e["event"]["event"] == "hello"] == ["eager", "strict"]


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
