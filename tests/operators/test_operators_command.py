"""``smoketest operators``: list, diff, export; an export imported again changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from smoketest.operators.profile import PACKAGED, load_profile


def smoketest(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "smoketest", "operators", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("export") / "emulated.json"
    done = smoketest("export", file, "--device", "emulated")
    assert (done.returncode, done.stderr) == (0, f"367 overloads with a kernel, written to {file}\n")
    return file


def test_list_names_kernels_and_how_they_are_registered() -> None:
    done = smoketest("list", "topk")
    assert (done.returncode, done.stdout) == (0, "aten::topk neuron_op\naten::topk.values neuron_op\n")
    assert done.stderr.startswith("torch-neuronx-prerelease-2026-04 (PRE, 2026-04, torch 2.10): Read from a publicly")


def test_list_says_what_it_means_that_nothing_matches() -> None:
    done = smoketest("list", "linspace")
    assert done.stdout == ""
    assert "no match for 'linspace': not in this list, so by this profile it runs on the CPU" in done.stderr


def test_list_names_what_runs_on_the_cpu() -> None:
    assert smoketest("list", "--cpu", "atan2").stdout == "aten::atan2\naten::atan2.out\naten::atan2_\n"


def test_an_export_of_the_emulated_device_is_its_profile_to_the_byte(exported: Path) -> None:
    packaged = resources.files("smoketest.operators") / "data" / f"{PACKAGED}.json"
    assert exported.read_text() == packaged.read_text()
    assert load_profile(exported) == load_profile()


def test_an_export_imported_and_exported_again_is_the_same(exported: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.json"
    assert smoketest("export", again, "--device", "emulated", "--profile", exported).returncode == 0
    assert again.read_text() == exported.read_text()


def test_diff_is_silent_about_equal_profiles(exported: Path) -> None:
    done = smoketest("diff", "packaged", exported)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_diff_names_kernels_that_came_and_went(exported: Path, tmp_path: Path) -> None:
    content = json.loads(exported.read_text())
    del content["native"]["aten::topk"]
    content["native"]["aten::atan2.out"] = "torch_mlir"
    (tmp_path / "newer.json").write_text(json.dumps(content))
    done = smoketest("diff", exported, tmp_path / "newer.json")
    assert (done.returncode, done.stdout) == (1, "+ aten::atan2.out\n- aten::topk\n")


def test_a_profile_of_ones_own_changes_what_falls_back(exported: Path, tmp_path: Path) -> None:
    content = json.loads(exported.read_text())
    content |= {"name": "mine", "native": content["native"] | {"aten::atan2.out": "torch_mlir"}}
    (tmp_path / "mine.json").write_text(json.dumps(content))
    code = (
        f"import torch, smoketest; d = smoketest.emulate({str(tmp_path / 'mine.json')!r}, warn=False)\n"
        "x = torch.ones(2).to('neuron'); d.clear_op_tracking(); torch.atan2(x, x).sinh()\n"
        "print(d.get_fallback_ops())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "['aten::sinh.out']\n"


def test_without_the_backend_there_is_nothing_to_export(tmp_path: Path) -> None:
    done = smoketest("export", tmp_path / "real.json")
    assert done.returncode == 3
    assert done.stderr.startswith("error: torch-neuronx is not installed\n  hint: ")
    assert not (tmp_path / "real.json").exists()


def test_a_file_that_cannot_be_written_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    done = smoketest("export", tmp_path / "no" / "such.json", "--device", "emulated")
    assert done.returncode == 2
    assert done.stderr == f"error: there is no folder {tmp_path / 'no'} to write such.json to\n"
