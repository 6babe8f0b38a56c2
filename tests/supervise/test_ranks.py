"""Several ranks under PyTorch's launcher: one report, equal losses, and no rank that can keep the run from its end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from smoketest.config import Check
from smoketest.findings import Report
from smoketest.supervise.run import Limits, Options, run_check

HERE = Path(__file__).parent
PLAN = {"layers.*.0": "colwise", "layers.*.2": "rowwise"}
LOSSES = [1.5370608, 1.6022982, 1.3477883, 1.3770107]
"""Of one process on the whole batch; `test_one_process_gives_these_losses` holds them."""
long = pytest.mark.skipif(not os.environ.get("SMOKETEST_LONG"), reason="make ranks: one of the long runs")


def run(folder: Path, parallel: dict[str, Any] | None, how: str = "behave", timeout: float = 300) -> Report:
    check = Check.model_validate({
        "name": "net",
        "model": {"target": f"{HERE / 'ranks_net.py'}:Net", "kwargs": {"how": how}},
        "batch": {
            "tensors": {"x": {"shape": [8, 8]}, "y": {"shape": [8], "dtype": "int64", "low": 0, "high": 4}},
            "forward": ["x"],
        },
        "loss": {"name": "cross_entropy", "input": "output", "target": "batch.y"},
        "training": {"steps": 2, "warmup": 1, "timeout": timeout},
        "parallel": parallel,
        "device": "emulated",
        "compile": {"enabled": False},
    })  # fmt: skip
    report = run_check(check, Options(output=folder, root=HERE, limits=Limits(grace=1)))
    assert [pid for pid in started(folder) if Path(f"/proc/{pid}").exists()] == [], "no rank outlives the run"
    return report


def started(folder: Path) -> list[int]:
    """The process ids of all workers, as they told them."""
    events = [json.loads(line)["event"] for line in (folder / "net" / "log" / "events.jsonl").read_text().splitlines()]
    return [event["pid"] for event in events if event["event"] == "hello"]


def losses(report: Report) -> list[float | None]:
    return [step.loss for step in report.eager.steps]


def operators(report: Report) -> dict[str, tuple[str, int | None]]:
    return {row.op: (row.eager, row.calls_per_step) for row in report.operators}


def test_a_finding_of_rank_1_alone_says_so_and_the_losses_are_those_of_one_process(tmp_path: Path) -> None:
    report = run(tmp_path, {"kind": "fsdp2", "nproc": 2}, "fall back")
    assert report.eager.status == "ran", report.eager.reason
    assert [(f.rule, f.op, f.ranks, f.calls_per_step) for f in report.findings] == [
        ("NST101", "aten::atan2.out", (1,), 1)
    ]
    assert losses(report) == pytest.approx(LOSSES, rel=1e-5)
    assert (report.parity.status, report.parity.steps) == ("ran", 4)
    assert report.parity.max_relative_error is not None
    assert report.parity.max_relative_error < 1e-5
    assert operators(report)["c10d::_allgather_base_"] == ("device", 7)
    assert operators(report)["c10d::_reduce_scatter_base_"] == ("device", 4)
    assert report.ranks == 2
    first = report.eager.steps[0]
    assert first.loss_by_rank is not None
    assert sum(first.loss_by_rank) / 2 == pytest.approx(first.loss)  # type: ignore[arg-type]
    text = (tmp_path / "net" / "report.md").read_text()
    assert "1 call per step, on rank 1 only" in text
    assert "2 ranks (fsdp2): counts are per step and rank, losses the mean over them." in text


@long
def test_an_error_of_the_user_s_on_one_rank_names_the_rank_and_the_line(tmp_path: Path) -> None:
    report = run(tmp_path, {"kind": "ddp", "nproc": 2}, "raise")
    assert (report.status, report.exit_code) == ("error", 4)
    assert report.headline.startswith("rank 1: ")
    assert report.headline.endswith("the training step, on plain CPU, raised ValueError: no such expert")
    assert "ranks_net.py" in (report.eager.reason or "")
    assert 'raise ValueError("no such expert")' in (report.eager.reason or "")
    assert report.findings == ()


def test_a_rank_that_dies_ends_the_run_with_a_report_that_names_it(tmp_path: Path) -> None:
    report = run(tmp_path, {"kind": "ddp", "nproc": 2}, "segfault")
    assert (report.status, report.exit_code, report.eager.status) == ("error", 5, "crashed")
    assert report.headline == "rank 1: the eager worker crashed with SIGSEGV in step 2 of 4 (timed), forward"
    reasons = (report.eager.reason or "").splitlines()
    assert reasons[-1].startswith("rank 0: the eager worker was ended in step 2 of 4 (timed)")
    assert reasons[-1].endswith("since another rank came to no end")
    assert report.findings == (), "that rank 0 lost its connection is no finding"
    assert len(report.eager.steps) == 1


@long
def test_an_error_that_only_a_rank_makes_is_the_check_s_and_no_finding(tmp_path: Path) -> None:
    report = run(tmp_path, {"kind": "ddp", "nproc": 2}, "raise later")
    assert (report.status, report.exit_code) == ("error", 4)
    assert report.headline.startswith("rank 1: ")
    assert report.headline.endswith(
        "the training step raised ValueError: no such expert; one process on plain CPU runs the same step: what differs"
        " is the ranks (or `parallel:`), unless the line looks at the device"
    )
    assert report.findings == ()


@long
def test_parameters_that_ddp_misses_are_named(tmp_path: Path) -> None:
    report = run(tmp_path, {"kind": "ddp", "nproc": 2}, "spare")
    assert (report.status, report.exit_code, report.findings) == ("error", 4, ())
    assert "here: spare.weight" in (report.eager.reason or "")


@long
def test_a_rank_that_hangs_is_named_and_stopped_when_its_time_is_up(tmp_path: Path) -> None:
    report = run(tmp_path, {"kind": "ddp", "nproc": 2}, "hang", timeout=100)
    assert (report.status, report.exit_code, report.eager.status) == ("error", 5, "timed_out")
    assert report.headline == (
        "rank 1: the eager part took longer than 100 s (training.timeout) and was stopped in step 2 of 4 (timed),"
        " forward"
    )
    assert report.findings == ()


@long
def test_of_ranks_that_are_slow_when_their_time_is_up_none_is_named(tmp_path: Path) -> None:
    report = run(tmp_path, {"kind": "ddp", "nproc": 2}, "slow", timeout=30)
    assert (report.status, report.exit_code, report.eager.status) == ("error", 5, "timed_out")
    assert report.headline.startswith(
        "the eager part took longer than 30 s (training.timeout), and no rank was behind the others: "
    )


@long
def test_a_rank_that_leaves_without_a_word_is_named(tmp_path: Path) -> None:
    report = run(tmp_path, {"kind": "ddp", "nproc": 2}, "leave")
    assert (report.exit_code, report.eager.status) == (5, "crashed")
    assert report.headline == "rank 1: the eager worker exited with code 0 in step 2 of 4 (timed), forward"


@long
def test_one_process_gives_these_losses(tmp_path: Path) -> None:
    report = run(tmp_path, None)
    assert losses(report) == pytest.approx(LOSSES, rel=1e-6)
    assert report.ranks is None


@long
@pytest.mark.parametrize(("parallel", "tolerance"), [
    ({"kind": "ddp", "nproc": 2}, 1e-5),
    ({"kind": "ddp", "nproc": 4}, 1e-5),
    ({"kind": "fsdp2", "nproc": 2}, 1e-5),
    ({"kind": "fsdp2", "nproc": 4}, 1e-5),
    ({"kind": "fsdp2", "nproc": 2, "cpu_offload": True}, 1e-5),
    ({"kind": "fsdp2", "nproc": 2, "mixed_precision": "bfloat16"}, 2e-2),
    ({"kind": "tp", "nproc": 2, "plan": PLAN}, 1e-5),
], ids=str)  # fmt: skip
def test_ranks_give_the_losses_of_one_process(tmp_path: Path, parallel: dict[str, Any], tolerance: float) -> None:
    report = run(tmp_path, parallel)
    assert report.eager.status == "ran", report.eager.reason
    assert losses(report) == pytest.approx(LOSSES, rel=tolerance)
    assert report.parity.status == "ran", report.parity.reason
    assert report.parity.max_relative_error is not None
    assert report.parity.max_relative_error < tolerance
    assert (report.status, report.ranks, report.findings) == ("pass", parallel["nproc"], ())
    assert any("c10d" in op for op in operators(report))


@long
def test_four_alike_ranks_read_like_one(tmp_path: Path) -> None:
    four = run(tmp_path / "four", {"kind": "ddp", "nproc": 4})
    one = run(tmp_path / "one", {"kind": "ddp", "nproc": 1})
    assert [f.id for f in four.findings] == [f.id for f in one.findings]
    assert all(f.ranks is None for f in four.findings)
    assert {row.op for row in one.operators} <= {row.op for row in four.operators}
    assert all(row.ranks is None for row in four.operators)
    assert not any("(rank" in entry.what for entry in four.not_checked)
