"""What some of the shipped checks promise, run as a person runs them: one command, real worker processes.

`make ecosystem` runs all of them, and these tests with BERT's too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(900)  # whole checks, on whatever machine this is

ROOT = Path(__file__).parents[1]
WORKLOAD = "configs/workloads/equivariant.py"
LONG = os.environ.get("SMOKETEST_LONG") == "1"
long = pytest.mark.skipif(not LONG, reason="long: `make ecosystem` runs it")
CHECKS = ("equivariant", "gpt2", "resnet", *(["bert"] if LONG else []))
BERT = pytest.param("bert", marks=long)
ROUNDS = 3  # interactions in the equivariant workload


@dataclass(frozen=True)
class Run:
    exit_code: int
    stderr: str
    reports: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`smoketest run` of them all, on the emulated device."""
    output = tmp_path_factory.mktemp("reports")
    command = [sys.executable, "-m", "smoketest", "run", *(f"configs/{name}.yaml" for name in CHECKS)]
    command += ["--device", "emulated", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    reports = {path.parent.name: json.loads(path.read_text()) for path in output.glob("*/report.json")}
    return Run(done.returncode, done.stderr, reports)


def findings(report: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    return [f for f in report["findings"] if all(f[key] == value for key, value in wanted.items())]


def test_all_checks_that_are_named_run_and_the_worst_exit_code_is_returned(run: Run) -> None:
    assert sorted(run.reports) == sorted(CHECKS)
    assert run.exit_code == 1, run.stderr
    for name in run.reports:
        assert name in run.stderr


@pytest.mark.parametrize("name", ["gpt2", BERT])
def test_a_language_model_is_clean(run: Run, name: str) -> None:
    report = run.reports[name]
    assert report["exit_code"] == 0
    assert report["status"] == "pass"
    assert "0 denied" in report["headline"] or "no denied finding" in report["headline"]
    assert [f for f in report["findings"] if f["verdict"] == "deny"] == []
    assert findings(report, rule="NST101") == []
    assert findings(report, rule="NST201") == []
    assert report["compile"]["status"] == "ran"
    assert report["compile"]["ops_failed"] == 0
    assert report["compile"]["ops_probed"] > 50
    assert {graph["direction"] for graph in report["compile"]["graphs"]} == {"forward", "backward"}


def test_the_clean_report_counts_every_op_call_and_says_what_it_did_not_look_at(run: Run) -> None:
    report = run.reports["gpt2"]
    assert report["eager"]["op_calls"] > 500
    rows = {row["op"]: row for row in report["operators"]}
    assert rows["aten::embedding"]["eager"] == "device"
    assert sum(row["calls_per_step"] or 0 for row in rows.values()) == report["eager"]["op_calls"]
    assert 0 < report["eager"]["host_calls"] < report["eager"]["op_calls"]  # AdamW counts its steps on the CPU
    assert report["device"]["kind"] == "emulated"
    assert any("neuronx-cc" in entry["what"] + entry["why"] for entry in report["not_checked"])


@pytest.mark.parametrize("name", ["gpt2", "equivariant", BERT, pytest.param("resnet", marks=long)])
def test_a_check_trains_on_the_emulated_device_with_the_losses_of_plain_cpu(
    run: Run, name: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "smoketest", "run", f"configs/{name}.yaml"]
    command += ["--device", "cpu", "--no-compile", "--output", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=600, check=True)
    plain = json.loads((tmp_path / name / "report.json").read_text())
    losses = [step["loss"] for step in run.reports[name]["eager"]["steps"]]
    assert losses == pytest.approx([step["loss"] for step in plain["eager"]["steps"]], rel=1e-4)
    assert losses[0] > losses[-1] > 0


def test_steps_are_told_apart_and_timed_by_phase(run: Run) -> None:
    steps = run.reports["gpt2"]["eager"]["steps"]
    assert [step["role"] for step in steps] == ["warmup", "timed", "timed", "timed", "traced"]
    for step in steps:
        assert step["loss"] > 0
        assert step["forward_ms"] > 0
        assert step["backward_ms"] > 0
        assert step["optimizer_ms"] > 0


@pytest.mark.parametrize(
    ("op", "code", "module", "calls"),
    [
        ("aten::atan2.out", "azimuth = torch.atan2(edges[:, 1], edges[:, 0])", "interactions.*.angles", ROUNDS),
        ("aten::acos.out", "polar = torch.acos((edges[:, 2] / distance).clamp(-0.999, 0.999))",
         "interactions.*.angles", ROUNDS),
        ("aten::linalg_cross.out", "turned = torch.linalg.cross(edges, positions[sources])",
         "interactions.*", ROUNDS),
        ("aten::sort.values_stable", "_, order = torch.sort(distances, dim=1)", "Network", 1),
        ("aten::scatter_reduce.two_out",
         "moved = torch.zeros_like(positions).scatter_reduce(0, index.expand_as(push), push, "
         '"mean", include_self=False)', "interactions.*", ROUNDS),
        ("aten::scatter_reduce.two_out",
         "strongest = torch.full_like(features, -1e4).scatter_reduce(0, index.expand_as(messages), messages, "
         '"amax")', "interactions.*", ROUNDS),
        ("aten::index_fill_.int_Scalar", "weights.index_fill_(0, ghosts, 0.0)", "Network", 1),
    ],
)  # fmt: skip
def test_the_equivariant_network_is_told_which_lines_leave_the_device(
    run: Run, op: str, code: str, module: str, calls: int
) -> None:
    report = run.reports["equivariant"]
    assert report["exit_code"] == 1
    source = (ROOT / WORKLOAD).read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if text.strip() == code)
    found = [
        f
        for f in findings(report, rule="NST101", op=op, phase="forward")
        if f["site"] == {"file": WORKLOAD, "line": line, "code": code}
    ]
    assert len(found) == 1
    (finding,) = found
    assert finding["verdict"] == "deny"
    assert finding["grounds"] == "reported"
    assert finding["kind"] == "unimplemented"
    assert finding["modules"] == [{"pattern": module, "calls": calls}]
    assert finding["calls_per_step"] == calls
    assert finding["exact"] is True
    assert finding["bytes_per_step"] > 0
    assert {"dispatch", "tracker", "warnings"} <= set(finding["witnesses"])


def test_the_backward_of_a_cross_product_is_found_at_its_forward_line(run: Run) -> None:
    (finding,) = findings(run.reports["equivariant"], rule="NST101", op="aten::linalg_cross.out", phase="backward")
    assert finding["site"]["code"] == "turned = torch.linalg.cross(edges, positions[sources])"
    # The first round's positions need no gradient, and nothing is made of the last round's.
    assert finding["modules"] == [{"pattern": "interactions.1", "calls": 2}]


def test_batch_norm_and_pooling_are_possible_fallbacks_that_warn(run: Run) -> None:
    report = run.reports["resnet"]
    assert report["exit_code"] == 0
    fallbacks = findings(report, rule="NST101")
    assert {f["op"] for f in fallbacks} >= {"aten::native_batch_norm", "aten::native_batch_norm_backward"}
    assert {f["verdict"] for f in fallbacks} == {"warn"}
    assert {f["grounds"] for f in fallbacks} == {"no_kernel_known"}
    assert all("possible" in f["message"].lower() for f in fallbacks)
    assert findings(report, rule="NST201") == []


def test_a_layer_used_often_is_one_finding_per_phase_and_line(run: Run) -> None:
    norms = findings(run.reports["resnet"], op="aten::native_batch_norm")
    assert len({(f["phase"], f["site"]["file"], f["site"]["line"]) for f in norms}) == len(norms)
    assert sum(f["calls_per_step"] for f in norms) == 20
