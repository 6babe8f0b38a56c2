"""The seam: three devices that answer the same questions, and a clear word where one cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from smoketest.devices.base import Device, open_device
from smoketest.devices.cpu import CpuDevice
from smoketest.devices.emulated import EmulatedDevice


def test_the_cpu_has_no_tracker_and_no_profile() -> None:
    cpu = open_device("cpu")
    cpu.synchronize()
    cpu.clear_tracking()
    assert (cpu.kind, cpu.torch_device, cpu.profile) == ("cpu", "cpu", None)
    assert (cpu.fallback_names(), cpu.continued_past()) == (None, [])
    assert cpu.note() == "plain CPU, the reference: nothing can fall back here"


def test_the_emulated_device_says_what_it_is_and_what_fell_back(device: EmulatedDevice) -> None:
    import torch

    emulated = open_device("emulated", None, False, True)
    assert device.continue_past_errors
    assert (emulated.kind, emulated.torch_device) == ("emulated", "neuron")
    assert emulated.profile is device.profile
    emulated.clear_tracking()
    torch.acos(torch.zeros(2, device="neuron"))
    emulated.synchronize()
    assert emulated.fallback_names() == ["aten::acos.out"]
    emulated.clear_tracking()
    assert emulated.fallback_names() == []
    assert emulated.note() == (
        "emulated on the CPU with the operator list torch-neuronx-prerelease-2026-04 (PRE, 2026-04, torch 2.10); "
        "a prediction, nothing ran on Trainium"
    )


def test_each_device_is_one_by_its_type(device: EmulatedDevice) -> None:
    def name(device: Device) -> str:
        return device.kind

    assert [name(CpuDevice()), name(open_device("emulated", warn=False))] == ["cpu", "emulated"]


# ------------------------------------- the real one, by what lies there under its name; one that works: tests/neuron

DOUBLE = """
import types, torch
torch.neuron = types.ModuleType("torch.neuron")
torch.neuron.is_available = lambda: AVAILABLE
"""


def install_double(where: Path, version: str | None, module: str | None) -> None:
    if version is not None:
        info = where / f"torch_neuronx-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch-neuronx\nVersion: {version}\n")
    if module is not None:
        (where / "torch_neuronx").mkdir()
        (where / "torch_neuronx" / "__init__.py").write_text(module)


def run(where: Path, program: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(where)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


ASK = """
import sys
from smoketest.devices.base import neuron_available, open_device
from smoketest.errors import DeviceUnavailable
usable = neuron_available()
assert "torch" not in sys.modules and "torch_neuronx" not in sys.modules
try:
    device = open_device("neuron")
except DeviceUnavailable as error:
    print(usable, error.exit_code, error)
"""


@pytest.mark.parametrize(
    ("version", "module", "says"),
    [
        (None, None, "False 3 torch-neuronx is not installed"),
        (None, "", "there is a module torch_neuronx, but no distribution torch-neuronx: it is not Amazon's"),
        ("1.0", "", "False 3 torch-neuronx 1.0 is PyPI's empty placeholder"),
        ("2.9.0.2.15.32035", "", "False 3 torch-neuronx 2.9.0.2.15.32035 is not a native release"),
        ("2.12.3.0.1636", "", "2.11 and 2.12 were closed betas"),
        ("2.13.2", "", "False 3 torch-neuronx 2.13.2 is not a native release"),
        ("2.15.3.0.1", "", "False 3 torch-neuronx 2.15.3.0.1 is newer than this package knows (below 2.15)"),
        ("2.14.3.0.1", None, "is installed but has no module torch_neuronx"),
        ("2.14.3.0.1", "raise OSError('libnrt.so.1: cannot open')", "does not load: libnrt.so.1: cannot open"),
        ("2.14.3.0.1", "", "loaded, but did not register torch.neuron"),
        ("2.14.3.0.1", DOUBLE.replace("AVAILABLE", "True"), "does not work: Expected one of cpu"),
        ("2.14.3.0.1", DOUBLE.replace("AVAILABLE", "False"), "finds no Neuron device\n  hint: check that `neuron-ls`"),
    ],
)
def test_what_cannot_be_used_is_named_with_advice(
    version: str | None, module: str | None, says: str, tmp_path: Path
) -> None:
    install_double(tmp_path, version, module)
    answer = run(tmp_path, ASK)
    assert says in answer
    assert " 3 " in answer.splitlines()[0], "exit code of an environment that is not fit"
    assert "\n  hint: " in answer


def test_the_older_product_under_a_number_of_the_native_one_is_told_by_its_parts(tmp_path: Path) -> None:
    install_double(tmp_path, "2.14.3.0.1", "raise SystemError('never loaded')")
    (tmp_path / "torch_neuronx" / "xla_impl").mkdir()
    answer = run(tmp_path, ASK)
    assert answer.startswith("False 3 torch-neuronx 2.14.3.0.1 has parts of the older XLA-based product: xla_impl")


def test_emulating_beside_a_loaded_backend_is_refused_with_the_way_out() -> None:
    program = (
        "import torch; torch.utils.rename_privateuse1_backend('neuron')\n"
        "import smoketest\n"
        "try: smoketest.emulate()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert answer.startswith("DeviceUnavailable this process already has a device 'neuron'")
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in answer
