"""The plugin in projects that do not use it, and in environments that cannot."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from plugin_projects import environment_without_torch, project, pytest_in

PLAIN = {"test_plain.py": "def test_one(): pass\n\ndef test_two(tmp_path): assert tmp_path.exists()\n"}
MODEL = "def make_model(): ...\ndef make_batch(step): ...\ndef loss_fn(output, batch): ...\n"
CHECK = {"configs/a.yaml": "workload: a.py\n", "configs/a.py": MODEL}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    return environment_without_torch(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Metadata of a torch that would do, and no torch: what imports it fails."""
    return environment_without_torch(tmp_path_factory.mktemp("fit") / "venv", torch="2.13.0")


def test_the_environment_has_no_torch_and_has_the_plugin(bare: str, tmp_path: Path) -> None:
    done = subprocess.run([bare, "-c", "import torch"], capture_output=True, text=True)
    assert "No module named 'torch'" in done.stderr
    done = subprocess.run([bare, "-m", "pytest", "--markers"], capture_output=True, text=True, cwd=tmp_path)
    assert "@pytest.mark.no_cpu_fallback(allow=[], strict=False): fail where an op" in done.stdout, done.stderr


def test_a_project_without_torch_runs_its_other_tests(bare: str, tmp_path: Path) -> None:
    done = pytest_in(project(tmp_path, PLAIN), python=bare)
    assert done.code == 0, done.text
    assert done.outcomes == {"test_plain::test_one": "passed", "test_plain::test_two": "passed"}


@pytest.mark.parametrize(
    ("files", "ini", "what"),
    [
        (CHECK, 'smoketest_checks = ["configs/*.yaml"]', "smoketest_checks"),
        ({"test_a.py": "def test_a(neuron_watch): ..."}, "", "test_a.py::test_a (no_cpu_fallback or neuron_watch)"),
        (
            {"test_a.py": "import pytest\n@pytest.mark.no_cpu_fallback\ndef test_a(): ..."},
            "",
            "test_a.py::test_a (no_cpu_fallback or neuron_watch)",
        ),
    ],
)
def test_what_needs_torch_is_a_usage_error_at_the_start(
    bare: str, tmp_path: Path, files: dict[str, str], ini: str, what: str
) -> None:
    done = pytest_in(project(tmp_path, files, ini), python=bare)
    assert done.code == 4, done.text
    assert f"ERROR: {what}: torch is not installed, <2.16,>=2.13 required" in done.text
    assert "Traceback" not in done.text
    assert done.outcomes == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "@pytest.mark.no_cpu_fallback(['aten::sort'])\ndef test_a(): ...",
            "test_a.py::test_a: no_cpu_fallback takes allow=[...] and strict=True, nothing else",
        ),
        (
            "@pytest.mark.no_cpu_fallback\ndef test_a(neuron_watch): ...",
            "test_a.py::test_a: use neuron_watch or the marker no_cpu_fallback, not both in one test",
        ),
    ],
)
def test_misuse_is_a_usage_error_that_names_the_test(fit: str, tmp_path: Path, text: str, message: str) -> None:
    done = pytest_in(project(tmp_path, {"test_a.py": f"import pytest\n{text}\n"}), python=fit)
    assert done.code == 4
    assert f"ERROR: {message}" in done.text


def test_another_torch_is_named_with_the_one_that_is_required(tmp_path: Path) -> None:
    python = environment_without_torch(tmp_path / "venv", torch="2.12.1")
    done = pytest_in(project(tmp_path / "p", CHECK, 'smoketest_checks = ["configs/*.yaml"]'), python=python)
    assert done.code == 4
    assert "ERROR: smoketest_checks: torch 2.12.1 found, <2.16,>=2.13 required" in done.text


def test_a_device_that_is_none_is_a_usage_error(bare: str, tmp_path: Path) -> None:
    done = pytest_in(project(tmp_path, PLAIN, 'smoketest_device = "tpu"'), python=bare)
    assert done.code == 4
    assert "smoketest_device: expected one of auto, neuron, emulated, cpu, found 'tpu'" in done.text


LOADED = """\
import sys


def pytest_unconfigure(config):
    print("loaded:", *sorted(name for name in sys.modules if name.startswith("smoketest")))
"""


def test_unused_it_imports_nothing_but_itself(bare: str, tmp_path: Path) -> None:
    done = pytest_in(project(tmp_path, PLAIN | {"conftest.py": LOADED}), python=bare)
    assert "loaded: smoketest smoketest.pytest_plugin\n" in done.out


def test_checks_are_collected_without_importing_torch_one_item_a_part(fit: str, tmp_path: Path) -> None:
    more = {"configs/b.yaml": "workload: a.py\ncompile: {enabled: false}\nparity: {enabled: false}\n"}
    folder = project(tmp_path, PLAIN | CHECK | more, 'smoketest_checks = ["configs/*.yaml"]')
    done = pytest_in(folder, "--collect-only", "-q", python=fit)
    assert done.code == 0, done.text
    assert done.out.split()[:4] == [
        "configs/a.yaml::eager",
        "configs/a.yaml::compile",
        "configs/a.yaml::parity",
        "configs/b.yaml::eager",
    ]
    chosen = pytest_in(folder, "--collect-only", "-q", "-k", "a.yaml and compile", python=fit)
    assert chosen.out.split()[0] == "configs/a.yaml::compile"


def test_a_check_that_is_wrong_is_an_error_of_collection_at_its_line(fit: str, tmp_path: Path) -> None:
    files = PLAIN | {"configs/a.yaml": "nmae: a\nworkload: nowhere.py\n"}
    done = pytest_in(project(tmp_path, files, 'smoketest_checks = ["configs/*.yaml"]'), python=fit)
    assert done.code == 2
    assert "configs/a.yaml:1:1: unknown key 'nmae'" in done.out
    assert "configs/a.yaml:2:11:" in done.out
    assert "Traceback" not in done.out


def test_two_checks_of_one_name_are_an_error_of_collection_where_reports_are_kept(fit: str, tmp_path: Path) -> None:
    text = "name: same\nworkload: a.py\n"
    files = PLAIN | CHECK | {"configs/a.yaml": text, "configs/b.yaml": text}
    folder = project(tmp_path, files, 'smoketest_checks = ["configs/*.yaml"]')
    kept = pytest_in(folder, "--collect-only", "-q", "--smoketest-output", "out", python=fit)
    assert kept.code == 2, kept.text
    assert "configs/b.yaml: the name 'same' is taken by " in kept.out
    scratch = pytest_in(folder, "--collect-only", "-q", python=fit)
    assert scratch.code == 0, scratch.text
