"""Which of several ranks of a script is to blame, where all that is known is their reports."""

from __future__ import annotations

from pathlib import Path

from smoketest.findings import Finding, NotChecked, Report
from smoketest.findings.report import (
    CompilePart,
    DeviceInfo,
    EagerPart,
    Environment,
    ParityPart,
    Step,
    WorkloadInfo,
)
from smoketest.supervise.files import write_atomically
from smoketest.supervise.handover import Rank, gather, hand_over

GLOO = (
    "c10d::allreduce_ raised on the emulated device: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/"
    "pair.cc:553] Connection closed by peer [127.0.0.1]:24488."
)
REFUSED = "c10d::allreduce_ raised on the emulated device: RuntimeError: [NCC_EVRF061] all-reduce adds in float32"
OTHERS = "it lost its connection after 1 step, since another rank came to no end"


def finding(message: str, rule: str = "NST104") -> Finding:
    kind = "op_failed" if rule == "NST104" else "fallback"
    return Finding.model_validate({"id": message[-20:], "rule": rule, "class": kind, "verdict": "deny",
                                   "op": "c10d::allreduce_", "message": message})  # fmt: skip


def failed(message: str, *more: Finding) -> Report:
    return Report(
        name="train", created="2026-12-01T00:00:00Z", status="fail", exit_code=1, headline="1 op failure denies",
        device=DeviceInfo(kind="emulated"), environment=Environment(), workload=WorkloadInfo(),
        eager=EagerPart(status="failed", reason=message, steps=(Step(index=0, role="warmup", loss=1.0),)),
        compile=CompilePart(status="skipped"), parity=ParityPart(status="skipped"),
        findings=(finding(message), *more),
        not_checked=(NotChecked(what="eager part, to its end", why=message),),
    )  # fmt: skip


def together(folder: Path, *reports: Report) -> Report:
    """What rank 0 makes of these, once the others have handed over theirs."""
    for number, report in enumerate(reports[1:], 1):
        rank = Rank(number, len(reports), "launch")
        (rank.output(folder) / "train").mkdir(parents=True)
        write_atomically(rank.output(folder) / "train" / "report.json", report.to_json())
        hand_over(rank, folder, "train")
    return gather(Rank(0, len(reports), "launch"), folder, "train", reports[0], patience=5)


def test_a_rank_that_lost_its_connection_to_another_one_is_not_to_blame(tmp_path: Path) -> None:
    whole = together(tmp_path, failed(GLOO), failed(REFUSED))
    assert [(one.message, one.ranks, one.ranks_unended) for one in whole.findings] == [(REFUSED, (1,), (0,))]
    assert (whole.status, whole.exit_code, whole.headline) == ("fail", 1, "rank 1: 1 op failure denies")
    assert whole.eager.reason == f"rank 1: {REFUSED}\nrank 0: {OTHERS}"
    assert {entry.what: entry.why for entry in whole.not_checked} == {
        "eager part, to its end (rank 0)": OTHERS,
        "eager part, to its end (rank 1)": REFUSED,
    }


def test_what_else_that_rank_found_is_kept(tmp_path: Path) -> None:
    fallback = finding("it fell back", "NST101")
    whole = together(tmp_path, failed(GLOO, fallback), failed(REFUSED))
    assert [(one.rule, one.ranks) for one in whole.findings] == [("NST101", (0,)), ("NST104", (1,))]


def test_where_every_rank_says_that_it_lost_another_all_are_named(tmp_path: Path) -> None:
    whole = together(tmp_path, failed(GLOO), failed(GLOO))
    assert (whole.eager.reason, len(whole.findings), whole.findings[0].ranks) == (GLOO, 1, None)
