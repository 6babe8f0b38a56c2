"""The compile part on a real device, on doubles of torch-neuronx: they are no evidence about Trainium."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doubles.behaviours import Behaviour
from doubles.install import install

from smoketest.supervise.protocol import Breadcrumb

HERE = Path(__file__).parent
FIRST, SECOND = "x = self.first(x).tanh()", "return self.second(x)  # type: ignore[no-any-return]"
RUNS = (
    "Small:works:forward",
    "Small:refuses:forward",
    "Small:child:backward",
    "Small:late:backward",
    "Small:wrong:forward",
    "Small:slow:forward",
    "Refused:works:forward",
    "Refused:lowers:forward",
    "Small:dies:backward",
)


def plain() -> dict[str, str]:
    """This process's environment without settings of a device."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("NEURON_", "TORCH_NEURONX_"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("places")


@pytest.fixture(scope="module")
def done(folder: Path) -> tuple[subprocess.CompletedProcess[str], Breadcrumb]:
    """The process that made all runs, and what it was last about to do."""
    environ = install(Behaviour(asynchronous="always"), folder / "double").environ(plain())
    command = [sys.executable, "-W", "ignore", str(HERE / "on_a_double.py"), str(folder), *RUNS]
    made = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600, check=False)
    return made, Breadcrumb.unpack((folder / "breadcrumb").read_bytes())


@pytest.fixture(scope="module")
def told(done: tuple[subprocess.CompletedProcess[str], Breadcrumb]) -> dict[str, Any]:
    """What the compile part says, by model and what becomes of its graphs."""
    said: dict[str, Any] = {}
    for line in done[0].stdout.splitlines():
        if line.startswith(" {"):
            said.update(json.loads(line))
    assert list(said) == list(RUNS[:-1]), done[0].stderr
    return said


def test_on_a_device_that_works_every_graph_is_executed_and_timed(told: dict[str, Any]) -> None:
    said = told["Small:works:forward"]
    assert said["findings"] == []
    assert [graph[:3] for graph in said["graphs"]] == [
        ["0.forward", "lowered", "executed"],
        ["1.forward", "lowered", "executed"],
        ["1.backward", "lowered", "executed"],
        ["0.backward", "lowered", "executed"],
    ]
    assert all(first > 0 and steady > 0 for *_, first, steady in said["graphs"])
    assert "whether the compiled step gives what the eager one gives" not in [what for what, _ in said["not_checked"]]


def test_both_graphs_that_the_compiler_refuses_are_found_at_their_lines(told: dict[str, Any]) -> None:
    said = told["Small:refuses:forward"]
    message = (
        "is rejected by the Neuron compiler [NCC_EVRF029] (exit code 70): 2026-10-20T08:11:09Z [ERROR] [NCC_EVRF029] "
        "Operation sort is not supported on this target."
    )
    assert said["findings"] == [
        ["NST203", "forward", "graph", "measured", FIRST, f"graph 0.forward {message}"],
        ["NST203", "forward", "graph", "measured", SECOND, f"graph 1.forward {message}"],
    ]
    assert [graph[:2] for graph in said["graphs"] if graph[1] == "failed"] == [
        ["0.forward", "failed"],
        ["1.forward", "failed"],
    ]


def test_a_graph_that_the_compiler_refuses_has_a_file_that_has_the_device_compile_it(
    told: dict[str, Any], folder: Path
) -> None:
    places = [folder / "Small:refuses:forward" / str(name) for name in told["Small:refuses:forward"]["repros"]]
    assert len(places) == 2
    assert (
        places[0].read_text().startswith('"""graph 0.forward is rejected by the Neuron compiler. Written by smoketest')
    )
    refusing = install(Behaviour(compiler="refuses"), folder / "refusing")
    code, output = alone(places[0], refusing.environ(plain()))
    assert code == 1
    assert "[NCC_EVRF029] Operation sort is not supported on this target." in output
    working = install(Behaviour(), folder / "working")
    assert alone(places[0], working.environ(plain())) == (0, "the failure is gone\n")
    assert alone(places[0], plain()) == (2, "torch_neuronx is not installed\n")


def alone(path: Path, environ: dict[str, str]) -> tuple[int, str]:
    command = [sys.executable, "-W", "ignore", str(path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_what_a_compiler_in_a_process_of_its_own_prints_is_told_of_the_backward_graph(told: dict[str, Any]) -> None:
    said = told["Small:child:backward"]
    assert [finding[:5] for finding in said["findings"]] == [
        ["NST203", "backward", "graph", "measured", FIRST],
        ["NST203", "backward", "graph", "measured", SECOND],
    ]
    assert said["findings"][0][5] == (
        "graph 0.backward is rejected by the Neuron compiler [NCC_EVRF029] (exit code 70): "
        "[ERROR] [NCC_EVRF029] Operation is not supported on this target."
    )


def test_an_error_that_is_told_later_is_of_the_graph_that_was_compiled_in_the_background(told: dict[str, Any]) -> None:
    assert [finding[:5] for finding in told["Small:late:backward"]["findings"]] == [
        ["NST203", "backward", "graph", "measured", FIRST],
        ["NST203", "backward", "graph", "measured", SECOND],
    ]


def test_a_graph_that_computes_something_else_is_named(told: dict[str, Any]) -> None:
    ((rule, phase, _, grounds, line, message),) = told["Small:wrong:forward"]["findings"]
    assert (rule, phase, grounds, line) == ("NST208", "forward", "measured", FIRST)
    assert message.startswith("graph 0.forward: output 0 of the model differs from the eager one by ")


def test_waiting_for_the_compiler_is_in_the_first_time_only(told: dict[str, Any]) -> None:
    said = told["Small:slow:forward"]
    forward = {graph[0]: graph[3:] for graph in said["graphs"] if graph[0].endswith("forward")}
    assert all(first > 1000 > steady for first, steady in forward.values())
    assert said["findings"] == []


def test_an_op_that_the_devices_backend_refuses_is_measured_where_it_was_predicted(told: dict[str, Any]) -> None:
    (forward,) = [finding for finding in told["Refused:works:forward"]["findings"] if finding[1] == "forward"]
    assert forward[:5] == [
        "NST201", "forward", "aten::lgamma", "measured", "return torch.lgamma(self.first(x).abs() + 1)",
    ]  # fmt: skip


def test_what_was_predicted_and_does_not_hold_is_no_finding_and_is_told(told: dict[str, Any]) -> None:
    said = told["Refused:lowers:forward"]
    assert said["findings"] == []
    assert [graph[1:3] for graph in said["graphs"]] == [["lowered", "executed"]] * 2
    assert dict(said["not_checked"])["predictions that did not hold"] == (
        "the device compiled and ran every graph of the step; what was predicted against aten::digamma, aten::lgamma "
        "is left out"
    )


def test_a_compiled_graph_that_kills_the_process_is_the_last_thing_it_told(
    done: tuple[subprocess.CompletedProcess[str], Breadcrumb],
) -> None:
    """The supervisor reads this after the worker's death, as it does for ops."""
    assert done[0].returncode == -signal.SIGSEGV
    assert done[1].sentence() == "in compiled graph 1.backward"
