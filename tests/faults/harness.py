"""Starts the real command as a process, and looks at what it did from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from smoketest.render.json import schema

LONG = os.environ.get("SMOKETEST_LONG") == "1"
long = pytest.mark.skipif(not LONG, reason="long: `make faults` runs it")

ROOT = Path(__file__).parents[2]
EXIT_CODES = {0, 1, 2, 3, 4, 5, 130}
REPORTS = {"report.json", "report.md", "report.html"}
OF_A_FOLDER = REPORTS | {"log", "repros"}
SUMMARIES = {"summary.json", "summary.md", "summary.html"}
_MARK = "SMOKETEST_FAULTS"
_OURS = re.compile(r'File "[^"\n]*/smoketest/[a-z_/]+\.py"')

CHECK = """\
model: {{target: "net.py:Net", kwargs: {{act: {act}, at: {at}}}}}
batch: {{tensors: {{x: {{shape: [2, 4]}}}}}}
loss: {{name: mse_loss, target: batch.x}}
training: {{steps: 1, warmup: {warmup}, timeout: {timeout}}}
compile: {{enabled: {compiled}}}
parity: {{enabled: {parity}}}
device: {device}
"""
NET = Path(__file__).with_name("misbehaving.py")


@dataclass(frozen=True)
class Ended:
    """What a command that is over has left."""

    code: int
    out: str
    err: str
    output: Path

    @property
    def errors(self) -> list[str]:
        """The messages of errors that stand alone, beside the report's own."""
        return [line for line in self.err.splitlines() if line.startswith("error: ")]

    def report(self, name: str = "net") -> dict[str, Any]:
        """The report of a check, whole and as its published schema says."""
        return read_report(self.output / name)


def read_report(folder: Path, *, leftovers: bool = False) -> dict[str, Any]:
    """The report in a folder, whole in each of its forms, with nothing else beside it.

    Args:
        folder: of the check.
        leftovers: whether something may lie beside it all the same.
    """
    data: dict[str, Any] = json.loads((folder / "report.json").read_text("utf-8"))
    assert [error.message for error in _validator().iter_errors(data)] == []
    assert data["exit_code"] in EXIT_CODES
    assert (folder / "report.html").read_text("utf-8").rstrip().endswith("</html>")
    assert (folder / "report.md").read_text("utf-8").endswith("\n")
    assert leftovers or {path.name for path in folder.iterdir()} <= OF_A_FOLDER
    told = json.dumps(data)
    assert not _OURS.search(told.replace('\\"', '"')), "a frame of ours in the report"
    return data


@cache
def _validator() -> Any:
    return Draft202012Validator(schema())


@dataclass
class Stage:
    """A folder with a model that misbehaves, and the command started in it.

    Attributes:
        folder: where checks are, and where the command starts.
        environment: of the command; None takes a variable away.
        temporary: the command's folder for temporary files.
        internal: whether an internal error is what is to be seen.
    """

    folder: Path
    environment: dict[str, str | None] = field(default_factory=dict)
    temporary: Path = Path()
    internal: bool = False
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir(parents=True)
        self.work = self.folder / "work"
        self.work.mkdir()
        (self.work / "net.py").write_text(NET.read_text("utf-8"), encoding="utf-8")

    def check(
        self, name: str = "net", act: str = "nothing", at: str = "never", *, device: str = "cpu", warmup: int = 0,
        timeout: float = 120, compiled: bool = False, parity: bool = False, more: str = "",
    ) -> Path:  # fmt: skip
        """Write a check."""
        path = self.work / f"{name}.yaml"
        text = CHECK.format(
            act=act, at=at, device=device, warmup=warmup, timeout=timeout, compiled=json.dumps(compiled),
            parity=json.dumps(parity),
        )  # fmt: skip
        path.write_text(text + more, encoding="utf-8")
        return path

    def without_workers(self, how: str = "kill") -> None:
        """Have each worker end as soon as Python begins in it: what is looked at is the command's own process.

        Args:
            how: ``kill``, ``segv``, or ``sleep`` until somebody ends it.
        """
        site = self.folder / "site"
        site.mkdir(exist_ok=True)
        acts = {
            "kill": "os.kill(os.getpid(), signal.SIGKILL)",
            "segv": "os.kill(os.getpid(), signal.SIGSEGV)",
            "sleep": "time.sleep(600)",
        }
        text = f"import os, signal, time\nif 'SMOKETEST_WORKER' in os.environ:\n    {acts[how]}\n"
        (site / "sitecustomize.py").write_text(text)
        self.environment["PYTHONPATH"] = os.pathsep.join([str(site), str(ROOT)])

    def start(self, *arguments: str | Path, before: str = "", **kwargs: Any) -> subprocess.Popen[bytes]:
        """Start ``python -m smoketest`` with these arguments.

        Args:
            arguments: of the command.
            before: shell commands to go first, such as ``ulimit -v 1000;``, or redirections with a ``$@`` in them.
            kwargs: for `subprocess.Popen`, in place of the defaults.
        """
        command: Sequence[str] = [sys.executable, "-m", "smoketest", *map(str, arguments)]
        if before:
            shell = before if "$@" in before else f'{before} exec "$@"'
            command = ["/bin/bash", "-c", shell, "bash", *command]
        defaults = {
            "OMP_NUM_THREADS": "1", "HOME": str(self.folder), "TMPDIR": str(self.temporary), _MARK: self.mark,
            "PYTHONPATH": str(ROOT), "COLUMNS": "200",
        }  # fmt: skip
        wanted: dict[str, str | None] = {**os.environ, **defaults, **self.environment}
        environment = {name: value for name, value in wanted.items() if value is not None}
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            given = {"cwd": self.work, "stdin": subprocess.DEVNULL, "stdout": out, "stderr": err} | kwargs
            return subprocess.Popen(command, env=environment, **given)

    def run(self, *arguments: str | Path, timeout: float = 250, output: Path | None = None, **kwargs: Any) -> Ended:
        """Start the command and wait for its end."""
        return self.end(self.start(*arguments, **kwargs), timeout=timeout, output=output)

    def end(self, process: subprocess.Popen[bytes], *, timeout: float = 250, output: Path | None = None) -> Ended:
        """Wait for the command's end, and see that it left nothing that it should not have left."""
        try:
            process.wait(timeout)
        finally:
            left = self.left()
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        ended = self.seen(process.returncode, output)
        assert left == [], f"processes that go on: {left}"
        return ended

    def seen(self, code: int, output: Path | None = None) -> Ended:
        """What is seen of a command that is over with this exit code."""
        out, err = ((self.folder / name).read_text("utf-8", "replace") for name in ("out", "err"))
        ended = Ended(code, out, err, output or self.work / "reports")
        assert code in EXIT_CODES, (code, err)
        assert not _OURS.search(out + err), out + err
        assert "Exception ignored in" not in err, err
        assert self.internal or "internal error" not in err, err
        assert not any(map(_is_half, self.work.rglob("*"))), "a file that was not finished"
        assert [path.name for path in self.temporary.iterdir() if not path.name.startswith("torchinductor_")] == []
        return ended

    def left(self, patience: float = 60) -> list[int]:
        """Processes of the command that are there still."""
        until = time.monotonic() + patience
        while (found := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def processes(self) -> list[int]:
        """Those that have the command's environment, whatever session or parent they have by now."""
        entry = f"{_MARK}={self.mark}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if entry in path.read_bytes().split(b"\0") and _runs(path.parent):
                    found.append(int(path.parent.name))
            except OSError:  # gone by now
                continue
        return found

    def wait_for(self, path: Path, words: str, patience: float = 60) -> None:
        """Wait until a file holds some words."""
        until = time.monotonic() + patience
        while not (path.exists() and words in path.read_text("utf-8", "replace")):
            assert time.monotonic() < until, f"{words!r} did not come"
            time.sleep(0.02)


def _runs(process: Path) -> bool:
    """Whether a process is more than an entry that waits for its parent's look."""
    return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"


def _is_half(path: Path) -> bool:
    return path.name.startswith(".report.") or path.name.startswith(".summary.")
