"""The doctor is asked once, where the device cannot be used, and never else."""

from __future__ import annotations

import pytest

from smoketest.doctor import Diagnosis, Line, Topic
from smoketest.supervise import protocol
from smoketest.supervise.outcome import Failed, Record, Skipped
from smoketest.supervise.unfit import advised


def record(exit_code: int) -> Record:
    return Record(Failed(protocol.Failed(exit_code=exit_code, message="no device", hint="the worker's own")))


def diagnosis(usable: bool) -> Diagnosis:
    line = Line(Topic.NEURONX, "torch-neuronx is not installed", "the native backend", "fail", "Install it.")
    device = Line(Topic.USABLE, "a device", "a device", "ok" if usable else "fail")
    emulated = Line(Topic.EMULATED, "usable", "usable", "ok")
    return Diagnosis((device,) if usable else (line, device), (emulated,))


def test_an_unusable_device_ends_in_the_doctor_s_advice() -> None:
    seen = advised(record(3), lambda: diagnosis(False))
    assert seen.reason == (
        "no device\n  hint: torch-neuronx is not installed. Install it. The emulated device needs none of this and is "
        "usable here: --device emulated."
    )


def test_the_worker_s_hint_stays_where_the_doctor_finds_nothing() -> None:
    assert advised(record(3), lambda: diagnosis(True)).reason == "no device\n  hint: the worker's own"


@pytest.mark.parametrize("other", [record(4), record(5), Record(Skipped("no"))])
def test_no_other_end_calls_the_doctor(other: Record) -> None:
    def look() -> Diagnosis:
        raise AssertionError("called")

    assert advised(other, look) == other


def test_what_the_worker_said_is_not_said_twice() -> None:
    failed = Record(Failed(protocol.Failed(exit_code=3, message="torch-neuronx is not installed")))
    seen = advised(failed, lambda: diagnosis(False))
    assert (seen.reason or "").splitlines()[1].startswith("  hint: Install it. The emulated device")
