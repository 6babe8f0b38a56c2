"""One worker process: its start, its pipes, its end and the end of all it started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

__all__ = ["MAX_LINE", "LineTooLong", "Pipes", "WorkerProcess", "waiting_command", "worker_command"]

MAX_LINE = 32 * 2**20
"""Bytes of one event; far above what a report can hold."""
_CHUNK = 2**18
_MARK = "SMOKETEST_WORKER"
"""Environment variable that everything a worker starts inherits, in whatever session it goes on."""


class LineTooLong(Exception):
    """An event does not end."""


class Pipes:
    """What a worker sends and prints, read without blocking.

    Args:
        events: the event pipe's reading end.
        output: the reading end of the pipe that stdout and stderr go to.

    Attributes:
        ended: those of the two that nobody writes to any more.
    """

    def __init__(self, events: int, output: int) -> None:
        self.events, self.output = events, output
        for end in (events, output):
            os.set_blocking(end, False)
        self.ended: set[int] = set()
        self._partial: list[bytes] = []  # of a line whose end has not come
        self._partial_size = 0

    def read_lines(self) -> Iterator[bytes]:
        """Whole lines that arrived on the event pipe. Raises `LineTooLong`."""
        while chunk := self._read(self.events):
            *lines, rest = chunk.split(b"\n")
            if lines:
                lines[0] = b"".join((*self._partial, lines[0]))
                self._partial, self._partial_size = [], 0
            self._partial.append(rest)
            self._partial_size += len(rest)
            if self._partial_size > MAX_LINE:
                raise LineTooLong
            yield from (line for line in lines if line.strip())

    def read_output(self) -> bytes:
        """Some of what it printed; empty where nothing is waiting."""
        return self._read(self.output)

    def close_pipes(self) -> None:
        """Close both."""
        for end in (self.events, self.output):
            with contextlib.suppress(OSError):
                os.close(end)

    def _read(self, end: int) -> bytes:
        if end in self.ended:
            return b""
        try:
            data = os.read(end, _CHUNK)
        except BlockingIOError:
            return b""
        if not data:
            self.ended.add(end)
        return data


class WorkerProcess(Pipes):
    """A worker in a session of its own, so that everything it starts can be ended with it.

    The pipes are read without blocking: a worker that prints without end is never waited for, nor does it wait.

    Args:
        command: what to run.
        write_request: called with the number of the event pipe's writing end, before the start.
        passed: numbers of other files that the worker gets.
        waits: whether it waits for `go`; else it begins at once.
        settings: environment variables for it, unless the user has set them.

    Attributes:
        events: the event pipe's reading end.
        output: the reading end of the pipe that stdout and stderr go to.
        started: when it was started, or let go, on the monotonic clock.
        ended: those of the two pipes that nobody writes to any more.
    """

    def __init__(
        self,
        command: Sequence[str],
        write_request: Callable[[int], None],
        passed: Sequence[int] = (),
        *,
        waits: bool = False,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        events, writing = _pipe()
        output, output_writing = _pipe()
        super().__init__(events, output)
        self._mark = uuid.uuid4().hex
        try:
            write_request(writing)
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if waits else subprocess.DEVNULL,
                stdout=output_writing,
                stderr=output_writing,
                pass_fds=(writing, *passed),
                start_new_session=True,
                env={**settings, **_environment()} | {_MARK: self._mark},
            )
        except BaseException:
            self.close_pipes()
            raise
        finally:
            os.close(writing)
            os.close(output_writing)
        self.started = time.monotonic()
        self._kill_at: float | None = None
        self._give_up_at: float | None = None

    def go(self) -> None:
        """Let a worker begin that waits. One that is dead shows as any other does."""
        self.started = time.monotonic()
        self._signal_group(signal.SIGCONT)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            os.write(self._process.stdin.fileno(), b"\n")

    def pause(self) -> None:
        """Stop a worker that waits where it is, until `go`."""
        self._signal_group(signal.SIGSTOP)

    @property
    def pid(self) -> int:
        """The worker's process id, and that of its group."""
        return self._process.pid

    def ask_to_end(self, grace: float) -> None:
        """Send SIGTERM to the whole group; `has_ended` sends SIGKILL once `grace` seconds are over."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + grace
            self._signal_group(signal.SIGTERM)

    def has_ended(self) -> bool:
        """Whether the worker is dead (or cannot be killed); the rest of its group is then killed too."""
        if not self._dead():
            now = time.monotonic()
            if self._kill_at is not None and self._give_up_at is None and now >= self._kill_at:
                self._signal_group(signal.SIGKILL)
                self._give_up_at = now + 10
            return self._give_up_at is not None and now >= self._give_up_at
        return True

    def close(self) -> int | None:
        """Kill what is left of the group and what left the group, reap the worker and close the pipes.

        Returns:
            The exit code, or minus a signal's number; None where it could not be killed within 10 s.
        """
        self._signal_group(signal.SIGKILL)
        for pid in _marked(self._mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        if self._process.stdin is not None:
            self._process.stdin.close()  # empty: what went through it was flushed
        self.close_pipes()
        return self._process.returncode

    def _dead(self) -> bool:
        """Whether the worker is dead, without reaping it: its process group's number stays taken until it is."""
        if self._process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody else reaped it
            return True

    def _signal_group(self, number: int) -> None:
        if self._process.returncode is None or number == signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


def worker_command(module: str, request: Path) -> list[str]:
    """The command line of a worker."""
    return [sys.executable, "-m", module, str(request)]


def waiting_command(module: str, request: Path, imports: Sequence[str]) -> list[str]:
    """The command line of a worker that imports modules (``module`` or ``module:name``) and waits for `go`."""
    return [sys.executable, "-m", "smoketest.worker.early", module, str(request), *imports]


def _environment() -> dict[str, str]:
    """The user's environment, and what all workers need alike: sets of texts must not have an order of their own in
    each, for a model may be made in that order.
    """
    seed = os.environ.get("PYTHONHASHSEED", "")
    return os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": seed if seed.isdigit() else "0"}


def _pipe() -> tuple[int, int]:
    """A pipe that takes none of the numbers of stdin, stdout and stderr, even where these are closed."""
    ends = os.pipe()
    if min(ends) > 2:
        return ends
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def _marked(mark: str) -> list[int]:
    """Processes of a worker that went into a session of their own; none where there is no /proc."""
    entry = f"{_MARK}={mark}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # another user's, or gone by now
            if entry in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
