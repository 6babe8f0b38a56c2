"""A run ends as it would have, whatever becomes of the streams it talks to."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

NET = """\
import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)

    def forward(self, x):
        print("called")
        return super().forward(x)
"""
CHECK = """\
model: {target: net.py:Net}
batch: {tensors: {x: {shape: [2, 4]}}}
loss: %s
training: {steps: 1, warmup: 0}
device: cpu
"""
SMOKETEST = f"{sys.executable} -m smoketest"
long = pytest.mark.skipif(os.environ.get("SMOKETEST_LONG") != "1", reason="long: `make faults` runs it")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "good.yaml").write_text(CHECK % "{name: mse_loss, target: batch.x}")
    (tmp_path / "bad.yaml").write_text(CHECK % "output.nothing")
    return tmp_path


def shell(folder: Path, command: str) -> int:
    return subprocess.run(["bash", "-c", command], cwd=folder, env=ENVIRONMENT, timeout=200).returncode


@pytest.mark.parametrize(
    ("streams", "name", "code"),
    [
        pytest.param("2>&-", "good", 0, marks=long),
        pytest.param("2>/dev/full", "good", 0, marks=long),
        pytest.param("2> >(head -c 1 >/dev/null)", "good", 0, marks=long),
        ("<&- >&- 2>&-", "good", 0),
        (">/dev/full 2>&1", "bad", 4),
    ],
)
def test_stderr_that_cannot_be_written_changes_nothing_of_a_run(
    folder: Path, streams: str, name: str, code: int
) -> None:
    assert shell(folder, f"{SMOKETEST} run {name}.yaml --no-compile {streams}") == code
    reports = folder / "reports" / name
    assert json.loads((reports / "report.json").read_text())["exit_code"] == code
    assert (reports / "report.html").exists()
    assert "called" in (reports / "log/eager.log").read_text(), "what user code prints is kept"


def test_a_terminal_that_goes_away_changes_nothing_of_a_run(folder: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "smoketest", "run", "good.yaml", "--no-compile"]
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=ENVIRONMENT
    )
    os.close(theirs)
    os.read(ours, 1)
    os.close(ours)
    assert process.wait(timeout=200) == 0
    assert json.loads((folder / "reports/good/report.json").read_text())["status"] == "pass"


def test_a_reader_of_stdout_that_has_seen_enough_does_not_change_the_exit_code(folder: Path) -> None:
    run = f"{SMOKETEST} run good.yaml --no-compile --quiet --output - --format json"
    assert shell(folder, f"set -o pipefail; {run} | true") == 0


def test_output_asked_for_that_cannot_be_written_is_one_message_and_exit_5(folder: Path) -> None:
    for stdout, reason in ((">/dev/full", "No space left on device"), (">&-", "stdout is closed")):
        done = subprocess.run(
            ["bash", "-c", f"{SMOKETEST} schema {stdout}"], cwd=folder, capture_output=True, text=True, env=ENVIRONMENT
        )
        assert (done.returncode, done.stderr) == (5, f"error: the output cannot be written: {reason}\n")


def test_a_wrong_check_is_exit_2_without_a_stderr_too(folder: Path) -> None:
    for command in ("run nosuch.yaml", "validate nosuch.yaml", "run --nosuch", "nosuch"):
        for stderr in ("2>&-", "2>/dev/full"):
            assert shell(folder, f"{SMOKETEST} {command} {stderr}") == 2
