"""Workers that are forked from a process which has imported PyTorch: each is a process of its own, begun at once.

What differs from ``python -m smoketest.worker`` is that PyTorch is there already. As a script it is the process that is
forked: ``python tests/worker/forks.py N``, where N is its end of a socket.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOM = 500
"""Files of a worker have lower numbers."""
_CHUNK = 2**20


class Forks:
    """The process that is forked, and what one asks of it."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._environment = _environment()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, env=self._environment,
        )  # fmt: skip
        theirs.close()

    def fits(self) -> bool:
        """Whether a worker that is started now has the environment in which PyTorch was imported."""
        return self._environment == _environment()

    def start(self, request: Path, folder: Path, events: int, output: int) -> int:
        """Fork a worker.

        Args:
            request: file of the request, whose ``events`` is the number given here.
            folder: where it starts.
            events: the event pipe's writing end, which has this number in the worker too.
            output: what stdout and stderr go to.

        Returns:
            Its process id.
        """
        asked = {"request": str(request), "folder": str(folder), "events": events}
        socket.send_fds(self._ours, [json.dumps(asked).encode()], [events, output])
        return int(self._ours.recv(_CHUNK))

    def wait(self) -> int:
        """The exit code of the worker started last; negative where a signal ended it."""
        return os.waitstatus_to_exitcode(int(self._ours.recv(_CHUNK)))

    def close(self) -> None:
        """End the process."""
        self._ours.close()
        self._process.wait()


def _environment() -> dict[str, str]:
    """The tests' own, without what pytest says of the test that runs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return kept | {"OMP_NUM_THREADS": "1"}


def _serve(end: socket.socket) -> dict[str, Any]:
    """Fork for each request; in a fork, what was asked."""
    while True:
        said, files, _, _ = socket.recv_fds(end, _CHUNK, 2)
        if not said:
            os._exit(0)
        child = os.fork()
        if child == 0:
            asked: dict[str, Any] = json.loads(said)
            end.detach()
            _settle(asked, *files)
            return asked
        for file in files:
            os.close(file)
        end.send(str(child).encode())
        end.send(str(os.waitpid(child, 0)[1]).encode())


def _settle(asked: dict[str, Any], events: int, output: int) -> None:
    """Have the files, the folder and the arguments that a worker has which was started by itself."""
    events = fcntl.fcntl(events, fcntl.F_DUPFD, _ROOM)
    for number in (1, 2):
        os.dup2(output, number)
    os.closerange(3, _ROOM)
    os.dup2(events, asked["events"])
    os.close(events)
    os.chdir(asked["folder"])
    sys.path[0] = asked["folder"]
    sys.argv[1:] = [asked["request"]]


if __name__ == "__main__":
    before = dict(os.environ)
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # as the worker has it before it imports PyTorch
    importlib.import_module("smoketest.worker.eager")
    os.environ.clear()
    os.environ.update(before)
    _serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("smoketest.worker", run_name="__main__", alter_sys=True)
