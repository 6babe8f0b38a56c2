"""From the ends of two parts to one report, without a process."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from smoketest.config import Check
from smoketest.findings import NotChecked, Observation, Report, merge
from smoketest.findings.report import CompilePart, EagerPart, Environment, OperatorRow, ParityPart, Step
from smoketest.supervise import protocol
from smoketest.supervise.assemble import Circumstances, assemble, worst
from smoketest.supervise.outcome import (
    Crashed,
    Failed,
    Interrupted,
    Outcome,
    Ran,
    Record,
    Seen,
    Skipped,
    TimedOut,
    describe_death,
)

NOW = dt.datetime(2026, 12, 1, 12, 0, 5, 999, tzinfo=dt.timezone(dt.timedelta(hours=2)))


def check(**gate: Any) -> Check:
    return Check.model_validate({"name": "c", "device": "cpu", "gate": gate})


NO_REFERENCE = Record(Skipped("switched off"))


def report(eager: Record, compiled: Record, reference: Record = NO_REFERENCE, **gate: Any) -> Report:
    circumstances = Circumstances(now=NOW, environment=Environment(python="3.12"), command="smoketest run c.yaml")
    return assemble(check(**gate), (eager,), compiled, reference, circumstances)


def eager(*rows: OperatorRow, status: Any = "ran", seen: Seen | None = None) -> Record:
    return Record(Ran(protocol.Result(eager=EagerPart(status=status, op_calls=3), operators=rows)), seen or Seen())


def compiled(*rows: OperatorRow, status: Any = "ran", reason: str | None = None) -> Record:
    return Record(Ran(protocol.Result(compile=CompilePart(status=status, reason=reason), operators=rows)))


def failed(exit_code: int) -> Outcome:
    return Failed(protocol.Failed(exit_code=exit_code, message=f"failed with {exit_code}"))


@pytest.mark.parametrize(
    ("first", "second", "exit_code"),
    [
        (eager(), compiled(), 0),
        (eager(), Record(Skipped("no")), 0),
        (Record(failed(4)), Record(Skipped("no")), 4),
        (Record(failed(3)), Record(Skipped("no")), 3),
        (Record(failed(2)), Record(Skipped("no")), 2),
        (Record(failed(77)), Record(Skipped("no")), 5),
        (eager(), Record(failed(4)), 4),
        (Record(failed(4)), Record(failed(3)), 3),
        (Record(failed(3)), Record(Crashed("dead")), 5),
        (eager(), Record(TimedOut(3, "late")), 5),
        (Record(Interrupted("ctrl-c")), Record(Crashed("dead")), 130),
        (eager(), Record(Interrupted("ctrl-c")), 130),
    ],
)
def test_the_worse_end_of_two_gives_the_exit_code(first: Record, second: Record, exit_code: int) -> None:
    seen = report(first, second)
    assert seen.exit_code == exit_code
    assert seen.status == ("error" if exit_code else "pass")


def test_the_order_of_exit_codes_is_the_design_s() -> None:
    assert worst([0, 1, 2, 4, 3, 5]) == 5
    assert worst([0, 1, 2, 4, 3]) == 3
    assert worst([0, 1, 2, 4]) == 4
    assert worst([0, 1, 2]) == 2
    assert worst([0, 1]) == 1
    assert worst([5, 130]) == 130
    assert worst([]) == 0


def test_rows_of_one_overload_are_joined_and_each_keeps_its_half() -> None:
    seen = report(
        eager(
            OperatorRow(op="aten::b", eager="device", compile="not_reached", calls_per_step=2),
            OperatorRow(op="aten::c", eager="cpu", compile="not_reached", calls_per_step=1),
        ),
        compiled(
            OperatorRow(op="aten::a", eager="not_reached", compile="fails"),
            OperatorRow(op="aten::b", eager="not_reached", compile="lowers", calls_per_step=9),
        ),
    )
    assert [(r.op, r.eager, r.compile, r.calls_per_step) for r in seen.operators] == [
        ("aten::a", "not_reached", "fails", None),
        ("aten::b", "device", "lowers", 2),
        ("aten::c", "cpu", "not_reached", 1),
    ]


def test_what_was_not_checked_is_said_once_and_the_workers_words_count() -> None:
    notes = Seen(
        notes=(NotChecked(what="compile probe", why="torch-mlir is missing"), NotChecked(what="speed", why="x"))
    )
    seen = report(eager(seen=notes), compiled(status="skipped", reason="other words"))
    assert [(entry.what, entry.why) for entry in seen.not_checked] == [
        ("compile probe", "torch-mlir is missing"),
        ("speed", "x"),
        ("parity", "switched off"),
    ]


def test_a_probe_skipped_by_its_worker_is_not_called_checked() -> None:
    seen = report(eager(), compiled(status="skipped", reason='pip install ".[lowering]" in a clone of smoketest'))
    assert seen.compile.status == "skipped"
    assert ("compile probe", 'pip install ".[lowering]" in a clone of smoketest') in [
        (entry.what, entry.why) for entry in seen.not_checked
    ]


def compared(**parts: Any) -> Record:
    return Record(Ran(protocol.Result(parity=ParityPart(**parts))))


def test_the_comparison_with_plain_cpu_is_a_part_of_the_report() -> None:
    seen = report(eager(), compiled(), compared(status="ran", max_relative_error=2e-7, steps=5, tensors=40))
    assert seen.parity == ParityPart(status="ran", max_relative_error=2e-7, steps=5, tensors=40)
    assert "parity" not in {entry.what for entry in seen.not_checked}


def test_a_comparison_that_was_not_made_is_said_with_its_reason() -> None:
    seen = report(eager(), compiled(), compared(status="skipped", reason="make_batch gives other values"))
    assert (seen.status, seen.parity.status) == ("pass", "skipped")
    assert ("parity", "make_batch gives other values") in [(e.what, e.why) for e in seen.not_checked]


def test_a_reference_that_dies_is_an_error_of_the_check() -> None:
    seen = report(eager(), compiled(), Record(Crashed("the reference worker crashed with SIGSEGV")))
    assert (seen.status, seen.exit_code, seen.parity.status) == ("error", 5, "crashed")
    assert seen.headline == "the reference worker crashed with SIGSEGV"
    told = {entry.what: entry.why for entry in seen.not_checked}
    assert told["parity, to its end"] == "it ended with the error in the headline"


def test_a_difference_from_plain_cpu_denies() -> None:
    found = merge([Observation(rule="NST106", phase="backward", module="h.0", message="m")])
    reference = Record(compared(status="ran").outcome, Seen(findings=found))
    seen = report(eager(), compiled(), reference)
    assert (seen.status, seen.exit_code, [f.verdict for f in seen.findings]) == ("fail", 1, ["deny"])
    assert seen.headline.startswith("1 parity failure denies")


def test_findings_of_a_part_that_died_are_judged_like_any_other() -> None:
    found = merge([Observation(rule="NST101", op="aten::a", grounds="reported", phase="forward", message="m")])
    seen = report(Record(Crashed("the eager worker crashed", "tail"), Seen(findings=found)), Record(Skipped("no")))
    assert [finding.verdict for finding in seen.findings] == ["deny"]
    assert (seen.status, seen.exit_code) == ("error", 5)
    assert seen.headline.startswith("the eager worker crashed")
    assert seen.eager.reason == "the eager worker crashed\ntail"


def test_an_error_keeps_its_hint_and_the_users_frames() -> None:
    error = protocol.Failed(
        exit_code=4, message="n.py:3: no", hint="do this", traceback="  File n.py\n", debug="ours\n"
    )
    seen = report(Record(Failed(error)), Record(Skipped("no")))
    assert seen.eager.reason == "n.py:3: no\n  hint: do this\n  File n.py\nours"


def test_the_time_is_utc_and_the_rest_is_passed_on() -> None:
    seen = report(eager(), compiled())
    assert seen.created == "2026-12-01T10:00:05Z"
    assert seen.command == "smoketest run c.yaml"
    assert seen.environment.python == "3.12"
    assert seen.device.kind == "cpu"


def test_a_death_by_a_signal_without_a_name() -> None:
    assert describe_death(-64, "eager", "in setup") == "the eager worker crashed with SIGRTMAX in setup"
    assert describe_death(-99, "eager", "in setup") == "the eager worker crashed with signal 99 in setup"


def test_the_error_in_the_headline_is_not_told_again_and_nothing_is_said_of_what_never_ran() -> None:
    notes = (NotChecked(what="numerics of the hardware", why="the emulated device computes on the CPU"),)
    seen = report(Record(failed(4), Seen(notes=notes)), Record(Skipped("not started")))
    assert seen.headline == "failed with 4"
    told = {entry.what: entry.why for entry in seen.not_checked}
    assert told["eager part, to its end"] == "it ended with the error in the headline"
    assert "numerics of the hardware" not in told


def test_a_part_whose_error_is_not_the_headline_s_tells_its_own() -> None:
    notes = (NotChecked(what="numerics of the hardware", why="x"),)
    step = Step(index=0, role="timed")
    seen = report(Record(failed(4), Seen(steps=(step,), notes=notes)), Record(Crashed("dead of SIGSEGV")))
    assert seen.headline == "dead of SIGSEGV"
    told = {entry.what: entry.why for entry in seen.not_checked}
    assert told["eager part, to its end"] == "failed with 4"
    assert told["compile probe, to its end"] == "it ended with the error in the headline"
    assert told["numerics of the hardware"] == "x"


def test_a_report_comes_about_whatever_judging_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Report:
        raise OverflowError("int too large to convert to float")

    monkeypatch.setattr("smoketest.supervise.assemble.judge_report", fails)
    ended = Record(Skipped("switched off"))
    made = report(ended, ended)
    assert (made.status, made.exit_code) == ("error", 5)
    assert made.headline == (
        "internal error: the findings were not judged: OverflowError: int too large to convert to float"
    )
