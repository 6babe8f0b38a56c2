"""Reports of ranks as one, and who is to blame: pure functions."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest

from smoketest.findings import Finding, NotChecked, Report
from smoketest.findings.report import (
    CompilePart,
    CostPart,
    DeviceInfo,
    EagerPart,
    Environment,
    OperatorRow,
    ParityPart,
    Site,
    Step,
    WorkloadInfo,
)
from smoketest.render.words import amount
from smoketest.supervise import protocol
from smoketest.supervise.files import CappedLog, PassedFile
from smoketest.supervise.outcome import Crashed, Failed, Outcome, Ran, Record, Seen, TimedOut
from smoketest.supervise.part import Part
from smoketest.supervise.process import WorkerProcess
from smoketest.supervise.protocol import Breadcrumb
from smoketest.supervise.ranks import RankEnd, mean_losses, merge, settle


def finding(name: str, calls: int = 3, **given: object) -> Finding:
    return Finding.model_validate(
        {"id": name, "rule": "NST101", "class": "fallback", "op": name, "calls_per_step": calls, "message": "it fell"}
        | given
    )


def step(index: int, loss: float | None, ms: float = 1.0) -> Step:
    return Step(index=index, role="timed", loss=loss, forward_ms=ms)


def report(*findings: Finding, losses: tuple[float | None, ...] = (2.0,), **given: object) -> Report:
    made = Report(
        name="net", created="2026-12-01T00:00:00Z", status="pass", exit_code=0, headline="clean",
        device=DeviceInfo(kind="emulated", profile="p"), environment=Environment(), workload=WorkloadInfo(model="Net"),
        eager=EagerPart(status="ran", steps=tuple(step(i, loss) for i, loss in enumerate(losses)), op_calls=10),
        compile=CompilePart(status="skipped"), parity=ParityPart(status="ran"), findings=findings,
        not_checked=(NotChecked(what="speed", why="emulated"),),
    )  # fmt: skip
    return made.model_copy(update=given)


def test_one_report_is_itself() -> None:
    assert merge([report()]) == report()


def test_four_alike_are_one_and_a_number() -> None:
    alone = report(finding("a"))
    assert merge([alone] * 4) == alone.model_copy(update={"ranks": 4})


def test_what_only_rank_1_saw_says_so() -> None:
    merged = merge([report(finding("a")), report(finding("a"), finding("b"))])
    assert [(f.id, f.ranks) for f in merged.findings] == [("a", None), ("b", (1,))]


def test_counts_that_differ_are_the_largest_and_told_by_rank() -> None:
    merged = merge([report(finding("a", 3)), report(finding("a", 5))])
    (only,) = merged.findings
    assert (only.calls_per_step, only.ranks) == (5, None)
    assert only.message == "it fell; calls per step differ by rank: 3 on rank 0, 5 on rank 1"


def test_where_not_all_ranks_made_a_step_there_are_no_numbers_of_one() -> None:
    merged = merge([report(), report(eager=EagerPart(status="failed", reason="no step"))])
    assert (merged.eager.steps, merged.eager.op_calls) == ((), None)


def test_steps_that_only_some_ranks_made_are_told_and_their_cost_is_not_none() -> None:
    traced = Step(index=1, role="traced", loss=2.0)
    whole = report(cost=CostPart(calls_per_step=0, bytes_per_step=0, exact=True, host_syncs_per_step=1))
    whole = whole.model_copy(update={"eager": whole.eager.model_copy(update={"steps": (step(0, 2.0), traced)})})
    merged = merge([whole, report(eager=CUT_SHORT, cost=CostPart())])
    assert [(one.what, one.why) for one in merged.not_checked[1:]] == [
        ("steps that only some ranks made",
         "steps made: 2 on rank 0; 1 on rank 1; losses and times are of those that all ranks made"),
    ]  # fmt: skip
    assert (merged.cost.calls_per_step, merged.cost.bytes_per_step, merged.cost.exact) == (None, None, False)
    assert merged.cost.host_syncs_per_step == 1
    assert merge([whole, whole]).cost == whole.cost


def test_costs_of_ranks_are_the_largest_counts() -> None:
    traced = EagerPart(status="ran", steps=(Step(index=0, role="traced"),))
    few = report(eager=traced, cost=CostPart(calls_per_step=3, bytes_per_step=80, exact=True))
    many = report(eager=traced, cost=CostPart(calls_per_step=5, bytes_per_step=10, exact=False))
    assert merge([few, many]).cost == CostPart(calls_per_step=5, bytes_per_step=80, exact=False)


def test_what_ranks_were_given_and_how_they_were_set_is_told_by_rank_where_it_differs() -> None:
    def with_(rows: int, cores: str) -> Report:
        workload = WorkloadInfo(model="Net", batch={"x": f"float32[{rows}, 8]", "y": "int64[4]"})
        return report(
            workload=workload, environment=Environment(settings={"NEURON_RT_VISIBLE_CORES": cores, "NEURON_A": "1"})
        )

    merged = merge([with_(4, "0"), with_(3, "1"), with_(4, "2")])
    assert merged.workload.batch == {"x": "float32[4, 8] on ranks 0 and 2; float32[3, 8] on rank 1", "y": "int64[4]"}
    assert merged.environment.settings == {
        "NEURON_RT_VISIBLE_CORES": "0 on rank 0; 1 on rank 1; 2 on rank 2",
        "NEURON_A": "1",
    }


def test_what_another_rank_says_of_the_same_finding_is_told_too() -> None:
    merged = merge([report(finding("a")), report(finding("a", message="it fell for another reason"))])
    assert merged.findings[0].message == "it fell; on rank 1: it fell for another reason"


def test_a_compile_probe_that_gave_other_numbers_on_some_rank_says_whose_are_told() -> None:
    ran, failed = CompilePart(status="ran", ops_probed=3), CompilePart(status="failed", reason="it raised")
    merged = merge([report(compile=ran), report(compile=failed), report(compile=ran)])
    assert merged.compile.reason == "rank 1: it raised"
    assert [(one.what, one.why) for one in merged.not_checked[1:]] == [
        ("compile probe, the numbers of ranks 0 and 2",
         "the numbers are those of rank 1; each rank's own report has its own"),
    ]  # fmt: skip


AT = Site(file="net.py", line=3, code="sort(x)")
CUT_SHORT = EagerPart(status="failed", reason="it raised", steps=(step(0, 2.0),))


def test_an_op_without_its_line_is_that_of_the_rank_that_knows_it() -> None:
    known = finding("a", 4, op="aten::sort.out", site=AT, phase="forward")
    vague = finding("b", op="aten::sort", phase="forward", calls_per_step=None)
    for ranks in ([report(known), report(vague, eager=CUT_SHORT)], [report(vague, eager=CUT_SHORT), report(known)]):
        (only,) = merge(ranks).findings
        assert (only.id, only.site, only.calls_per_step, only.ranks, only.message) == ("a", AT, 4, None, "it fell")


def test_an_op_without_its_line_stays_one_of_its_own_in_another_phase_and_beside_one_with_a_line() -> None:
    known = finding("a", op="aten::sort", site=AT, phase="forward")
    in_a_thread = finding("b", op="aten::sort", phase="forward")
    backward = finding("c", op="aten::sort", phase="backward")
    merged = merge([report(known), report(known, in_a_thread, backward)])
    assert {f.id: f.ranks for f in merged.findings} == {"a": None, "b": (1,), "c": (1,)}


def test_of_a_rank_whose_traced_step_did_not_end_it_is_not_said_that_it_did_not_see() -> None:
    merged = merge([report(finding("a", 5)), report(eager=CUT_SHORT), report(finding("a", 2), eager=CUT_SHORT)])
    (only,) = merged.findings
    assert (only.ranks, only.ranks_unended, only.message) == ((0, 2), (1,), "it fell")
    assert amount(only) == "5 calls per step, seen on ranks 0 and 2 (rank 1 did not come to its end)"
    assert amount(only.model_copy(update={"ranks_unended": None})) == "5 calls per step, on ranks 0 and 2 only"


def test_losses_are_the_mean_and_a_step_is_as_long_as_the_slowest_rank_s() -> None:
    slow = report(losses=(4.0,))
    slow = slow.model_copy(update={"eager": slow.eager.model_copy(update={"steps": (step(0, 4.0, ms=9.0),)})})
    (only,) = merge([report(losses=(2.0,)), slow]).eager.steps
    assert (only.loss, only.loss_by_rank, only.forward_ms) == (3.0, (2.0, 4.0), 9.0)


def test_a_loss_that_is_not_finite_on_one_rank_is_not_finite() -> None:
    (only,) = merge([report(losses=(2.0,)), report(losses=(None,))]).eager.steps
    assert (only.loss, only.loss_by_rank) == (None, (2.0, None))


def test_an_op_that_ran_in_two_places_is_mixed_and_one_of_some_ranks_names_them() -> None:
    here = OperatorRow(op="aten::mm", eager="device", compile="lowers", calls_per_step=2)
    there = here.model_copy(update={"eager": "cpu", "calls_per_step": 4})
    alone = OperatorRow(op="aten::sort", eager="cpu", compile="fails", calls_per_step=1)
    merged = merge([report(operators=(here,)), report(operators=(there, alone)), report(operators=(here,))])
    assert [(row.op, row.eager, row.calls_per_step, row.ranks) for row in merged.operators] == [
        ("aten::mm", "mixed", 4, None),
        ("aten::sort", "cpu", 1, (1,)),
    ]


def test_the_worst_end_counts_and_names_its_rank() -> None:
    dead = report(
        status="error", exit_code=5, headline="the eager worker crashed",
        eager=EagerPart(status="crashed", reason="the eager worker crashed"),
    )  # fmt: skip
    merged = merge([report(), dead, report()])
    assert (merged.status, merged.exit_code, merged.headline) == ("error", 5, "rank 1: the eager worker crashed")
    assert (merged.eager.status, merged.eager.reason) == ("crashed", "rank 1: the eager worker crashed")


def test_what_one_rank_alone_did_not_check_names_it() -> None:
    more = NotChecked(what="threads", why="two of them")
    merged = merge([report(), report(not_checked=(*report().not_checked, more))])
    assert [entry.what for entry in merged.not_checked] == ["speed", "threads (rank 1)"]


def test_an_entry_of_the_baseline_goes_only_where_no_rank_needs_it() -> None:
    baseline = report().baseline
    one = report(baseline=baseline.model_copy(update={"fixed": ("a", "b")}))
    other = report(baseline=baseline.model_copy(update={"fixed": ("b",)}))
    assert merge([one, other]).baseline.fixed == ("b",)


def end(rank: int, outcome: Outcome, crumb: Breadcrumb | None = None, at: float = 0, *findings: Finding) -> RankEnd:
    return RankEnd(rank, Record(outcome, Seen(findings=findings)), crumb or Breadcrumb(), at)


RAN = Ran(protocol.Result(eager=EagerPart(status="ran")))
LOST = Ran(protocol.Result(eager=EagerPart(status="failed", reason="Connection closed by peer")))


def statuses(*ends: RankEnd) -> list[str]:
    return [f"{record.status}: {record.reason}" for record in settle(ends)]


def test_of_a_rank_that_lost_its_connection_to_a_dead_one_nothing_is_a_finding() -> None:
    lost = finding("x", rule="NST104")
    first, dead = settle(
        [end(0, LOST, Breadcrumb(step=1, phase="backward"), 1, lost, finding("a")), end(1, Crashed("dead"))]
    )
    assert first.reason == "the eager worker was ended in step 2, backward, since another rank came to no end"
    assert [f.id for f in first.seen.findings] == ["a"]
    assert (dead.status, dead.reason) == ("crashed", "dead")


def test_the_first_to_fail_is_to_blame_and_those_that_say_the_same() -> None:
    def failed(message: str) -> Failed:
        return Failed(protocol.Failed(exit_code=4, message=message))

    told = statuses(end(0, failed("lost"), at=3), end(1, failed("bug"), at=1), end(2, failed("bug"), at=2))
    assert told[0].endswith("since another rank came to no end")
    assert told[1:] == ["failed: bug", "failed: bug"]


LATE = TimedOut(9, "the eager part took longer than 9 s (training.timeout)", "somewhere")
NOW = 100.0


def at(entered: int, waited: float, took: float = 2.0, **place: object) -> Breadcrumb:
    """Where a rank is that its time is up for: how many phases it began, and for how long it has been there."""
    return Breadcrumb.model_validate({"entered": entered, "since": NOW - waited, "took": took} | place)


@pytest.mark.parametrize(("waiting", "hanging"), [
    (at(9, 6, step=2, phase="backward"), at(8, 6.5, step=2, phase="forward")),
    (at(9, 6, step=2, phase="forward"), at(8, 6, step=1, phase="optimizer")),
    (at(9, 6, step=1, phase="forward"), at(8, 6, step=1, phase="backward")),  # of the micro-batch before
    (at(5, 6, step=1, op="c10d::_allgather_base_"), at(5, 0.1, step=1, op="aten::mm")),
    (at(20, 0.1, step=5, phase="forward"), at(8, 60, step=2, phase="forward")),  # ranks that do not wait for each other
    (at(1, 6, phase="joining the process group"), Breadcrumb()),
])  # fmt: skip
def test_of_ranks_that_did_not_get_on_the_one_behind_is_to_blame(waiting: Breadcrumb, hanging: Breadcrumb) -> None:
    first, second = settle([end(0, LATE, waiting, NOW), end(1, LATE, hanging, NOW)])
    assert (first.reason or "").endswith("since another rank came to no end")
    assert (second.status, second.reason) == ("timed_out", LATE.reason)


STILL = "the eager part took longer than 9 s (training.timeout), and no rank was behind the others: "


@pytest.mark.parametrize(("one", "other", "told"), [
    (at(9, 1.5, step=2, steps=4, phase="backward"), at(8, 4, step=2, steps=4, phase="forward"),
     "rank 0 in step 3 of 4, backward; rank 1 in step 3 of 4, forward"),
    (at(9, 60, step=2, steps=4, phase="forward"), at(9, 60, step=2, steps=4, phase="forward"),
     "all were still in step 3 of 4, forward"),
    (at(5, 1, step=1, op="c10d::_allgather_base_"), at(5, 0.1, step=1, op="aten::mm"), "all were still in step 2"),
    (Breadcrumb(), Breadcrumb(), "all were still at work before the first step"),
])  # fmt: skip
def test_of_ranks_that_are_only_slow_none_is_blamed(one: Breadcrumb, other: Breadcrumb, told: str) -> None:
    assert statuses(end(0, LATE, one, NOW), end(1, LATE, other, NOW)) == [f"timed_out: {STILL}{told}"] * 2


def test_the_seconds_between_the_stop_of_a_rank_and_its_death_are_no_waiting(tmp_path: Path) -> None:
    with closing(CappedLog(tmp_path / "log")) as log, closing(PassedFile()) as crumb:
        process = WorkerProcess([sys.executable, "-c", ""], lambda events: None)
        part = Part("eager", process, log, crumb, timeout=9, listens=False)
        part.stopped, part.stopped_at = LATE, NOW
        process.close()
        assert part.last_seen == NOW
        part.last_word = NOW - 1
        assert part.last_seen == NOW - 1


def test_a_rank_that_made_all_its_steps_has_waited_for_the_others() -> None:
    told = statuses(end(0, RAN), end(1, LATE, at(8, 0.1, step=2, phase="forward"), NOW))
    assert told == ["ran: None", f"timed_out: {LATE.reason}"]


def test_ranks_that_ran_are_left_as_they_are() -> None:
    assert statuses(end(0, RAN), end(1, RAN)) == ["ran: None", "ran: None"]


def test_the_losses_that_are_compared_are_the_means() -> None:
    ends = [
        RankEnd(rank, Record(RAN, Seen(steps=(step(0, loss),))), Breadcrumb(), 0)
        for rank, loss in enumerate((1.0, 3.0))
    ]
    assert mean_losses(ends) == (2.0,)
