"""Commands that are given a time limit, and end with everything they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

__all__ = ["Ended", "Ending", "NotStarted", "TimedOut", "run"]

_MOST = 2**20
"""Bytes read of each output, from its end."""


@dataclass(frozen=True)
class Ended:
    """It ended by itself; `code` is its exit status, or minus the number of the signal that killed it."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class TimedOut:
    """It was killed after `seconds`."""

    seconds: float
    out: str
    err: str


@dataclass(frozen=True)
class NotStarted:
    """It could not be started."""

    reason: str


Ending = Ended | TimedOut | NotStarted


def run(command: Sequence[str], environ: Mapping[str, str], seconds: float) -> Ending:
    """Run a command in a process group of its own.

    Its outputs go to files: a pipe would be held open by what it leaves behind, and reading it would hang.

    Args:
        command: program and arguments.
        environ: its whole environment.
        seconds: after which the group is killed; no more than 2 s pass beyond that, even where a driver keeps a
            process from dying.
    """
    if seconds <= 0:
        return TimedOut(0, "", "")
    try:
        return _run(command, environ, seconds)
    except OSError as error:
        return NotStarted(f"no temporary file can be made: {error.strerror}")


def _run(command: Sequence[str], environ: Mapping[str, str], seconds: float) -> Ending:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(environ), start_new_session=True
            )
        except (OSError, ValueError) as error:
            return NotStarted(getattr(error, "strerror", None) or str(error))
        try:
            in_time = _wait(process, seconds)
        finally:
            _kill_group(process)
        if in_time and process.returncode is not None:
            return Ended(process.returncode, _read(out), _read(err))
        return TimedOut(seconds, _read(out), _read(err))


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process is dead in time. It is not reaped: its group keeps its number until `_kill_group`."""
    if not hasattr(os, "waitid"):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return process.returncode is not None
    end = time.monotonic() + seconds
    pause = 0.001
    while time.monotonic() < end:
        try:
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
        except ChildProcessError:  # reaped already, where SIGCHLD is ignored
            return True
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
    return False


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the group and reap the process, unless the kernel holds on to it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2)


def _read(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _MOST))
    return file.read(_MOST).decode("utf-8", "replace")
