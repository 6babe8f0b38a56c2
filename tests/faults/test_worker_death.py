"""A worker may be killed, or crash, at any phase: there is a report, which says of what and where."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from tests.faults.harness import LONG, Stage, long

EAGER = "the eager worker crashed with {} "
PLACES = {
    "import": "in setup",
    "build": "in setup",
    "eager/call 1": "in step 1 of 3 (warmup), forward",
    "eager/call 2": "in step 2 of 3 (timed), forward",
    "eager/call 3": "in step 3 (untraced), forward",
    "eager/call 4": "in step 3 of 3 (traced), forward",
    "eager/call 5": "in ",  # the estimate whether the job fits
}
SHORT = {("kill", "eager/call 2"), ("segv", "eager/call 4")}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("act", ["kill", "segv"])
def test_the_eager_worker_dies(stage: Stage, act: str, place: str) -> None:
    if not LONG and (act, place) not in SHORT:
        pytest.skip("long: `make faults` runs it")
    stage.check(act=act, at=place, warmup=1)
    ended = stage.run("run", "net.yaml", "--no-compile")
    report = ended.report()
    died = {"kill": "SIGKILL", "segv": "SIGSEGV"}[act]
    assert ended.code == report["exit_code"] == 5
    assert report["eager"]["status"] == "crashed"
    assert report["eager"]["reason"].startswith(f"the eager worker crashed with {died} {PLACES[place]}")
    assert report["headline"].startswith(f"the eager worker crashed with {died} {PLACES[place]}")
    assert len(ended.errors) <= 1, "the headline, and where there is more to tell, that"


@pytest.mark.parametrize("how", ["kill", "segv"])
def test_a_worker_dies_before_it_can_say_a_word(stage: Stage, how: str) -> None:
    stage.without_workers(how)
    stage.check()
    ended = stage.run("run", "net.yaml", "--no-compile")
    assert ended.code == ended.report()["exit_code"] == 5
    died = {"kill": "SIGKILL", "segv": "SIGSEGV"}[how]
    reason = f"the eager worker crashed with {died} before the first step"
    assert ended.report()["eager"]["reason"].startswith(reason)
    assert ended.err.count(f"\n{reason}") == 1


@pytest.mark.parametrize("place", ["reference/import", "reference/build", "reference/call 1"])
@pytest.mark.parametrize("act", ["kill", "segv"])
def test_the_reference_worker_dies_and_takes_nothing_of_the_eager_part_with_it(
    stage: Stage, act: str, place: str
) -> None:
    if not LONG and (act, place) != ("kill", "reference/call 1"):
        pytest.skip("long: `make faults` runs it")
    stage.check(act=act, at=place, device="emulated", parity=True)
    ended = stage.run("run", "net.yaml", "--no-compile")
    report = ended.report()
    assert ended.code == report["exit_code"] == 5
    assert (report["eager"]["status"], report["parity"]["status"]) == ("ran", "crashed")
    assert report["parity"]["reason"].startswith("the reference worker crashed with ")
    assert report["operators"]


@pytest.mark.parametrize("place", ["compile/import", "compile/build", "compile/call 1", "compile/call 2"])
@pytest.mark.parametrize("act", ["kill", "segv"])
def test_the_compile_probe_dies_and_takes_nothing_of_the_eager_part_with_it(stage: Stage, act: str, place: str) -> None:
    if not LONG and (act, place) != ("segv", "compile/call 1"):
        pytest.skip("long: `make faults` runs it")
    stage.check(act=act, at=place, device="emulated", compiled=True)
    ended = stage.run("run", "net.yaml")
    report = ended.report()
    assert report["eager"]["status"] == "ran"
    if place != "compile/call 2":  # Dynamo reads the second call: whether it carries it out is its own affair
        assert ended.code == report["exit_code"] == 5
        assert report["compile"]["status"] == "crashed"
        assert report["compile"]["reason"].startswith("the compile worker crashed with ")


@long
@pytest.mark.parametrize("seed", range(12))
def test_a_worker_is_killed_from_outside_at_any_time(stage: Stage, seed: int) -> None:
    stage.check(device="emulated", compiled=True, parity=True)
    process = stage.start("run", "net.yaml")
    chance = random.Random(seed)
    time.sleep(chance.uniform(0.3, 15))
    workers = [pid for pid in stage.processes() if pid != process.pid]
    if workers:
        os.kill(chance.choice(workers), signal.SIGKILL)
    ended = stage.end(process)
    assert ended.code == ended.report()["exit_code"]
