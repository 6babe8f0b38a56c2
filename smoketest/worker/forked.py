"""A piece of work in a forked child, with a limit on its time and on the memory it adds.

A fork has all modules that this process has imported, and starts in milliseconds where a fresh process takes seconds.
It has only the thread that forked: work in it must wait for no other, so PyTorch is told to use one.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from smoketest.process import end_with_parent

__all__ = ["Done", "NotDone", "run_forked"]

_CHUNK = 2**16
_HEAD = 8
"""Bytes that say how long the answer is."""
_TICK = 0.1
"""Seconds between two looks whether the child is alive."""
_FAILED = 1


@dataclass(frozen=True)
class Done:
    """The work came to its end, and this is what it gave."""

    data: bytes


@dataclass(frozen=True)
class NotDone:
    """It did not, and why: a clause."""

    why: str


def run_forked(work: Callable[[], bytes], *, seconds: float, memory: int) -> Done | NotDone:
    """Do `work` in a forked child.

    Args:
        work: what it raises is told by its text; what it prints is lost.
        seconds: after which the child is killed.
        memory: bytes of data it may have beyond those of this process; not enforced where there is no /proc.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 and later warn of forking a process with threads; the child waits for none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(reading)
        _be_the_child(work, writing, memory)
    os.close(writing)
    try:
        data = _read(reading, child, time.monotonic() + seconds)
    finally:
        os.close(reading)
        for kill in (os.killpg, os.kill):  # with what the work forked in its turn
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if data is None:
        return NotDone(f"it took longer than {seconds:g} s")
    if data[:1] == b"+":
        return Done(data[1:])
    if data[:1] == b"-":
        return NotDone(data[1:].decode("utf-8", "replace"))
    code = os.waitstatus_to_exitcode(status)
    return NotDone(f"the process that did it ended with {f'signal {-code}' if code < 0 else f'code {code}'}")


def _read(reading: int, child: int, until: float) -> bytes | None:
    """The child's answer, empty where it died without a whole one; None where its time is up first.

    Not all up to the end of the pipe: what the work forked in its turn may hold that open.
    """
    data = b""
    while True:
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        ready, _, _ = select.select([reading], [], [], 0.0 if ended else min(_TICK, max(0.0, until - time.monotonic())))
        part = os.read(reading, _CHUNK) if ready else b""
        data += part
        size = int.from_bytes(data[:_HEAD], "big")
        if len(data) >= _HEAD + size and len(data) > _HEAD:
            return data[_HEAD : _HEAD + size]
        if not part and (ended or ready):
            return b""
        if not part and time.monotonic() >= until:
            return None


def _be_the_child(work: Callable[[], bytes], writing: int, memory: int) -> NoReturn:
    own = os.getpid()
    try:
        os.setpgid(0, 0)
        end_with_parent()
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        _limit(memory)
        torch.set_num_threads(1)  # OpenMP's pool did not survive the fork
        answer = b"+" + work()
    except MemoryError:
        answer = f"-it took more memory than {memory / 2**20:,.0f} MiB".encode()
    except BaseException as error:  # whatever it is, it is told, and nothing of the parent's runs here
        text = " ".join(f"{type(error).__name__}: {error}".split())
        answer = b"-" + text[:600].encode("utf-8", "backslashreplace")
    try:
        answer = len(answer).to_bytes(_HEAD, "big") + answer
        while answer and os.getpid() == own:  # a process that the work forked came here too
            answer = answer[os.write(writing, answer) :]
    finally:
        os._exit(_FAILED)  # without this process's exit handlers, which are the parent's


def _limit(memory: int) -> None:
    """Let this process have `memory` bytes of data more than it has."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + memory,) * 2)
