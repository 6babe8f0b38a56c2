"""The doctor is asked where the real device was used, or could not be, and never else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from smoketest.doctor import Diagnosis, Line, Topic
from smoketest.findings.report import DeviceInfo, Environment, WorkloadInfo
from smoketest.supervise import protocol
from smoketest.supervise.outcome import Failed, Record, Seen, Skipped
from smoketest.supervise.surroundings import Surroundings, look_around
from smoketest.supervise.unfit import advised

SKIPPED = Record(Skipped("no"))
ABSENT = Line(Topic.NEURONX, "torch-neuronx is not installed", "the native backend", "fail", "Install it.")
LEGACY = Line(Topic.NEURONX, "torch-neuronx 2.9 is the older product", "the native backend", "fail", "Install another.")
PYTHON = Line(Topic.PYTHON, "3.11", "3.12", "fail", "Make an environment.")
PAIR = Line(Topic.PAIR, "2.14.3 with torch 2.13 is no documented pair", "pairs", "fail", "Install torch 2.14.")


def record(exit_code: int) -> Record:
    return Record(Failed(protocol.Failed(exit_code=exit_code, message="no device", hint="the worker's own")))


def ran_on(kind: str, set_by_run: Mapping[str, str] | None = None) -> Record:
    device = DeviceInfo.model_validate({"kind": kind})
    facts = protocol.Facts(
        environment=Environment(torch="2.14.0", set_by_run=dict(set_by_run or {})),
        device=device,
        workload=WorkloadInfo(),
    )
    return Record(Skipped("over"), Seen(facts))


def diagnosis(*failing: Line) -> Diagnosis:
    device = Line(Topic.USABLE, "a device", "a device", "fail" if failing else "ok")
    return Diagnosis((*failing, device), (Line(Topic.EMULATED, "usable", "usable", "ok"),))


def never() -> Diagnosis:
    raise AssertionError("called")


def rules(seen: Surroundings) -> list[tuple[str, str]]:
    return [(finding.rule, finding.message) for finding in seen.findings]


def test_an_unusable_device_ends_in_the_doctor_s_advice() -> None:
    seen = advised(record(3), diagnosis(ABSENT))
    assert seen.reason == (
        "no device\n  hint: torch-neuronx is not installed. Install it. The emulated device needs none of this and is "
        "usable here: --device emulated."
    )


def test_the_worker_s_hint_stays_where_the_doctor_finds_nothing() -> None:
    assert advised(record(3), diagnosis()).reason == "no device\n  hint: the worker's own"


def test_what_the_worker_said_is_not_said_twice() -> None:
    failed = Record(Failed(protocol.Failed(exit_code=3, message="torch-neuronx is not installed")))
    seen = advised(failed, diagnosis(ABSENT))
    assert (seen.reason or "").splitlines()[1].startswith("  hint: Install it. The emulated device")


@pytest.mark.parametrize("other", [record(4), record(5), SKIPPED, ran_on("emulated"), ran_on("cpu")])
def test_no_other_end_calls_the_doctor(other: Record) -> None:
    seen = look_around(other, SKIPPED, environ={"NEURON_CC_FLAGS": "-O3"}, whole=never, quick=lambda *_, **__: never())
    assert seen == Surroundings()
    assert advised(other, seen.diagnosis) == other


def test_a_device_that_does_not_work_is_one_finding_with_the_doctor_s_advice() -> None:
    seen = look_around(record(3), SKIPPED, whole=lambda: diagnosis(ABSENT, PYTHON))
    (finding,) = seen.findings
    assert (finding.rule, finding.class_, finding.message, finding.remedy, finding.witnesses) == (
        "NST303", "environment", "no device", "Install it.", ("doctor",),
    )  # fmt: skip
    assert [line.topic for line in seen.lines] == [Topic.NEURONX, Topic.PYTHON, Topic.USABLE]


def test_the_wrong_product_and_a_wrong_pair_have_rules_of_their_own() -> None:
    seen = look_around(record(3), SKIPPED, whole=lambda: diagnosis(LEGACY, PYTHON))
    assert rules(seen) == [("NST301", LEGACY.found), ("NST302", "3.11")]
    seen = look_around(record(3), SKIPPED, whole=lambda: diagnosis(PAIR))
    assert rules(seen) == [("NST302", PAIR.found)]


def test_settings_that_change_what_is_measured_are_findings_on_a_real_device() -> None:
    environ = {
        "NEURON_CC_FLAGS": "-O3",
        "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION": "0",  # the run overrides it
        "NEURON_FALLBACK_ENABLED": "1",  # the default
        "HOME": "/root",
    }
    eager = ran_on("neuron", {"TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION": "1"})
    seen = look_around(eager, SKIPPED, environ=environ, whole=never, quick=lambda *_, **__: (PAIR,))
    assert rules(seen) == [
        ("NST302", PAIR.found),
        ("NST304", "NEURON_CC_FLAGS=-O3: flags of the compiler: they change its numerics, time and failures"),
    ]
    assert len({finding.id for finding in seen.findings}) == 2
    again = look_around(eager, SKIPPED, environ={"NEURON_CC_FLAGS": "-O2"}, whole=never, quick=lambda *_, **__: ())
    assert again.findings[0].id == seen.findings[1].id, "another value is the same finding"
    assert seen.told(eager).seen.findings == seen.findings


def test_the_compile_probe_speaks_for_a_run_without_an_eager_part() -> None:
    seen = look_around(SKIPPED, ran_on("neuron"), environ={}, whole=never, quick=lambda *_, **__: (ABSENT,))
    assert seen.lines[0].found == ABSENT.found
