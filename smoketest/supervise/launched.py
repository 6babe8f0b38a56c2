"""Workers that PyTorch's launcher starts, one for each rank: their pipes, their ends, and that of the launcher.

The launcher passes on no file descriptors. So a rank's pipes have names, in a folder that goes with the run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from smoketest.supervise.files import CappedLog, PassedFile
from smoketest.supervise.process import LineTooLong, Pipes, WorkerProcess
from smoketest.supervise.protocol import BREADCRUMB_SIZE, Deaths, Launch, request_of
from smoketest.supervise.scratch import ScratchFolder

__all__ = ["LaunchedRanks", "NamedFile", "RankProcess"]

_NOTICED = 3.0
"""Seconds in which the launcher notices that a rank died, and ends the others."""


class NamedFile:
    """A file of a rank's, as `PassedFile` is one of another worker's; it goes with its folder."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        path.write_bytes(data)

    def read(self) -> bytes:
        """All that is in it; nothing once its folder is gone."""
        return self.path.read_bytes() if self.path.exists() else b""

    def close(self) -> None:
        """Leave it to its folder."""


class LaunchedRanks:
    """The launcher, and the folder that it shares with the ranks.

    Args:
        ranks: how many.
        module: that is the worker.
        log: gets what the launcher prints.
        request: makes the request of a rank: its number, the paths of its event pipe, its breadcrumb, the pipe it
            prints to, and the file that the first one leaves its record in.

    Attributes:
        processes: the ranks.
        record: what the first rank leaves for the reference part.
    """

    def __init__(
        self, ranks: int, module: str, log: CappedLog, request: Callable[[int, Path, Path, Path, Path], bytes]
    ) -> None:
        self._log = log
        self._folder = ScratchFolder()
        self._deaths: dict[int, int] | None = None
        folder = self._folder.path
        self.record = folder / "record"
        self.record.touch()
        self.processes: list[RankProcess] = []
        try:
            for rank in range(ranks):
                events, printed, crumb = (folder / f"{name}{rank}" for name in ("events", "printed", "crumb"))
                for pipe in (events, printed):
                    os.mkfifo(pipe)
                crumb_file = NamedFile(crumb, b" " * BREADCRUMB_SIZE)
                self.processes.append(RankProcess(self, rank, events, printed, crumb_file))
                request_of(folder, rank).write_bytes(request(rank, events, crumb, printed, self.record))
            with contextlib.closing(PassedFile()) as asked:

                def write_request(deaths: int) -> None:
                    message = Launch(ranks=ranks, module=module, folder=folder, deaths=deaths)
                    asked.write(message.model_dump_json().encode())

                command = [sys.executable, "-m", "smoketest.worker.launch", str(asked.path)]
                self.process = WorkerProcess(command, write_request, (asked.number,))
        except BaseException:
            for made in self.processes:
                made.close_pipes()
            self._clean_up()
            raise

    @property
    def pid(self) -> int:
        """The launcher's process id."""
        return self.process.pid

    @property
    def started(self) -> float:
        """When the launcher was started, on the monotonic clock."""
        return self.process.started

    @property
    def deaths(self) -> dict[int, int]:
        """Which ranks died of themselves, as far as the launcher has told: exit codes, or minus a signal's number."""
        return self._deaths or {}

    def has_ended(self) -> bool:
        """Whether the launcher is dead, and all it has to say is read."""
        ended = self.process.has_ended()
        self._listen()
        return ended

    def code(self, rank: int) -> int | None:
        """What a rank ended with; None where the launcher ended it, since another one died."""
        if self._deaths is not None:
            return self._deaths.get(rank)
        return self.process.close() if self.process.has_ended() else 0

    def last_lines(self) -> str:
        """The last of what the launcher printed."""
        return self._log.last_lines()

    def ask_to_end(self, grace: float) -> None:
        """End the launcher, and with it all ranks."""
        self.process.ask_to_end(grace)

    def end(self) -> None:
        """Kill what is left; what the ranks left behind stays."""
        self._listen()
        self.process.close()
        for process in self.processes:
            process.close_pipes()

    def close(self) -> None:
        """Kill what is left, and take the folder away."""
        self.end()
        self._clean_up()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # closed already
            while printed := self.process.read_output():
                self._log.write(printed)
            with contextlib.suppress(ValidationError, LineTooLong):
                for line in self.process.read_lines():
                    self._deaths = _of_themselves(Deaths.model_validate_json(line).codes)

    def _clean_up(self) -> None:
        self._log.close()
        self._folder.close()


class RankProcess(Pipes):
    """One of the ranks, as `WorkerProcess` is another worker.

    Attributes:
        crumb: its breadcrumb.
        rank: its number.
        worker: its process id, once it has told it.
    """

    def __init__(self, launched: LaunchedRanks, rank: int, events: Path, printed: Path, crumb: NamedFile) -> None:
        # For writing too: a pipe that nobody writes to yet would be at its end.
        super().__init__(*(os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in (events, printed)))
        self._launched = launched
        self.rank = rank
        self.crumb = crumb
        self.worker: int | None = None
        self._gone_at: float | None = None
        self._kill_at: float | None = None

    @property
    def pid(self) -> int:
        """The launcher's process id: compilers of any rank are among its descendants."""
        return self._launched.pid

    @property
    def started(self) -> float:
        """When the launcher was started."""
        return self._launched.started

    @property
    def ended_by_launcher(self) -> bool:
        """Whether it did not die of itself."""
        return bool(self._launched.deaths) and self.rank not in self._launched.deaths

    def ask_to_end(self, grace: float) -> None:
        """End it; `has_ended` kills it once `grace` seconds are over."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + grace
            self._signal(signal.SIGTERM)

    def has_ended(self) -> bool:
        """Whether it is dead, and how it ended is known as far as it will be."""
        if self._launched.has_ended():
            return True
        now = time.monotonic()
        if self._kill_at is not None and now >= self._kill_at:
            self._signal(signal.SIGKILL)
        if self.worker is None or _is_there(self.worker):
            return False
        if self._gone_at is None:
            self._gone_at = now
        return now - self._gone_at > _NOTICED

    def close(self) -> int | None:
        """Its exit code, or minus a signal's number; None where the launcher ended it for another one's sake."""
        return self._launched.code(self.rank)

    def last_lines(self) -> str:
        """What the launcher printed last: of a rank that never came up, nothing else tells."""
        return self._launched.last_lines() if self.worker is None else ""

    def _signal(self, number: int) -> None:
        if self.worker is None:
            self._launched.ask_to_end(max(0.0, (self._kill_at or 0.0) - time.monotonic()))
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.worker, number)  # the launcher gives each a session of its own


def _of_themselves(codes: dict[int, int]) -> dict[int, int]:
    """Without the ranks that the launcher ended, by SIGTERM, since others had died."""
    others = {rank: code for rank, code in codes.items() if code != -signal.SIGTERM}
    return others or codes


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
