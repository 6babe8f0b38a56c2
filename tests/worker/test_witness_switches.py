"""Each witness can be switched off: the others tell what they can, and the report says what nobody looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

OFF = "the witness is switched off in the check (witnesses.{})"
LINE = "y = torch.atan2(self.out(x), x)"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    command = [
        sys.executable, str(Path(__file__).with_name("run_switches.py")), str(tmp_path_factory.mktemp("switches"))
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def atan2(outcome: Any) -> Any:
    (found,) = [f for f in outcome["findings"] if f["op"] == "aten::atan2.out" and f["phase"] == "forward"]
    return found


def off(outcome: Any) -> dict[str, str]:
    """What is not checked since a witness is off, by the name of the witness."""
    return {why.rpartition(".")[2].rstrip(")"): what for what, why in outcome["not checked"].items() if "off" in why}


def test_with_all_of_them_a_fallback_has_all_they_tell(told: Any) -> None:
    emulated, neuron = atan2(told["emulated"][""]), atan2(told["neuron"][""])
    assert emulated["witnesses"] == ["dispatch", "kernels", "tracker", "warnings"]
    assert neuron["witnesses"] == ["dispatch", "registry", "tracker", "warnings"]
    assert {emulated["site"]["code"], neuron["site"]["code"]} == {LINE}
    assert {emulated["kind"], neuron["kind"]} == {"unimplemented"}
    assert off(told["emulated"][""]) == off(told["neuron"][""]) == {}


@pytest.mark.parametrize(
    ("device", "witness", "left"),
    [
        ("emulated", "tracker", ["dispatch", "kernels", "warnings"]),
        ("emulated", "dispatch", ["tracker", "warnings"]),
        ("emulated", "kernels", ["dispatch", "tracker", "warnings"]),
        ("emulated", "warnings", ["dispatch", "kernels", "tracker"]),
        ("emulated", "strict", ["dispatch", "kernels", "tracker", "warnings"]),
        ("neuron", "registry", ["dispatch", "tracker", "warnings"]),
        ("neuron", "dispatch", ["registry", "tracker", "warnings"]),
        ("neuron", "warnings", ["dispatch", "registry", "tracker"]),
        ("neuron", "copies", ["dispatch", "registry", "tracker", "warnings"]),
    ],
)
def test_without_one_the_others_tell_and_that_it_is_off_is_told(
    told: Any, device: str, witness: str, left: list[str]
) -> None:
    outcome = told[device][witness]
    assert outcome["status"] == "ran"
    assert atan2(outcome)["witnesses"] == left
    assert list(off(outcome)) == [witness]


def test_without_the_registry_nobody_knows_the_kind(told: Any) -> None:
    found = atan2(told["neuron"]["registry"])
    assert (found["kind"], found["message"]) == ("unknown", "aten::atan2.out ran on the CPU")


def test_without_the_dispatch_mode_there_is_neither_line_nor_count_nor_wait(told: Any) -> None:
    outcome = told["emulated"]["dispatch"]
    assert (atan2(outcome)["site"], atan2(outcome)["calls_per_step"], atan2(outcome)["exact"]) == (None, None, False)
    assert {f["rule"] for f in outcome["findings"]} == {"NST101"}
    assert outcome["op_calls"] is None
    assert off(outcome)["dispatch"] == "lines, modules, counts and host synchronisation"


def test_without_tracker_on_a_real_device_warnings_and_lines_are_left(told: Any) -> None:
    outcome = told["neuron"]["tracker"]
    found = [f for f in outcome["findings"] if f["rule"] == "NST101"]
    assert [(f["op"], f["site"], f["witnesses"]) for f in found] == [
        ("aten::atan2.out", None, ["registry", "warnings"])
    ]
    assert off(outcome)["tracker"] == "fallbacks that only the device's own list of ops tells of"


@pytest.mark.parametrize("device", ["emulated", "neuron"])
def test_with_all_of_them_off_nothing_is_found_and_nothing_is_called_clean(told: Any, device: str) -> None:
    outcome = told[device]["all"]
    assert (outcome["status"], outcome["findings"]) == ("ran", [])
    expected = {"tracker", "dispatch", "warnings", "strict"}
    assert set(off(outcome)) == expected | ({"kernels"} if device == "emulated" else {"registry", "copies"})


def test_a_native_op_that_copies_is_found_on_a_real_device_in_a_step_of_its_own(told: Any) -> None:
    (found,) = [f for f in told["neuron"][""]["findings"] if f["op"] == "switches::bounce"]
    assert (found["rule"], found["grounds"], found["phase"]) == ("NST102", "measured", "forward")
    assert found["site"]["code"] == "return y + y.detach().sum().item() + torch.ops.switches.bounce(y.detach())"
    assert (found["calls_per_step"], found["bytes_per_step"]) == (1, 64)
    assert found["witnesses"] == ["copies", "dispatch"]
    assert told["neuron"][""]["phases"][-1] == "copies"
    for without in (told["neuron"]["copies"], told["emulated"][""]):
        assert not [f for f in without["findings"] if f["op"] == "switches::bounce"]
        assert "copies" not in without["phases"]
