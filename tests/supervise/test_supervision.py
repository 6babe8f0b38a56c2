"""Whatever becomes of a worker, a report is left and nothing runs on. Real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from smoketest.config import Check
from smoketest.findings import Report
from smoketest.supervise.files import LOG_HEAD, LOG_TAIL
from smoketest.supervise.run import Limits, Options, run_check

ROOT = Path(__file__).parents[2]
DOUBLE = "tests.supervise.double"


@pytest.fixture(autouse=True)
def _doubles_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def check(
    tmp_path: Path, *, timeout: float = 30, compile_enabled: bool = True, parity: bool = False, **kwargs: Any
) -> Check:
    return Check.model_validate({
        "name": "double",
        "model": {"target": "x:y", "kwargs": {"pids": str(tmp_path / "pids"), **kwargs}},
        "training": {"steps": 1, "warmup": 1, "timeout": timeout},
        "compile": {"enabled": compile_enabled, "timeout": timeout},
        "parity": {"enabled": parity, "timeout": timeout},
    })  # fmt: skip


def run(tmp_path: Path, *, silence: float = 60, **kwargs: Any) -> Report:
    options = Options(output=tmp_path / "out", worker=DOUBLE, limits=Limits(silence=silence, grace=0.3))
    report = run_check(check(tmp_path, **kwargs), options)
    written = Report.model_validate_json((tmp_path / "out" / "double" / "report.json").read_text())
    assert written == report, "the report returned is the report written"
    assert (tmp_path / "out" / "double" / "report.md").read_text().strip()
    assert (tmp_path / "out" / "double" / "report.html").read_text().startswith("<!DOCTYPE html>")
    return report


def gone(pid: int, patience: float = 60) -> bool:
    """Whether a process is no more; a zombie waiting for its parent's wait counts as gone."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def pids(tmp_path: Path, patience: float = 60) -> list[int]:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if (tmp_path / "pids").exists() and (text := (tmp_path / "pids").read_text()):
            return list(json.loads(text))
        time.sleep(0.05)
    raise AssertionError("the worker did not get to its work")


def wait_for(path: Path, patience: float = 60) -> None:
    until = time.monotonic() + patience
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} did not come"
        time.sleep(0.02)


def test_a_worker_that_cannot_be_started_leaves_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    report = run(tmp_path)
    assert report.eager.reason == "internal error: the eager worker cannot be started: No such file or directory"
    assert (report.eager.status, report.compile.status, report.exit_code) == ("failed", "skipped", 5)


def test_a_part_that_nothing_starts_ends_the_run_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smoketest.supervise.run._Run._maybe_refer", lambda run: None)
    report = run(tmp_path, compile_enabled=False, act="good")
    assert report.exit_code == 5
    assert (
        report.parity.reason == "internal error: nothing runs, and the reference part was neither started nor left out"
    )


def test_a_worker_that_cannot_be_imported_says_why(tmp_path: Path) -> None:
    report = run_check(check(tmp_path), Options(output=tmp_path / "out", worker="tests.supervise.nothere"))
    assert report.eager.reason is not None
    assert report.eager.reason.startswith("the eager worker exited with code 1 before the first step\n")
    assert report.eager.reason.endswith("No module named tests.supervise.nothere")


def test_both_parts_become_one_report(tmp_path: Path) -> None:
    report = run(tmp_path, finding=True)
    assert (report.eager.status, report.compile.status, report.parity.status) == ("ran", "ran", "skipped")
    assert [(row.op, row.eager, row.compile, row.calls_per_step) for row in report.operators] == [
        ("aten::atan2", "cpu", "fails", 2),
        ("aten::mm", "not_reached", "lowers", None),
    ]
    assert [(f.op, f.verdict) for f in report.findings] == [("aten::atan2.out", "deny")]
    assert (report.status, report.exit_code) == ("fail", 1)
    assert {entry.what for entry in report.not_checked} == {"memory", "parity"}
    assert report.device.profile == "double"


def test_a_run_without_findings_passes(tmp_path: Path) -> None:
    report = run(tmp_path)
    assert (report.status, report.exit_code) == ("pass", 0)


def test_the_journal_holds_the_events_but_no_heartbeats(tmp_path: Path) -> None:
    run(tmp_path)
    lines = (tmp_path / "out" / "double" / "log" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [e["event"]["event"] for e in events if e["part"] == "eager"] == [
        "hello", "phase", "facts", "step", "step", "timed_part_over", "step", "note", "result",
    ]  # fmt: skip


def test_the_compile_probe_waits_for_the_last_timed_step_but_not_for_the_traced_one(tmp_path: Path) -> None:
    run(tmp_path, device="emulated")
    lines = (tmp_path / "out" / "double" / "log" / "events.jsonl").read_text().splitlines()
    events = [(e["part"], e["event"]["event"]) for e in map(json.loads, lines)]
    assert events.index(("eager", "timed_part_over")) < events.index(("compile", "hello"))


def test_on_a_real_device_the_compile_probe_waits_for_the_whole_eager_part(tmp_path: Path) -> None:
    run(tmp_path, device="neuron")
    lines = (tmp_path / "out" / "double" / "log" / "events.jsonl").read_text().splitlines()
    events = [(e["part"], e["event"]["event"]) for e in map(json.loads, lines)]
    assert events.index(("eager", "result")) < events.index(("compile", "hello"))


def test_the_strict_witness_has_the_core_between_the_eager_part_and_the_compile_probe(tmp_path: Path) -> None:
    report = run(tmp_path, device="neuron", finding=True, kind="unknown")
    lines = (tmp_path / "out" / "double" / "log" / "events.jsonl").read_text().splitlines()
    events = [(e["part"], e["event"]["event"]) for e in map(json.loads, lines)]
    order = [("eager", "result"), ("strict", "hello"), ("strict", "result"), ("compile", "hello")]
    assert sorted(order, key=events.index) == order
    (found,) = [f for f in report.findings if f.op == "aten::atan2.out"]
    assert (found.kind, found.witnesses) == ("recovered", ("strict",))


@pytest.mark.parametrize(
    ("act", "why"),
    [
        ("segv", "the strict witness could not tell: the strict worker crashed with SIGSEGV in setup"),
        ("no_device", "the strict witness could not tell: no neuron device"),
    ],
)
def test_a_strict_witness_that_dies_takes_nothing_with_it_and_is_told_of(tmp_path: Path, act: str, why: str) -> None:
    report = run(tmp_path, device="neuron", finding=True, kind="unknown", act_strict=act, compile_enabled=False)
    assert report.eager.status == "ran"
    assert report.exit_code == 1
    assert [f.kind for f in report.findings if f.op == "aten::atan2.out"] == ["unknown"]
    assert {n.what: n.why for n in report.not_checked}["why aten::atan2.out ran on the CPU"] == why


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        ("kill9", "the eager worker crashed with SIGKILL in step 2 (timed), backward, after aten::mm in stem.conv"
                  " (the system does this when memory runs out)"),
        ("segv", "the eager worker crashed with SIGSEGV in step 2 (timed), backward, after aten::mm in stem.conv"),
        ("exit3", "the eager worker exited with code 3 in step 2 (timed), backward, after aten::mm in stem.conv"),
        ("exit0", "the eager worker exited with code 0 in step 2 (timed), backward, after aten::mm in stem.conv"),
    ],
)  # fmt: skip
def test_a_worker_that_dies_leaves_a_report_that_says_of_what_and_where(tmp_path: Path, act: str, reason: str) -> None:
    report = run(tmp_path, act=act)
    assert report.eager.status == "crashed"
    assert report.eager.reason is not None
    assert report.eager.reason.splitlines()[0] == reason
    assert (report.status, report.exit_code) == ("error", 5)
    assert reason in report.headline
    assert [step.role for step in report.eager.steps] == ["warmup"]
    assert report.compile.status == "ran", "the probe runs all the same"


def test_what_the_worker_last_printed_is_in_the_reason(tmp_path: Path) -> None:
    report = run(tmp_path, act="segv", compile_enabled=False)
    assert report.eager.reason is not None
    assert report.eager.reason.endswith("\nFatal Python error: Segmentation fault")


def test_a_worker_that_dies_in_setup_is_not_followed_by_a_probe_that_would_too(tmp_path: Path) -> None:
    report = run(tmp_path, act="die_in_setup")
    assert report.eager.reason == "the eager worker exited with code 3 in setup"
    assert (report.compile.status, report.compile.reason) == (
        "skipped", "the eager part ended before the workload stood",
    )  # fmt: skip
    assert report.exit_code == 5
    assert report.device.profile_note == "the worker ended before it opened a device"


def test_a_compile_worker_that_dies_takes_nothing_of_the_eager_part_with_it(tmp_path: Path) -> None:
    report = run(tmp_path, act_compile="segv", finding=True)
    assert report.eager.status == "ran"
    assert len(report.findings) == 1
    assert report.compile.status == "crashed"
    assert (report.status, report.exit_code) == ("error", 5)


def test_findings_sent_before_a_crash_are_in_the_report(tmp_path: Path) -> None:
    report = run(tmp_path, act_traced="kill9", finding=True, compile_enabled=False)
    assert [f.op for f in report.findings] == ["aten::atan2.out"]
    assert len(report.eager.steps) == 3
    assert report.exit_code == 5


WAITING: dict[str, dict[str, Any]] = {
    "hang": {"act": "hang", "timeout": 15, "compile_enabled": False},
    "own_session": {"act": "own_session", "timeout": 15, "compile_enabled": False},
    "slow probe": {"act_compile": "sleep", "timeout": 15},
    "stop": {"act": "stop", "silence": 10, "compile_enabled": False},
    "freeze": {"act": "freeze", "silence": 10, "compile_enabled": False},
}
"""Time enough for a worker to get to what it does, on a busy machine too."""


@dataclass(frozen=True)
class Waited:
    report: Report
    folder: Path


@pytest.fixture(scope="module")
def waited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Waited]:
    """Runs that end when a time is up: all at once, since they do nothing but wait."""
    folders = {name: tmp_path_factory.mktemp("waiting") for name in WAITING}
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(len(WAITING)) as pool:
        patch.chdir(ROOT)
        reports = {name: pool.submit(run, folders[name], **how) for name, how in WAITING.items()}
        return {name: Waited(report.result(), folders[name]) for name, report in reports.items()}


def test_a_worker_that_hangs_is_killed_with_all_it_started(waited: dict[str, Waited]) -> None:
    report = waited["hang"].report
    assert report.eager.status == "timed_out"
    assert report.eager.reason == (
        "the eager part took longer than 15 s (training.timeout) and was stopped"
        " in step 2 (timed), backward, after aten::mm in stem.conv"
    )
    assert report.exit_code == 5
    assert [gone(pid) for pid in pids(waited["hang"].folder)] == [True, True]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="no /proc to find them by")
def test_what_a_worker_started_in_a_session_of_its_own_is_killed_with_it(waited: dict[str, Waited]) -> None:
    assert waited["own_session"].report.eager.status == "timed_out"
    assert [gone(pid) for pid in pids(waited["own_session"].folder)] == [True, True]


def test_the_compile_probe_has_a_timeout_of_its_own(waited: dict[str, Waited]) -> None:
    report = waited["slow probe"].report
    assert report.eager.status == "ran"
    assert report.compile.status == "timed_out"
    assert report.compile.reason == (
        "the compile part took longer than 15 s (compile.timeout) and was stopped in lower, 4 of 4"
    )
    assert [gone(pid) for pid in pids(waited["slow probe"].folder)] == [True, True]


@pytest.mark.parametrize("act", ["stop", "freeze"])
def test_a_worker_without_a_sign_of_life_is_stopped(waited: dict[str, Waited], act: str) -> None:
    report = waited[act].report
    assert report.eager.status == "timed_out"
    assert report.eager.reason is not None
    assert report.eager.reason.startswith("the eager worker gave no sign of life for 10 s and was stopped in step 2")
    assert report.exit_code == 5


def test_a_worker_that_closes_its_pipes_is_waited_for_in_peace(tmp_path: Path) -> None:
    before = time.process_time()
    report = run(tmp_path, act="close_pipes", silence=5, compile_enabled=False)
    assert report.eager.status == "timed_out"
    assert time.process_time() - before < 3, "the supervisor spins: five seconds of it"


def test_a_thread_left_behind_by_user_code_does_not_keep_a_finished_worker(tmp_path: Path) -> None:
    options = Options(output=tmp_path / "out", worker=DOUBLE, limits=Limits(grace=0.3, farewell=0.5))
    before = time.monotonic()
    report = run_check(check(tmp_path, act="linger", compile_enabled=False), options)
    assert (report.eager.status, report.exit_code) == ("ran", 0)
    assert time.monotonic() - before < 200, "the thread sleeps for 600 s"


def test_what_a_dead_worker_started_is_killed_too(tmp_path: Path) -> None:
    report = run(tmp_path, act="orphan", compile_enabled=False)
    assert report.eager.status == "crashed"
    assert [gone(pid) for pid in pids(tmp_path)] == [True, True]


def test_a_flood_of_output_neither_blocks_the_worker_nor_fills_the_disk(tmp_path: Path) -> None:
    report = run(tmp_path, act="flood", compile_enabled=False)
    assert report.eager.status == "ran"
    log = tmp_path / "out" / "double" / "log" / "eager.log"
    assert log.stat().st_size <= LOG_HEAD + LOG_TAIL + 200
    assert log.read_text().endswith("the last line\n")
    assert "bytes left out here" in log.read_text()


def test_the_last_words_after_a_flood_are_in_the_reason_and_bounded(tmp_path: Path) -> None:
    report = run(tmp_path, act="flood_and_die", compile_enabled=False)
    assert report.eager.reason is not None
    assert report.eager.reason.endswith("\nRuntimeError: the reason")
    assert len(report.eager.reason) < 8_000


@pytest.mark.parametrize(
    ("act", "detail"), [("malformed", "Invalid JSON"), ("unknown", "surprise"), ("endless", "an event without end")]
)
def test_a_malformed_event_is_an_internal_error_with_one_message(tmp_path: Path, act: str, detail: str) -> None:
    report = run(tmp_path, act=act, compile_enabled=False)
    assert report.eager.status == "failed"
    assert report.eager.reason is not None
    assert report.eager.reason.startswith("internal error: the eager worker sent a malformed event (")
    assert detail in report.eager.reason
    assert (report.status, report.exit_code) == ("error", 5)


@pytest.mark.parametrize(("act", "exit_code", "message"), [
    ("user_error", 4, "model.py:3: ValueError: no"), ("no_device", 3, "no neuron device"),
])  # fmt: skip
def test_an_error_of_the_workload_or_the_device_has_its_exit_code_and_no_probe_follows(
    tmp_path: Path, act: str, exit_code: int, message: str
) -> None:
    report = run(tmp_path, act=act)
    assert (report.status, report.exit_code) == ("error", exit_code)
    assert report.eager.status == "failed"
    assert (report.eager.reason or "").startswith(message)
    assert message in report.headline
    assert report.compile.status == "skipped"


def test_a_probe_that_is_switched_off_is_skipped_and_said_to_be(tmp_path: Path) -> None:
    report = run(tmp_path, compile_enabled=False)
    assert (report.compile.status, report.exit_code) == ("skipped", 0)
    assert {e.what: e.why for e in report.not_checked}["compile probe"] == "switched off in the check (compile.enabled)"


SCRIPT = """
import sys
from pathlib import Path
from smoketest.config import Check
from smoketest.supervise.run import Limits, Options, run_check

check = Check.model_validate_json(Path(sys.argv[1]).read_text())
options = Options(output=Path(sys.argv[2]), worker="tests.supervise.double", limits=Limits(grace=float(sys.argv[3])))
try:
    sys.exit(run_check(check, options).exit_code)
except KeyboardInterrupt:
    sys.exit(99)
"""


def start(tmp_path: Path, act: str, *, grace: float = 0.5, **kwargs: Any) -> subprocess.Popen[str]:
    """A supervisor in a process of its own."""
    (tmp_path / "check.json").write_text(check(tmp_path, act=act, **kwargs).model_dump_json())
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "check.json"), str(tmp_path / "out"), str(grace)],
        cwd=ROOT, text=True, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_a_report_of_what_was_seen(tmp_path: Path, number: signal.Signals) -> None:
    parent = start(tmp_path, "sleep")
    workers = pids(tmp_path)
    parent.send_signal(number)
    _, errors = parent.communicate(timeout=200)
    assert parent.returncode == 130, errors
    report = Report.model_validate_json((tmp_path / "out" / "double" / "report.json").read_text())
    assert (report.status, report.exit_code) == ("error", 130)
    assert report.eager.reason == (
        f"interrupted by {number.name} in step 2 (timed), backward, after aten::mm in stem.conv"
    )
    assert [step.role for step in report.eager.steps] == ["warmup"]
    assert [gone(pid) for pid in workers] == [True, True]


def test_an_interruption_of_the_probe_is_not_said_to_be_before_the_steps_that_ran(tmp_path: Path) -> None:
    parent = start(tmp_path, "nothing", act_compile="sleep")
    pids(tmp_path)
    parent.send_signal(signal.SIGINT)
    parent.communicate(timeout=200)
    report = Report.model_validate_json((tmp_path / "out" / "double" / "report.json").read_text())
    assert (report.eager.status, report.eager.reason, report.compile.status) == ("ran", None, "failed")
    assert report.compile.reason == "interrupted by SIGINT in the compile probe (in lower, 4 of 4)"
    assert report.headline.startswith(report.compile.reason)


def test_a_second_interruption_stops_at_once(tmp_path: Path) -> None:
    parent = start(tmp_path, "hang", grace=600)
    workers = pids(tmp_path)
    parent.send_signal(signal.SIGINT)
    wait_for(tmp_path / "pids.asked")
    parent.send_signal(signal.SIGINT)
    parent.communicate(timeout=200)  # less than the grace
    assert parent.returncode == 99
    assert [gone(pid) for pid in workers] == [True, True]


def test_no_worker_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    parent = start(tmp_path, "sleep")
    worker, grandchild = pids(tmp_path)
    parent.kill()
    parent.communicate(timeout=200)
    try:
        assert gone(worker), "the worker ends when its pipe breaks"
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_an_output_folder_that_cannot_be_written_is_said_before_anything_runs(tmp_path: Path) -> None:
    from smoketest.errors import ConfigError

    (tmp_path / "out").write_text("a file")
    with pytest.raises(ConfigError, match="the output folder cannot be written") as caught:
        run_check(check(tmp_path), Options(output=tmp_path / "out", worker=DOUBLE))
    assert caught.value.exit_code == 2


def test_a_second_run_into_the_same_folder_is_refused_while_the_first_is_there(tmp_path: Path) -> None:
    from smoketest.errors import ConfigError
    from smoketest.supervise.files import locked

    folder = tmp_path / "out" / "double"
    folder.mkdir(parents=True)
    with locked(folder), pytest.raises(ConfigError, match="another run is writing into this folder") as caught:
        run_check(check(tmp_path), Options(output=tmp_path / "out", worker=DOUBLE))
    assert caught.value.exit_code == 2
    assert not (folder / "report.json").exists()
    with locked(folder):
        assert sorted(each.name for each in folder.iterdir()) == ["log"], "the lock is no file"


def test_a_baseline_that_is_a_pipe_is_refused_without_waiting_for_its_other_end(tmp_path: Path) -> None:
    from smoketest.errors import ConfigError

    os.mkfifo(tmp_path / "pipe.json")
    asked = check(tmp_path)
    asked = asked.model_copy(update={"gate": asked.gate.model_copy(update={"baseline": tmp_path / "pipe.json"})})
    for update in (False, True):
        options = Options(output=tmp_path / "out", worker=DOUBLE, update_baseline=update)
        with pytest.raises(ConfigError, match="the baseline cannot be read: it is a pipe or a device") as caught:
            run_check(asked, options)
        assert caught.value.exit_code == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("act", ["act", "act_compile"])
def test_an_output_folder_that_user_code_removes_is_made_again(tmp_path: Path, act: str) -> None:
    report = run(tmp_path, output=str(tmp_path / "out"), **{act: "remove_output"})
    assert (report.eager.status, report.compile.status, report.exit_code) == ("ran", "ran", 0)


def test_a_run_leaves_nothing_in_the_folder_for_temporary_files_even_when_killed(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    program = (
        "from tests.supervise.test_supervision import *\n"
        f"tmp = Path({str(tmp_path)!r})\n"
        "run_check(check(tmp, act='sleep', parity=True), Options(output=tmp / 'out', worker=DOUBLE))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], env=os.environ | {"TMPDIR": str(tmp_path / "tmp")})
    worker, grandchild = pids(tmp_path)
    parent.kill()
    parent.wait()
    os.kill(grandchild, signal.SIGKILL)
    assert gone(worker)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_reference_starts_when_the_eager_part_is_over_and_finds_what_it_left(tmp_path: Path) -> None:
    report = run(tmp_path, parity=True, differs=True)
    assert (report.parity.status, report.parity.steps, report.parity.tensors) == ("ran", 3, 5)
    assert [(f.rule, f.verdict) for f in report.findings] == [("NST106", "deny")]
    assert report.exit_code == 1
    lines = (tmp_path / "out" / "double" / "log" / "events.jsonl").read_text().splitlines()
    events = [(e["part"], e["event"]["event"]) for e in map(json.loads, lines)]
    assert events.index(("eager", "result")) < events.index(("reference", "hello"))


def test_a_reference_that_crashes_leaves_a_report_that_says_so(tmp_path: Path) -> None:
    report = run(tmp_path, parity=True, act_reference="segv", compile_enabled=False)
    assert (report.parity.status, report.exit_code) == ("crashed", 5)
    assert report.parity.reason is not None
    assert report.parity.reason.startswith("the reference worker crashed with SIGSEGV in setup")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"parity": False}, "switched off in the check (parity.enabled)"),
        ({"act": "exit3"}, "the eager part did not come to its end"),
        ({"device": "cpu"}, "the check itself ran on plain CPU"),
    ],
)
def test_where_there_is_nothing_to_compare_no_reference_starts(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    report = run(tmp_path, compile_enabled=False, **{"parity": True, **settings})
    assert (report.parity.status, report.parity.reason) == ("skipped", reason)
