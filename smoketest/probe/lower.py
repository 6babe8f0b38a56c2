"""The parent side of the lowering process: one request at a time, a time limit, and a new process after a death."""

from __future__ import annotations

import importlib.util
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from types import TracebackType

from smoketest.extras import install
from smoketest.probe.graphs import GraphSpec
from smoketest.probe.lowering_worker import Answer, Hello, Imported, read_message, write_message

__all__ = ["INSTALL", "CannotStart", "Crashed", "Lowered", "LoweringProcess", "TimedOut", "missing_reason"]

INSTALL = install("lowering")
_START_TIMEOUT = 300.0


class CannotStart(RuntimeError):
    """The lowering process does not start."""


@dataclass(frozen=True)
class Crashed:
    """The process died on this graph: of a signal (``SIGSEGV``) or with an exit status."""

    cause: str
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class TimedOut:
    """The process had no answer for this graph after so many seconds."""

    seconds: float
    unknown: tuple[str, ...] = ()


Lowered = Answer | Crashed | TimedOut


def missing_reason() -> str | None:
    """Why nothing can be lowered on this machine, with what to type; None where torch-mlir is installed."""
    if importlib.util.find_spec("torch_mlir") is not None:
        return None
    return f"torch-mlir is not installed: {INSTALL}"


class LoweringProcess:
    """A process that lowers graphs. Use as a context manager.

    It is started with the first graph unless `start` was called, and anew after a graph that crashed or hung it.

    Args:
        command: what to run; the default is `smoketest.probe.lowering_worker` under this interpreter.
    """

    def __init__(self, command: tuple[str, ...] | None = None) -> None:
        self._command = command or (sys.executable, "-m", "smoketest.probe.lowering_worker")
        self._process: subprocess.Popen[bytes] | None = None
        self._hello: Hello | None = None  # of the process that runs
        self.started = 0

    def __enter__(self) -> LoweringProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop(kill=True)  # it holds nothing that is worth the second it takes to end by itself

    def start(self) -> None:
        """Start it without waiting for it: its imports take seconds, in which there may be other work to do."""
        if self._process is None:
            self._spawn()

    def hello(self, timeout: float = _START_TIMEOUT) -> Hello:
        """What the process said of itself, starting it if it is not running.

        Raises:
            CannotStart: it does not start.
        """
        self.start()
        if self._hello is None:
            self._hello = self._greeting(timeout)
        return self._hello

    def lower(self, graph: GraphSpec, timeout: float) -> Lowered:
        """How far `graph` gets within `timeout` seconds. Never raises for what the graph does to the process.

        Raises:
            CannotStart: the process does not start.
        """
        self.hello()
        assert self._process is not None
        assert self._process.stdin is not None
        unknown: tuple[str, ...] = ()
        deadline = time.monotonic() + timeout
        try:
            write_message(self._process.stdin, graph)
            while True:
                message = self._receive(deadline)
                if isinstance(message, Answer):
                    return message
                assert isinstance(message, Imported)
                unknown = message.unknown
        except TimeoutError:
            self._stop(kill=True)
            return TimedOut(timeout, unknown)
        except (EOFError, OSError):
            return Crashed(self._stop(), unknown)

    def _spawn(self) -> None:
        # It lowers for the backend; where that is installed, it must neither load it nor take its core.
        environment = dict(os.environ, OMP_NUM_THREADS="1", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        # A process group of its own: Ctrl-C is the parent's to handle, and a kill reaches whatever it started.
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            bufsize=0,
        )
        self._hello = None
        self.started += 1

    def _greeting(self, timeout: float) -> Hello:
        try:
            hello = self._receive(time.monotonic() + timeout)
        except (EOFError, TimeoutError) as error:
            raise CannotStart(f"the lowering process does not start ({self._stop()})") from error
        assert isinstance(hello, Hello)
        return hello

    def _receive(self, deadline: float) -> object:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        return read_message(lambda size: _read(descriptor, size, deadline))

    def _stop(self, kill: bool = False) -> str:
        """End the process if it still runs, asking first unless told to kill; how it ended."""
        process, self._process = self._process, None
        if process is None:
            return "not running"
        if process.stdin is not None:
            process.stdin.close()
        try:
            # After an end of file the process is on its way out: its own status says why.
            status = process.wait(timeout=0 if kill else 5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def _read(descriptor: int, size: int, deadline: float) -> bytes:
    """`size` bytes from a pipe; fewer at its end. Raises TimeoutError at the deadline."""
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while len(data) < size:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            piece = os.read(descriptor, size - len(data))
            if not piece:
                break
            data += piece
    return data
