"""Whatever a model does to its process, there is a report, nothing of it goes on, and the command ends in peace."""

from __future__ import annotations

import re

import pytest

from tests.faults.harness import LONG, Stage, long

CLEAN = (0, "ran", None)
CASES = {
    # act, where: exit code, status of the eager part, how its reason begins
    ("system_exit", "call 1"): (4, "failed", "net.py:"),
    ("system_exit", "build"): (4, "failed", "net.py:"),
    ("system_exit", "import"): (4, "failed", "net.py:"),
    ("exit_at_once", "call 1"): (5, "crashed", "the eager worker exited with code 0 in step 1 of 2 (timed), forward"),
    ("exit_at_once", "import"): (5, "crashed", "the eager worker exited with code 0 in setup"),
    ("run_out_of_memory", "call 1"): (4, "failed", "net.py:"),
    ("take_all_memory", "call 1"): (4, "failed", "net.py:"),
    ("recurse", "call 1"): (4, "failed", "net.py:"),
    ("fork_and_go_on_in_both", "call 1"): CLEAN,
    ("fork_and_go_on_in_both", "build"): CLEAN,
    ("fork_and_go_on_in_both", "import"): CLEAN,
    ("fork_and_leave_children", "call 1"): CLEAN,
    ("fork_many", "call 1"): CLEAN,
    ("print_much", "call 1"): CLEAN,
    ("print_without_a_line_end", "call 1"): CLEAN,
    ("replace_streams", "import"): CLEAN,
    ("close_streams", "call 1"): CLEAN,
    ("lose_streams", "import"): CLEAN,
    ("close_all_files", "call 1"): (5, "crashed", "the eager worker"),
    ("close_all_files", "import"): (5, "crashed", "the eager worker"),
    ("install_hooks", "call 1"): (4, "failed", "net.py:"),
    ("change_the_clock", "import"): CLEAN,
    ("change_the_clock", "call 1"): CLEAN,
    ("stop_the_clock", "call 1"): CLEAN,
    ("raise_a_wild_text", "call 1"): (4, "failed", "net.py:"),
    ("raise_a_wild_text", "import"): (4, "failed", "net.py:"),
    ("leave_a_thread", "call 1"): CLEAN,
    ("delete_the_output", "call 1"): CLEAN,
    ("fill_files", "call 1"): CLEAN,
    ("stand_nowhere", "call 1"): CLEAN,
    ("stand_nowhere_and_raise", "call 1"): (4, "failed", "~/work/net.py:"),  # relative to nothing any more
    ("write_into_the_pipe", "call 1"): (5, "failed", "internal error: the eager worker sent a malformed event"),
}
SHORT = {
    ("exit_at_once", "call 1"),
    ("fork_and_go_on_in_both", "call 1"),
    ("fork_and_leave_children", "call 1"),
    ("close_all_files", "call 1"),
    ("change_the_clock", "call 1"),
}


@pytest.mark.parametrize(("act", "at"), CASES)
def test_a_model_that_misbehaves(stage: Stage, act: str, at: str) -> None:
    if not LONG and (act, at) not in SHORT:
        pytest.skip("long: `make faults` runs it")
    code, status, reason = CASES[act, at]
    stage.check(act=act, at=at)
    stage.internal = act == "write_into_the_pipe"
    ended = stage.run("run", "net.yaml", "--no-compile")
    report = ended.report()
    assert (ended.code, report["exit_code"], report["eager"]["status"]) == (code, code, status), ended.err
    assert (report["eager"]["reason"] or "").startswith(reason or "")
    assert len(ended.errors) <= 1
    assert len(ended.out + ended.err) < 15_000, "whatever it printed"


@pytest.mark.parametrize("act", [
    "never_return",
    pytest.param("never_return_and_refuse_to_end", marks=long),
    pytest.param("stop_itself", marks=long),
])  # fmt: skip
def test_a_model_that_never_returns_is_stopped_when_its_time_is_up(stage: Stage, act: str) -> None:
    stage.check(act=act, at="call 1", timeout=20 if LONG else 8)
    ended = stage.run("run", "net.yaml", "--no-compile")
    report = ended.report()
    assert ended.code == report["exit_code"] == 5
    assert report["eager"]["status"] == "timed_out"
    # On a busy machine the time may be up before PyTorch is imported.
    assert re.search(r"\(training\.timeout\) and was stopped (in|before) ", report["eager"]["reason"])


@long
def test_a_model_that_prints_a_gigabyte_fills_neither_disk_nor_memory(stage: Stage) -> None:
    stage.check(act="print_a_gigabyte", at="call 1", timeout=200)
    ended = stage.run("run", "net.yaml", "--no-compile", before="ulimit -v 8000000;")
    assert ended.code == ended.report()["exit_code"] == 0
    log = (ended.output / "net/log/eager.log").read_bytes()
    assert 8 * 2**20 < len(log) < 9 * 2**20
    assert b"bytes left out here]" in log


@long
def test_a_model_that_asks_the_command_to_end_is_an_interruption(stage: Stage) -> None:
    stage.check(act="end_the_command", at="call 1")
    ended = stage.run("run", "net.yaml", "--no-compile")
    assert ended.code == ended.report()["exit_code"] == 130


@long
def test_checks_that_misbehave_are_no_matter_to_those_after_them(stage: Stage) -> None:
    for number, act in enumerate(
        ("kill", "fork_and_leave_children", "close_all_files", "delete_the_output", "nothing")
    ):
        stage.check(f"{number}", act=act, at="call 1")
    ended = stage.run("run", ".", "--no-compile")
    assert [ended.report(str(number))["exit_code"] for number in range(5)] == [5, 0, 5, 0, 0]
    assert ended.code == 5
