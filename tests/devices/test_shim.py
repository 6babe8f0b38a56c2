"""The module torch_neuronx of the emulated device: for scripts that import it, and never taken for the product."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smoketest.devices.installed import is_there

pytestmark = pytest.mark.skipif(is_there(), reason="torch-neuronx is installed here")

SCRIPT = """
import json, sys
import smoketest, torch
device = smoketest.emulate(warn=False)
from smoketest.devices.installed import find_problem, is_there
import torch_neuronx
x = torch.ones(2, device="neuron").lgamma()
torch_neuronx.synchronize()
seen = {"fallbacks": torch_neuronx.get_fallback_ops(), "executed": sorted(torch_neuronx.get_executed_ops())}
torch_neuronx.clear_op_tracking()
seen |= {"cleared": torch_neuronx.get_fallback_ops(), "version": torch_neuronx.__version__,
         "mark": torch_neuronx.__smoketest_emulated__, "file": getattr(torch_neuronx, "__file__", None)}
with torch_neuronx.stream(torch_neuronx.Stream()):
    torch_neuronx.current_stream().synchronize()
torch.compile(torch.nn.Linear(2, 2).to("neuron"), backend="neuron", dynamic=False)(torch.ones(1, 2, device="neuron"))
seen["graphs"] = len(torch_neuronx.get_dynamo_metrics())
torch_neuronx.reset_dynamo_metrics()
seen |= {"after": len(torch_neuronx.get_dynamo_metrics()), "devices": torch_neuronx.device_count(),
         "there": is_there(), "problem": find_problem().message}
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_a_script_reads_the_tracker_through_it(seen: dict[str, Any]) -> None:
    assert seen["fallbacks"] == ["aten::lgamma.out"]
    assert seen["cleared"] == []
    assert "aten::empty" in seen["executed"]


def test_dynamo_metrics_streams_and_devices_are_those_of_torch_neuron(seen: dict[str, Any]) -> None:
    assert (seen["graphs"], seen["after"], seen["devices"]) == (1, 0, 1)


def test_it_says_that_it_is_emulated(seen: dict[str, Any]) -> None:
    assert seen["version"].startswith("0.0.0+smoketest.")
    assert seen["mark"] is True
    assert seen["file"] is None


def test_nothing_takes_it_for_the_product(seen: dict[str, Any]) -> None:
    assert seen["there"] is False
    assert seen["problem"] == "torch-neuronx is not installed"


def test_a_process_that_emulates_nothing_has_no_such_module() -> None:
    done = subprocess.run([sys.executable, "-c", "import smoketest, torch_neuronx"], capture_output=True, text=True)
    assert "No module named 'torch_neuronx'" in done.stderr


def test_the_doctor_started_by_an_emulating_process_sees_no_torch_neuronx() -> None:
    script = "import smoketest; smoketest.emulate()\nfrom smoketest.doctor.probe import observe_quickly\n"
    script += (
        "import os\nseen = observe_quickly(os.environ, torch=None)\nprint('torch_neuronx' in seen.packages.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["False"], done.stderr


def test_an_installed_package_comes_first(tmp_path: Path) -> None:
    (tmp_path / "torch_neuronx.py").write_text("real = True\n")
    script = "import smoketest; smoketest.emulate()\nimport torch_neuronx\nprint(torch_neuronx.real)\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.stdout.split() == ["True"], done.stderr
