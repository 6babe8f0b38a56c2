"""No process of a run goes on once the one that started it was killed, even where it cannot look at its pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from smoketest.process import end_with_parent

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of a parent's death")

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
NET = """\
import ctypes
import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)

    def forward(self, x):
        print("holding the GIL", flush=True)
        ctypes.PyDLL(None).sleep(600)  # PyDLL, unlike CDLL, does not let go of it
"""
CHECK = """\
model: {target: net.py:Net}
batch: {tensors: {x: {shape: [2, 4]}}}
loss: {name: mse_loss, target: batch.x}
training: {steps: 1, warmup: 0}
device: cpu
"""


def comes(condition: Callable[[], bool], patience: float = 60) -> bool:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return False


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_worker_that_holds_the_gil_ends_with_a_killed_supervisor(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "net.yaml").write_text(CHECK)
    command = [sys.executable, "-m", "smoketest", "run", "net.yaml", "--no-compile", "--quiet"]
    parent = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT)
    log = tmp_path / "reports/net/log"
    assert comes(lambda: (log / "eager.log").exists() and "holding" in (log / "eager.log").read_text())
    worker = json.loads((log / "events.jsonl").read_text().splitlines()[0])["event"]["pid"]
    assert not gone(worker)
    parent.kill()
    parent.wait()
    assert comes(lambda: gone(worker))


def test_a_lowering_process_ends_with_a_killed_parent_although_its_stdin_stays_open() -> None:
    pytest.importorskip("torch_mlir")
    reading, writing = os.pipe()
    program = (
        "import subprocess, sys, time\n"
        "command = [sys.executable, '-m', 'smoketest.probe.lowering_worker']\n"
        "child = subprocess.Popen(command, stdin=int(sys.argv[1]), stdout=subprocess.PIPE)\n"
        "child.stdout.read(8)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(reading)],
        pass_fds=(reading,), stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    os.close(reading)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert not gone(child)
    parent.kill()
    parent.communicate()
    try:
        assert comes(lambda: gone(child))
    finally:
        os.close(writing)


def test_a_process_that_outlives_its_parent_must_ask_for_its_end() -> None:
    """What the two above rely on: it is asked for, not given."""
    for asks, ended in ((True, True), (False, False)):
        child_code = (
            "import sys, time\nfrom smoketest.process import end_with_parent\n"
            "print(end_with_parent() if sys.argv[1] == 'True' else None, flush=True)\ntime.sleep(600)\n"
        )
        parent_code = (
            f"import subprocess, sys, time\nchild = subprocess.Popen([sys.executable, '-c', {child_code!r}, '{asks}'],"
            " stdout=subprocess.PIPE)\nchild.stdout.readline()\nprint(child.pid, flush=True)\ntime.sleep(600)\n"
        )
        parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.communicate()
        assert comes(lambda pid=child: gone(pid), patience=60 if ended else 1) is ended  # type: ignore[misc]
        if not ended:
            os.kill(child, signal.SIGKILL)


def test_where_the_system_has_no_such_thing_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert end_with_parent() is False


def test_what_left_the_session_is_killed_with_its_own_children_and_the_rest_is_left() -> None:
    code = """
import os, subprocess, sys, time
from smoketest.process import adopt_orphans, kill_strays
assert adopt_orphans()
start = (
    "import subprocess as s;"
    "print(s.Popen(['sleep', '600'], env={}, start_new_session=True, stdout=s.DEVNULL, stderr=s.DEVNULL).pid)"
)
orphan = int(subprocess.run([sys.executable, "-c", start], capture_output=True, text=True).stdout)
direct = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
ours = subprocess.Popen(["sleep", "600"])
kill_strays()
alive = [os.path.exists(f"/proc/{pid}") for pid in (orphan, direct.pid, ours.pid)]
ours.kill(), ours.wait()
print(alive)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[False, False, True]\n", done.stderr
