"""The worker's end of the event pipe."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from smoketest.supervise.protocol import Heartbeat, Message

__all__ = ["HEARTBEAT_SECONDS", "Channel"]

HEARTBEAT_SECONDS = 1.0
_PARENT_GONE = 5


class Channel:
    """Writes messages to the pipe, each a whole line, from any thread.

    The pipe is closed to processes that the user's code starts, and silent in those it forks. When its reader is gone,
    so is the supervisor: nobody waits for the result and nobody would stop this process, so it ends itself.

    Args:
        events: the writing end, or the path of a named pipe.
    """

    def __init__(self, events: int | Path) -> None:
        descriptor = events if isinstance(events, int) else os.open(events, os.O_WRONLY)
        self._descriptor = descriptor
        self._process = os.getpid()
        self._lock = threading.Lock()
        os.set_inheritable(descriptor, False)
        os.register_at_fork(after_in_child=lambda: os.close(descriptor))  # else its reader waits for the child's end

    def emit(self, message: Message) -> None:
        """Send one message; nothing from a forked process, whose steps are not the worker's."""
        if os.getpid() != self._process:
            return
        line = message.model_dump_json(by_alias=True).encode() + b"\n"
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except (BrokenPipeError, ConnectionError):
                os._exit(_PARENT_GONE)

    def start_heartbeat(self) -> None:
        """Send a `Heartbeat` every second, whatever the main thread does."""
        threading.Thread(target=self._beat, name="smoketest-heartbeat", daemon=True).start()

    def _beat(self) -> None:
        wait = threading.Event()
        while not wait.wait(HEARTBEAT_SECONDS):
            self.emit(Heartbeat())
