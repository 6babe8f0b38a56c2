"""`smoketest doctor` as typed, on whatever machine the tests run on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import smoketest.doctor

NO_NETWORK = """
import sys

def refuse(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(f"the network was asked: {event}")

sys.addaudithook(refuse)
"""


def run(*command: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=70, env=dict(os.environ) | (environ or {})
    )


def test_json_goes_to_stdout_and_the_exit_code_agrees() -> None:
    done = run("-m", "smoketest", "doctor", "--format", "json")
    content = json.loads(done.stdout)
    assert done.stderr == ""
    assert done.returncode == content["exit_code"] == (0 if content["ok"] else 3)
    emulated = {line["topic"]: line for line in content["emulated"]}
    assert emulated["emulated device"]["verdict"] == "ok"


def test_piped_text_has_no_colours_and_80_columns() -> None:
    done = run("-m", "smoketest", "doctor", environ={"FORCE_COLOR": "1"})
    assert done.returncode in (0, 3)
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_examining_loads_no_torch_and_asks_no_network(tmp_path: Path) -> None:
    """Neither this process nor any it starts: the hook is in every Python of them."""
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK)
    code = (
        "import sys; from smoketest.doctor import examine; found = examine(); "
        "assert 'torch' not in sys.modules; "
        "print(found.of('torch').verdict, found.of('torch').found)"
    )
    done = run("-c", code, environ={"PYTHONPATH": str(tmp_path)})
    assert done.stderr == ""
    assert done.stdout.startswith("ok 2.")


def test_the_hook_of_that_test_does_see_the_network(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK)
    done = run("-c", "import socket; socket.create_connection(('::1', 9))", environ={"PYTHONPATH": str(tmp_path)})
    assert "the network was asked" in done.stderr


def test_it_works_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('no torch for you')")
    done = run("-m", "smoketest", "doctor", "--format", "json", environ={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 3
    content = json.loads(done.stdout)
    assert "no torch for you" in {line["topic"]: line for line in content["lines"]}["torch"]["found"]
    assert "is not usable here either" in content["advice"]


def test_a_form_that_is_not_there_is_a_usage_error() -> None:
    done = run("-m", "smoketest", "doctor", "--format", "xml")
    assert done.returncode == 2
    assert "xml" in done.stderr


def test_the_public_names_are_there() -> None:
    for name in smoketest.doctor.__all__:
        assert hasattr(smoketest.doctor, name)
