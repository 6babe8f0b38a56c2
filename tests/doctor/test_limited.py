"""Commands with a time limit: they end, with all they started, and say how."""

from __future__ import annotations

import os
import time
from pathlib import Path

from smoketest.doctor.limited import Ended, NotStarted, TimedOut, run

ENVIRON = {"PATH": os.defpath}


def sh(script: str, seconds: float = 100) -> Ended | TimedOut | NotStarted:
    return run(["/bin/sh", "-c", script], ENVIRON, seconds)


def test_status_and_outputs_are_kept_apart() -> None:
    assert sh("echo out; echo err >&2; exit 7") == Ended(7, "out\n", "err\n")


def test_a_signal_is_a_negative_code() -> None:
    assert sh("kill -SEGV $$") == Ended(-11, "", "")


def test_what_was_said_before_the_time_was_over_is_kept() -> None:
    assert sh("echo begun; sleep 600", 2) == TimedOut(2, "begun\n", "")


def test_a_child_that_holds_the_output_open_holds_nothing_up(tmp_path: Path) -> None:
    started = time.monotonic()
    assert sh(f"sleep 600 & echo $! > {tmp_path}/pid; echo done") == Ended(0, "done\n", "")
    assert time.monotonic() - started < 90
    child = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 60
    while time.monotonic() < until:
        status = Path(f"/proc/{child}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
    else:
        raise AssertionError("the child lives")


def test_a_process_that_ignores_signals_is_killed() -> None:
    assert isinstance(sh("trap '' TERM INT HUP; while :; do sleep 1; done", 0.5), TimedOut)


def test_what_cannot_be_started_says_why() -> None:
    assert run(["/nowhere/at/all"], ENVIRON, 1) == NotStarted("No such file or directory")


def test_no_time_left_starts_nothing(tmp_path: Path) -> None:
    assert sh(f"touch {tmp_path}/ran", 0) == TimedOut(0, "", "")
    assert not (tmp_path / "ran").exists()


def test_endless_output_is_read_from_its_end() -> None:
    ending = sh("yes | head -c 3000000; echo last")
    assert isinstance(ending, Ended)
    assert len(ending.out) <= 2**20
    assert ending.out.endswith("last\n")
