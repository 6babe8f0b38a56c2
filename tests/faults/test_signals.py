"""A signal may come at any time: a report or one word, exit code 130, and nothing that goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import pytest

from tests.faults.harness import LONG, Ended, Stage, read_report

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
STARTED = 0.15
"""Seconds until Python has come to this package's first line, on an idle machine."""


def interrupted(stage: Stage, process: subprocess.Popen[bytes]) -> Ended:
    """What is left of a run that was interrupted, or was over before the signal came."""
    ended = stage.end(process)
    if (ended.output / "net/report.json").exists():
        assert ended.code in (ended.report()["exit_code"], 130)
    else:
        assert ended.code == 130
        assert ended.err.rstrip().endswith(("interrupted", "interrupted: stopped at once, without a report"))
    return ended


def wait_for_python(process: subprocess.Popen[bytes]) -> None:
    """Wait until the package has set its handlers: before that, signals do what they do to any Python."""
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with open(f"/proc/{process.pid}/status") as file:  # noqa: PTH123
            caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt:"))
        if caught >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.002)


@pytest.mark.parametrize("seed", range(40 if LONG else 3))
def test_a_signal_at_any_time_of_the_command_s_own(stage: Stage, seed: int) -> None:
    """The worker is one that dies at once: what the signal meets is start, supervision, writing and end."""
    chance = random.Random(seed)
    stage.without_workers("kill")
    stage.check()
    process = stage.start("run", "net.yaml", "--no-compile", "--quiet")
    wait_for_python(process)
    time.sleep(chance.uniform(0, 1.5))
    process.send_signal(NUMBERS[seed % 3])
    interrupted(stage, process)


AT_THE_BRINK = """
import os, signal
real = signal.signal
def set_handler(number, handler):
    before = real(number, handler)
    if number == signal.SIGHUP and getattr(handler, "__name__", None) == "_came":  # the run's own, set last
        os.kill(os.getpid(), signal.SIGTERM)
    return before
signal.signal = set_handler
"""


@pytest.mark.parametrize("checks", [1, 2])
def test_a_signal_between_the_start_and_the_first_check_is_told(stage: Stage, checks: int) -> None:
    stage.without_workers("kill")
    with (stage.folder / "site/sitecustomize.py").open("a") as site:
        site.write(AT_THE_BRINK)
    for number in range(checks):
        stage.check(f"net{number}")
    ended = stage.run("run", ".", "--no-compile", "--quiet")
    assert ended.code == 130
    assert not list(ended.output.glob("net*"))
    assert ended.err == "interrupted\n" if checks == 1 else ended.err.count("not run: interrupted") == checks


@pytest.mark.parametrize("number", [signal.SIGINT, *([signal.SIGTERM, signal.SIGHUP] if LONG else [])])
def test_a_signal_while_a_worker_refuses_to_end(stage: Stage, number: signal.Signals) -> None:
    stage.check(act="never_return_and_refuse_to_end", at="call 1")
    process = stage.start("run", "net.yaml", "--no-compile")
    stage.wait_for(stage.work / "reports/net/log/eager.log", "asleep")
    process.send_signal(number)
    ended = interrupted(stage, process)
    assert ended.code == ended.report()["exit_code"] == 130
    reason = ended.report()["eager"]["reason"]
    assert reason.startswith(f"interrupted by {number.name} in step 1 of 2 (timed), forward")
    assert ended.err.count(f"\n{reason}\n") == 1


@pytest.mark.skipif(not LONG, reason="long: `make faults` runs it")
@pytest.mark.parametrize("seed", range(24))
def test_signals_at_any_time_of_a_whole_run(stage: Stage, seed: int) -> None:
    chance = random.Random(seed)
    stage.check(device="emulated", compiled=True, parity=True)
    process = stage.start("run", "net.yaml")
    wait_for_python(process)
    for _ in range(chance.choice((1, 1, 2, 3))):
        time.sleep(chance.uniform(0, 12) if _ == 0 else chance.uniform(0, 1))
        process.send_signal(chance.choice([*NUMBERS, signal.SIGPIPE]))
    ended = stage.end(process)
    if (ended.output / "net/report.json").exists():
        ended.report()
    else:
        assert ended.code == 130


@pytest.mark.parametrize("command", [
    ["init", "net.py:Net", "--output", "new.yaml"], ["doctor"], ["validate", "net.yaml"], ["explain", "NST101"],
])  # fmt: skip
def test_a_signal_to_a_command_that_is_no_run_is_one_word(stage: Stage, command: list[str]) -> None:
    if not LONG and command[0] != "init":
        pytest.skip("long: `make faults` runs it")
    stage.check()
    process = stage.start(*command)
    wait_for_python(process)
    time.sleep(0.5 if command[0] in ("init", "doctor") else 0)
    process.send_signal(signal.SIGTERM)
    ended = stage.end(process)
    assert ended.code == 130, ended.err
    assert ended.err.splitlines()[-1] == "interrupted"
    assert not (stage.work / "new.yaml").exists()


def test_a_pipe_that_broke_and_a_hangup_that_is_ignored_end_nothing(stage: Stage) -> None:
    stage.without_workers("kill")
    stage.check()
    process = stage.start("run", "net.yaml", "--no-compile", before="trap '' HUP;")
    wait_for_python(process)
    for number in (signal.SIGPIPE, signal.SIGHUP):
        process.send_signal(number)
        time.sleep(0.1)
    ended = stage.end(process)
    assert ended.code == ended.report()["exit_code"] == 5, "of the worker that died"


@pytest.mark.parametrize("seed", range(20 if LONG else 1))
def test_a_command_that_is_killed_leaves_a_whole_report_or_none_and_is_in_no_other_s_way(
    stage: Stage, seed: int
) -> None:
    stage.without_workers("kill")
    stage.check()
    process = stage.start("run", "net.yaml", "--no-compile")
    wait_for_python(process)
    time.sleep(random.Random(seed).uniform(0, 1.5))
    process.kill()
    process.wait()
    assert stage.left() == []
    if (stage.work / "reports/net/report.html").exists():  # the last to be written
        read_report(stage.work / "reports/net", leftovers=True)
    if not LONG:
        return
    again = stage.run("run", "net.yaml", "--no-compile")
    assert again.report()["exit_code"] == 5


def test_two_runs_into_one_folder(stage: Stage) -> None:
    """The second is refused in one message, and the first goes on as if there were none."""
    stage.without_workers("sleep")
    stage.check(timeout=120)
    first = stage.start("run", "net.yaml", "--no-compile")
    stage.wait_for(stage.folder / "err", "eager: starting")
    second = subprocess.run(first.args, cwd=stage.work, capture_output=True, text=True, timeout=60)
    assert second.returncode == 2
    assert second.stderr == (
        "error: reports/net: another run is writing into this folder\n"
        "  hint: wait for its end, or name another with --output DIR\n"
    )
    workers = [pid for pid in stage.processes() if pid != first.pid]
    assert len(workers) == 1
    os.kill(workers[0], signal.SIGKILL)
    ended = stage.end(first)
    assert ended.code == ended.report()["exit_code"] == 5
