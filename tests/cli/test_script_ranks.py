"""`smoketest script` under torchrun: each rank watches its own script, rank 0 makes one report of all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from smoketest.findings import Report
from smoketest.supervise.handover import Rank, gather, hand_over, launched_as, take_back

SCRIPT = Path(__file__).parents[1] / "scripts" / "with_ddp.py"


@dataclass(frozen=True)
class Run:
    code: int
    stderr: str
    report: dict[str, Any]
    folder: Path

    def finding(self, op: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in self.report["findings"] if one["op"] == op)
        return found


def torchrun(folder: Path, *arguments: str, ranks: int = 2) -> Run:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command = ["--nproc-per-node", str(ranks), "-m", "smoketest", "script", str(SCRIPT), "--device", "emulated", "-q"]
    done = subprocess.run(
        [*launcher, *command, "--output", str(folder), "--steps", "3", "--", *arguments],
        capture_output=True, text=True, timeout=200, cwd=folder,
    )  # fmt: skip
    report = folder / "with_ddp" / "report.json"
    assert report.exists(), done.stderr
    return Run(done.returncode, done.stderr, json.loads(report.read_text()), folder)


@pytest.fixture(scope="module")
def sorted_on_one(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Rank 1 sorts, which runs on the CPU; rank 0 prints the loss, which waits for the device."""
    if os.environ.get("SMOKETEST_LONG") != "1":
        pytest.skip("long: `make scripts` runs it")
    return torchrun(tmp_path_factory.mktemp("sorted"), "--fail-on", "1")


def test_one_report_is_of_both_ranks_and_each_keeps_its_own(sorted_on_one: Run) -> None:
    assert sorted_on_one.report["ranks"] == 2
    assert [step["role"] for step in sorted_on_one.report["eager"]["steps"]] == ["warmup", *["timed"] * 3, "traced"]
    for rank in ("0", "1"):
        own = json.loads((sorted_on_one.folder / "ranks" / rank / "with_ddp" / "report.json").read_text())
        assert (own["ranks"], own["eager"]["status"]) == (None, "ran")


def test_a_fallback_that_exists_on_rank_1_only_is_told_with_its_rank_and_decides_the_exit_code(
    sorted_on_one: Run,
) -> None:
    found = sorted_on_one.finding("aten::sort.values_stable")
    assert (found["rule"], found["verdict"], found["ranks"]) == ("NST101", "deny", [1])
    assert (sorted_on_one.report["exit_code"], sorted_on_one.code) == (1, 1)


def test_collectives_are_operators_of_the_device_and_no_findings(sorted_on_one: Run) -> None:
    rows = [row for row in sorted_on_one.report["operators"] if row["op"].startswith("c10d::")]
    assert [(row["op"], row["eager"], row["calls_per_step"], row["ranks"]) for row in rows] == [
        ("c10d::allreduce_", "device", 2, None)
    ]
    assert not [one for one in sorted_on_one.report["findings"] if (one["op"] or "").startswith("c10d::")]


@pytest.mark.skipif(os.environ.get("SMOKETEST_LONG") != "1", reason="long: `make scripts` runs it")
def test_a_rank_whose_script_dies_is_named(tmp_path: Path) -> None:
    run = torchrun(tmp_path, "--fail-on", "1", "--how", "exit")
    assert run.code != 0
    assert run.report["exit_code"] == 5
    assert "rank 1" in run.report["headline"]


@pytest.mark.skipif(os.environ.get("SMOKETEST_LONG") != "1", reason="long: `make scripts` runs it")
def test_a_rank_whose_script_raises_is_named_and_not_the_one_that_lost_its_connection_to_it(tmp_path: Path) -> None:
    run = torchrun(tmp_path, "--fail-on", "1", "--how", "raise")
    assert run.report["exit_code"] == 4
    assert run.report["headline"].startswith("rank 1: ")
    assert run.report["headline"].endswith("the script raised ValueError: the data of this rank is broken")


TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "none"}


def test_what_torchrun_says_makes_a_rank_and_another_launch_is_another() -> None:
    rank = launched_as(TORCHRUN, parent=7)
    assert rank is not None
    assert (rank.number, rank.size) == (0, 2)
    assert launched_as(TORCHRUN, parent=8) != rank
    assert launched_as({}, parent=7) is None
    assert launched_as({"RANK": "0", "WORLD_SIZE": "1"}, parent=7) is None


def test_a_report_that_nobody_or_only_an_earlier_launch_handed_over_is_named_as_missing(
    sorted_on_one: Run, tmp_path: Path
) -> None:
    mine = Report.model_validate_json((sorted_on_one.folder / "ranks/0/with_ddp/report.json").read_bytes())
    now, before = Rank(0, 2, "now"), Rank(1, 2, "before")
    folder = before.output(tmp_path) / "with_ddp"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(mine.to_json())
    hand_over(before, tmp_path, "with_ddp")
    whole = gather(now, tmp_path, "with_ddp", mine, patience=0.2)
    assert whole.headline == "rank 1: no report was handed over within 0.2 s of rank 0's end"
    assert (whole.exit_code, whole.status, whole.ranks) == (5, "error", 2)
    assert [(one.op, one.ranks) for one in whole.findings] == [("aten::_local_scalar_dense", (0,))]
    hand_over(Rank(1, 2, "now"), tmp_path, "with_ddp")
    assert gather(now, tmp_path, "with_ddp", mine, patience=0.2).exit_code == 0
    take_back(Rank(1, 2, "now"), tmp_path, "with_ddp")
    assert gather(now, tmp_path, "with_ddp", mine, patience=0.2).exit_code == 5
