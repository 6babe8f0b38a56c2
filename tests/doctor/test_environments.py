"""Each broken environment is named by its cause, in words that can be acted on.

The environments are doubles (tests/doubles): bare virtual environments with fake distributions on a machine made of
files. They are built from public facts and are no evidence about Trainium.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from doubles.machine import FakeMachine, trn2
from doubles.packages import add_legacy, add_lookalike, add_native, add_placeholder, add_sdk, add_torch
from doubles.site import Site

from smoketest.doctor import Diagnosis, Limits, Place, Topic, examine, examine_quickly, render_text

HANG = "import time; time.sleep(600)"
# Enough for what does answer, on a busy machine too.
HANGING_BACKEND, HANGING_NEURON_LS = Limits(backend=4), Limits(neuron_ls=2)
PATIENCE = 60
"""What hangs here would do so for 600 s: whether it was ended is told at once, on a busy machine too."""


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return trn2(tmp_path)


@pytest.fixture
def empty(tmp_path: Path) -> FakeMachine:
    return trn2(tmp_path, packages=False)


def cause(diagnosis: Diagnosis) -> str:
    """Topic, finding and advice of the cause, once exit code and the first paragraph are seen to agree with it."""
    assert diagnosis.exit_code == 3
    line = diagnosis.cause
    assert line is not None
    assert line.found in diagnosis.advice()
    assert line.advice in diagnosis.advice()
    return f"{line.topic}: {line.found} -> {line.advice}"


def test_a_healthy_machine_is_said_to_be_one(machine: FakeMachine) -> None:
    diagnosis = machine.examine()
    assert diagnosis.exit_code == 0, render_text(diagnosis)
    # The doubles run on whatever Python the tests run on: that line alone may warn.
    said = {line.topic: line.verdict for line in diagnosis.lines}
    assert said.pop(Topic.PYTHON) in ("ok", "warn")
    assert said.pop(Topic.COLLECT_ENV) == "unknown"
    assert set(said.values()) == {"ok"}
    assert diagnosis.of(Topic.USABLE).found == "is_available() is True, device_count() is 2"
    assert diagnosis.of(Topic.DEVICES).found == "1 device, 8 cores"
    assert diagnosis.advice() == (
        "torch has a Neuron device, and nothing found here speaks against it. No op was run to find out."
    )


def test_01_torch_neuronx_is_not_installed(empty: FakeMachine) -> None:
    add_torch(empty.site)
    add_sdk(empty.site)
    diagnosis = empty.examine()
    said = cause(diagnosis)
    assert said.startswith("torch-neuronx: torch-neuronx is not installed -> On a Trn2 or Trn3 instance")
    assert "pip install 'torch-neuronx>=2.13.3,<2.15'` from AWS's own wheel index" in said
    assert diagnosis.advice().endswith("The emulated device needs none of this and is usable here: --device emulated.")
    assert diagnosis.of(Topic.USABLE).found == "there is no torch.neuron without torch-neuronx"


def test_02_nothing_is_installed_at_all(empty: FakeMachine) -> None:
    diagnosis = empty.examine()
    assert cause(diagnosis).startswith("torch-neuronx: torch-neuronx is not installed")
    assert diagnosis.of(Topic.TORCH).found == "torch is not installed"
    assert diagnosis.advice().endswith(
        "but is not usable here either: torch is not installed. Install it: `pip install 'torch>=2.13,<2.16'`."
    )


def test_03_the_placeholder_of_pypi(empty: FakeMachine) -> None:
    add_torch(empty.site)
    add_placeholder(empty.site)
    said = cause(empty.examine())
    assert "torch-neuronx 1.0 is the empty placeholder on PyPI, not the backend" in said
    assert "`pip uninstall torch-neuronx`, then `pip install 'torch-neuronx>=2.13.3,<2.15'` from AWS's own" in said


def test_04_the_xla_product_is_told_and_never_loaded(empty: FakeMachine) -> None:
    add_torch(empty.site, "2.9.0")
    add_legacy(empty.site)
    empty.site.add("some-bridge", "1.0", entry_points={"torch.backends": {"neuron_old": "torch_neuronx:load"}})
    diagnosis = empty.examine()
    said = cause(diagnosis)
    assert "torch-neuronx 2.9.0.2.15.32035 is the older XLA-based product of the same name" in said
    assert "part xla_impl, part pyhlo, torch-xla beside it, libneuronxla beside it" in said
    assert "in a fresh environment of Python 3.12 to 3.14" in said
    assert not (empty.site.folder / "torch_neuronx" / "loaded").exists()


def test_05_the_xla_product_under_a_number_of_its_own_is_told_by_its_parts(empty: FakeMachine) -> None:
    add_torch(empty.site)
    add_legacy(empty.site, "2.14.0")
    assert "torch-neuronx 2.14.0 is the older XLA-based product" in cause(empty.examine())


def test_06_a_lookalike_that_registers_the_name_of_the_device(tmp_path: Path) -> None:
    """On the torch of this environment: the lookalike is on PYTHONPATH and loads with torch."""
    site = Site(tmp_path / "lookalike")
    add_lookalike(site, "torch.utils.rename_privateuse1_backend('neuron')")
    environ = dict(os.environ) | {"PYTHONPATH": str(site.folder)}
    diagnosis = examine(environ, python=sys.executable, place=Place(tmp_path, "Linux", "x86_64"))
    said = cause(diagnosis)
    assert "torch-neuronx is not installed, something else goes by its name: libtorch-neuronx-lite 0.3.0" in said
    assert "What runs there is not the backend" in said
    assert "something took the name only" in diagnosis.of(Topic.USABLE).found
    assert diagnosis.of(Topic.EMULATED).verdict == "ok"


def test_07_a_lookalike_with_a_whole_device_module(empty: FakeMachine) -> None:
    add_torch(empty.site)
    add_lookalike(
        empty.site, "torch.neuron = type('N', (), {'is_available': lambda s: True, 'device_count': lambda s: 1})()"
    )
    diagnosis = empty.examine()
    assert "something else goes by its name: libtorch-neuronx-lite" in cause(diagnosis)
    assert diagnosis.of(Topic.USABLE).found == "there is a torch.neuron, but it is not torch-neuronx's"
    assert diagnosis.of(Topic.USABLE).verdict == "fail"


def test_08_a_folder_called_torch_neuronx_of_no_distribution(empty: FakeMachine, tmp_path: Path) -> None:
    add_torch(empty.site)
    Site(tmp_path / "mine").write({"torch_neuronx/__init__.py": ""})
    empty.environ["PYTHONPATH"] = str(tmp_path / "mine")
    said = cause(empty.examine())
    assert f"a module torch_neuronx in {tmp_path}/mine/torch_neuronx that belongs to no distribution" in said
    assert "Remove that" in said


def test_09_torch_and_torch_neuronx_are_no_pair(empty: FakeMachine) -> None:
    add_torch(empty.site, "2.14.0+cpu")
    add_native(empty.site, "2.13.3.0.99")
    add_sdk(empty.site)
    said = cause(empty.examine())
    assert said == (
        "torch pair: torch-neuronx 2.13.3.0.99 with torch 2.14.0+cpu is no documented pair -> "
        "Install the torch it is built for: `pip install 'torch==2.13.0'`."
    )


def test_10_torch_does_not_load(empty: FakeMachine) -> None:
    add_torch(empty.site, on_import="raise ImportError('libcudart.so.13: cannot open shared object file')")
    add_native(empty.site)
    add_sdk(empty.site)
    diagnosis = empty.examine()
    said = cause(diagnosis)
    assert "torch 2.14.0 does not load: ImportError: libcudart.so.13: cannot open shared object file" in said
    assert "pip install --force-reinstall 'torch==2.14.0'" in said
    assert diagnosis.of(Topic.EMULATED).verdict == "fail"


def test_11_torch_is_missing_beside_torch_neuronx(empty: FakeMachine) -> None:
    add_native(empty.site, "2.13.3.0.99")
    add_sdk(empty.site)
    said = cause(empty.examine())
    assert said.startswith("torch: torch is not installed -> Install the release torch-neuronx is built for")
    assert "torch==2.13.0" in said


def test_12_the_xla_bridge_beside_the_native_backend(machine: FakeMachine) -> None:
    machine.site.add("torch-xla", "2.9.0", {"torch_xla/__init__.py": ""})
    said = cause(machine.examine())
    assert "torch-xla 2.9.0 beside the native torch-neuronx" in said
    assert "`pip uninstall torch-xla`" in said


def test_13_a_public_torch_mlir_lies_over_the_one_of_torch_neuronx(empty: FakeMachine) -> None:
    add_torch(empty.site)
    add_sdk(empty.site)
    add_native(empty.site, more={"torch_mlir/__init__.py": ""})
    empty.site.add("torch-mlir", "20261001", {"torch_mlir/__init__.py": ""})
    said = cause(empty.examine())
    assert "torch-mlir 20261001, the public one, beside torch-neuronx" in said
    assert "whose files it lies over" in said
    assert "`pip uninstall torch-mlir`, then reinstall torch-neuronx" in said


def test_a_public_torch_mlir_that_lies_over_nothing_warns(machine: FakeMachine) -> None:
    machine.site.add("torch-mlir", "20261001", {"torch_mlir/__init__.py": ""})
    diagnosis = machine.examine()
    assert diagnosis.ok
    assert diagnosis.of(Topic.BESIDE).verdict == "warn"
    assert "do not install smoketest's extra `lowering`" in diagnosis.of(Topic.BESIDE).advice


def test_14_no_driver_and_no_tools(machine: FakeMachine, tmp_path: Path) -> None:
    (machine.root / "sys/module/neuron/version").unlink()
    (machine.root / "sys/module/neuron").rmdir()
    (machine.root / "opt/aws/neuron/bin/neuron-ls").unlink()
    add_native(machine.site, is_available="return False", count=0)
    diagnosis = machine.examine()
    said = cause(diagnosis)
    assert "no kernel module `neuron` is loaded" in said
    assert "install the Neuron driver" in said
    assert "there is no neuron-ls, neither on PATH nor in /opt/aws/neuron/bin" in diagnosis.of(Topic.DEVICES).found


def test_15_a_container_without_the_devices(machine: FakeMachine) -> None:
    machine.set_neuron_ls("echo 'Failed to get Neuron instance information. Status: 1' >&2; exit 1")
    add_native(machine.site, is_available="return False", count=0)
    said = cause(machine.examine())
    assert "neuron-ls ended with status 1: Failed to get Neuron instance information. Status: 1" in said
    assert "`docker run --device=/dev/neuron0 ...`, or `--privileged`" in said


def test_16_the_device_hangs_when_it_is_asked_for(machine: FakeMachine) -> None:
    add_native(machine.site, is_available=HANG)
    started = time.monotonic()
    said = cause(machine.examine(HANGING_BACKEND))
    assert time.monotonic() - started < PATIENCE
    assert "torch.neuron: torch.neuron.is_available() did not answer within 4 s" in said
    assert "another user of the device" in said


def test_17_the_device_is_busy(machine: FakeMachine) -> None:
    busy = "Logical Neuron Core(s) not available - Requested:lnc0-lnc0 Available:0 (cores busy, ret=-16)"  # [USER-B4]
    add_native(machine.site, is_available=f"raise RuntimeError({busy!r})")
    held = '[{"neuron_device": 0, "nc_count": 8, "neuron_processes": [{"pid": 4711, "command": "python train.py"}]}]'
    machine.set_neuron_ls(f"echo '{held}'")
    diagnosis = machine.examine()
    said = cause(diagnosis)
    assert "the cores are busy: torch.neuron.is_available() raises RuntimeError: Logical Neuron Core(s)" in said
    assert "wait, or end it" in said
    assert diagnosis.of(Topic.DEVICES).found == "1 device, 8 cores, used by 1 process: 4711"


def test_18_torch_neuronx_finds_no_device(machine: FakeMachine) -> None:
    add_native(machine.site, is_available="return False", count=0)
    machine.environ["NEURON_RT_VISIBLE_CORES"] = "9"
    said = cause(machine.examine())
    assert "is_available() is False, device_count() is 0: torch-neuronx finds no device" in said
    assert "NEURON_RT_VISIBLE_CORES=9 decides which cores are seen: unset it" in said


def test_19_the_backend_kills_the_process(machine: FakeMachine) -> None:
    add_native(machine.site, on_import="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    said = cause(machine.examine())
    assert "torch.neuron: the process was killed by SIGSEGV in autoload torch_neuronx" in said
    assert "as a documented pair" in said


def test_20_the_backend_does_not_load(machine: FakeMachine) -> None:
    add_native(machine.site, on_import="raise ImportError('libnrt.so.1: cannot open shared object file')")
    said = cause(machine.examine())
    assert "raises ImportError: libnrt.so.1: cannot open shared object file" in said
    assert "documented pair" in said


def test_21_an_instance_of_an_older_generation(machine: FakeMachine) -> None:
    machine.set_instance("trn1.2xlarge")
    add_native(machine.site, is_available="return False", count=0)
    said = cause(machine.examine())
    assert "trn1.2xlarge is of an older Neuron generation" in said
    assert "Use a Trn2 or Trn3 instance, such as trn2.3xlarge" in said


def test_22_a_laptop(empty: FakeMachine) -> None:
    add_torch(empty.site)
    empty.system, empty.architecture = "Darwin", "arm64"
    diagnosis = empty.examine()
    assert "Darwin on arm64: torch-neuronx is for Linux on x86_64 only" in cause(diagnosis)
    assert "usable here: --device emulated" in diagnosis.advice()
    assert diagnosis.exit_code == 3


def test_23_a_closed_beta(empty: FakeMachine) -> None:
    add_torch(empty.site, "2.12.1")
    add_native(empty.site, "2.12.3.0.1636")
    said = cause(empty.examine())
    assert "torch-neuronx 2.12.3.0.1636 is a closed beta of the native backend" in said
    assert "Install the native release" in said


def test_24_the_compiler_is_missing(empty: FakeMachine) -> None:
    add_torch(empty.site)
    add_native(empty.site, requires=["torch==2.14.0", 'Neuronx_CC>=2.28; python_version >= "3.8"'])
    said = cause(empty.examine())
    assert "neuronx-cc: neuronx-cc is not installed, and torch-neuronx requires it" in said
    assert "comes with the SDK" in said


def test_a_compiler_that_torch_neuronx_may_bring_itself_is_no_fault(empty: FakeMachine) -> None:
    add_torch(empty.site)
    add_native(empty.site, requires=['neuronx-cc; extra == "compiler"'])
    diagnosis = empty.examine()
    assert diagnosis.ok
    line = diagnosis.of(Topic.COMPILER)
    assert (line.verdict, line.found) == (
        "warn",
        "neuronx-cc is not installed; torch-neuronx does not say that it requires it, and may bring it",
    )


def test_logical_cores_are_told_apart_from_physical_ones(machine: FakeMachine) -> None:
    """As scripts for a trn2 read it. [USER]"""
    listed = [{"neuron_device": 0, "nc_count": 8, "logical_neuroncore_config": 2, "neuroncore_ids": [0, 1, 2, 3]}]
    machine.set_neuron_ls(f"echo '{json.dumps(listed)}'")
    assert machine.examine().of(Topic.DEVICES).found == "1 device, 8 cores (4 logical)"


def test_what_needs_no_device_is_looked_at_without_torch(machine: FakeMachine) -> None:
    """As for the environment section of a report: a run has loaded torch and has had a device already."""
    add_torch(machine.site, on_import="raise ImportError('never loaded')")
    machine.set_neuron_ls("sleep 60")
    place = Place(machine.root, "Linux", "x86_64")
    environ = machine.environ | {"NEURON_CC_FLAGS": "--auto-cast=all"}
    lines = examine_quickly(environ, torch="2.14.0", usable=True, python=machine.python, place=place)
    said = {line.topic: line.verdict for line in lines}
    assert said.pop(Topic.PYTHON) in ("ok", "warn")
    assert said.pop(Topic.SETTINGS) == "warn"
    assert set(said.values()) == {"ok"}
    assert not said.keys() & {Topic.DEVICES, Topic.COLLECT_ENV, Topic.USABLE}


def test_25_two_versions_are_registered(machine: FakeMachine) -> None:
    machine.site.add("torch-neuronx", "2.13.3.0.1")
    said = cause(machine.examine())
    assert "torch-neuronx is registered 2 times" in said
    assert "`pip uninstall torch-neuronx` until it is gone" in said


def test_26_metadata_without_a_module(empty: FakeMachine) -> None:
    add_torch(empty.site)
    empty.site.add("torch-neuronx", "2.14.3.0.1")
    said = cause(empty.examine())
    assert "torch-neuronx 2.14.3.0.1 is registered, but has no module torch_neuronx" in said
    assert "--force-reinstall" in said


def test_damaged_metadata_of_others_is_no_hindrance(machine: FakeMachine) -> None:
    (machine.site.folder / "empty-1.0.dist-info").mkdir()
    machine.site.write({"odd-1.0.dist-info/METADATA": "Version: 1.0\n", "odd-1.0.dist-info/entry_points.txt": "[["})
    assert machine.examine().ok


def test_27_signs_that_contradict_each_other(empty: FakeMachine) -> None:
    """As in one report: a number of the XLA-based product on a native backend. [USER] Qwen report."""
    add_torch(empty.site)
    add_native(empty.site, "2.9.0.2.12")
    said = cause(empty.examine())
    assert "bears signs of more than one product: version 2.9.0.2.12" in said
    assert "part neuron_dynamo_backend" in said


def test_28_a_cache_that_cannot_be_used(machine: FakeMachine) -> None:
    machine.write("tmp/neff_cache", "a file where a folder should be")
    said = cause(machine.examine())
    assert f"caches: {machine.root}/tmp/neff_cache is, or lies below, what is no folder" in said
    assert "`export TORCH_NEURONX_NEFF_CACHE_DIR=" in said


def test_29_the_backend_of_somebody_else_breaks_torch(machine: FakeMachine) -> None:
    points = {"torch.backends": {"other": "other_backend:go"}}
    machine.site.add("other-backend", "1.0", {"other_backend.py": "raise OSError('no such card')"}, points)
    said = cause(machine.examine())
    assert "import torch fails with a backend it loads by itself: autoload other raises OSError: no such card" in said
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in said


def test_settings_that_change_the_measurement_are_named_with_what_they_change(machine: FakeMachine) -> None:
    machine.environ |= {
        "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS": "1",
        "TORCH_NEURONX_LOG_FILE": "/tmp/log",
        "TORCH_NEURONX_MLIR_ATEN_OPS": "1",  # its default: says nothing
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    diagnosis = machine.examine()
    lines = [line for line in diagnosis.lines if line.topic == Topic.SETTINGS]
    assert [line.found.partition(":")[0] for line in lines] == [
        "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS=1",
        "TORCH_NEURONX_LOG_FILE=/tmp/log",
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0",
    ]
    assert {line.verdict for line in lines} == {"warn"}
    assert "raises when it fails, instead of falling back" in lines[0].found
    assert "NST304" in lines[0].advice
    # Without autoload the device is still found: the probe imports torch_neuronx itself.
    assert diagnosis.ok


def test_collect_env_is_quoted_and_not_judged(machine: FakeMachine) -> None:
    add_native(machine.site, collect_env="print('Device  usable?'); print('  Device usable from torch: perhaps')")
    line = machine.examine().of(Topic.COLLECT_ENV)
    assert line.verdict == "unknown"
    assert line.found.endswith("no public document tells its form: Device usable from torch: perhaps")


def test_collect_env_without_that_line_says_so(machine: FakeMachine) -> None:
    add_native(machine.site, collect_env="print('PyTorch 2.14'); raise SystemExit(2)")
    assert machine.examine().of(Topic.COLLECT_ENV).found == "it ended with status 2 and has no such line"


def test_a_hanging_neuron_ls_is_ended_with_what_it_started(machine: FakeMachine, tmp_path: Path) -> None:
    machine.set_neuron_ls(f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    line = machine.examine(HANGING_NEURON_LS).of(Topic.DEVICES)
    assert line.found == "neuron-ls did not answer within 2 s"
    # The device itself answers, so this is no reason to refuse it.
    assert line.verdict == "warn"
    child = int((tmp_path / "pid").read_text())
    assert not _alive(child)


def test_an_interpreter_that_does_not_start_is_named(machine: FakeMachine, tmp_path: Path) -> None:
    machine.python = str(tmp_path / "nowhere" / "python")
    diagnosis = machine.examine()
    assert "Python: the interpreter does not start (No such file or directory)" in cause(diagnosis)
    assert diagnosis.of(Topic.NEURONX).verdict == "unknown"


def test_everything_hanging_ends_within_the_time_given(machine: FakeMachine) -> None:
    machine.set_neuron_ls("sleep 600")
    machine.site.write({"sitecustomize.py": HANG})
    started = time.monotonic()
    diagnosis = machine.examine(Limits(total=3))
    assert time.monotonic() - started < PATIENCE
    assert diagnosis.exit_code == 3


def test_no_limits_can_be_given_that_take_more_than_a_minute() -> None:
    with pytest.raises(ValueError, match="within 60 s"):
        Limits(total=60)


def _alive(pid: int) -> bool:
    """Whether a process runs still; it may be dead and not yet reaped by init."""
    state = Path(f"/proc/{pid}/stat")
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            if state.read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except (FileNotFoundError, ProcessLookupError):
            return False
        time.sleep(0.02)
    return True
