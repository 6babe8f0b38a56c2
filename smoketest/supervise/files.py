"""What a run writes: reports that are never half there, a journal, logs that cannot fill the disk."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from smoketest.config.paths import refuse_other_than_utf8
from smoketest.errors import ConfigError, Place
from smoketest.supervise.scratch import ScratchFolder

__all__ = [
    "CappedLog",
    "Journal",
    "PassedFile",
    "locked",
    "prepare_folder",
    "refuse_no_file",
    "scratch_folder",
    "write_atomically",
]

LOG_HEAD = 8 * 2**20
LOG_TAIL = 64 * 2**10
_ROOM = 2**16
"""Bytes there must be room for: a disk that is full takes files, and nothing in them."""
JOURNAL_CAP = 64 * 2**20
_NOT_TOLD = (f'File "{Path(__file__).parents[1]}{os.sep}', 'File "<frozen runpy>"', "Extension modules: ")
"""Beginnings of lines that a dying Python prints and that say nothing of the user's code."""
_WRITTEN = ("report.json", "report.md", "report.html", "log/events.jsonl", "log/eager.log", "log/compile.log")


def prepare_folder(folder: Path) -> None:
    """Make `folder` and its ``log`` and see that the files of a run can be made there.

    Raises:
        ConfigError: where not; found before anything runs.
    """
    refuse_other_than_utf8(folder)
    try:
        (folder / "log").mkdir(parents=True, exist_ok=True)
        for place in (folder, folder / "log"):
            with tempfile.TemporaryFile(dir=place) as file_without_name:
                file_without_name.write(bytes(_ROOM))
                file_without_name.flush()
        for file in (folder / name for name in _WRITTEN):
            if file.exists() and not file.is_file():
                raise ValueError(f"{file.relative_to(folder)} is {'a folder' if file.is_dir() else 'no regular file'}")
            if file.parent.name == "log" and file.exists() and not os.access(file, os.W_OK):  # written in place
                raise ValueError(f"{file.relative_to(folder)} is read-only")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"the output folder cannot be written: {reason}",
            place=Place(str(folder)),
            hint="name another with --output DIR",
        ) from None


def refuse_no_file(path: Path) -> None:
    """Refuse what is there and is neither a regular file nor a folder: opening a pipe would wait for its other end.

    Raises:
        OSError: it is a pipe or a device, or it is not there.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(None, "it is a pipe or a device, expected a file")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder; the system lets go however this process ends, and no file is left.

    Raises:
        ConfigError: another run is in it.
    """
    with ExitStack() as held:
        with suppress(OSError):  # a file system without folders to open, or without locks
            number = os.open(folder, os.O_RDONLY)
            held.callback(os.close, number)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    "another run is writing into this folder",
                    place=Place(str(folder)),
                    hint="wait for its end, or name another with --output DIR",
                ) from None
        yield


@contextmanager
def scratch_folder(folder: Path | None = None) -> Iterator[Path]:
    """`folder`, or where there is none a folder for temporary files that is gone afterwards.

    Raises:
        ConfigError: there is nowhere to make one.
    """
    with ExitStack() as made:
        if folder is None:
            try:
                scratch = made.enter_context(closing(ScratchFolder()))
            except OSError as error:
                raise ConfigError(
                    f"no folder for temporary files can be made: {error.strerror}",
                    hint="set TMPDIR to a folder that can be written",
                ) from None
            folder = scratch.path
        yield folder


def write_atomically(path: Path, text: str) -> None:
    """Put `text` into `path` so that a reader sees the old file or the whole new one.

    Raises:
        OSError: where it cannot be written; `path` is then as it was.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's umask; there is no reading it without setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


class PassedFile:
    """A file without a name that a worker gets by its number, so that nothing is left however this process ends.

    Args:
        data: what is in it at first.
        on_disk: whether it may grow large. Others are in memory where the system can do that: a full disk, or none
            for temporary files, is no obstacle then.

    Attributes:
        path: opens the file again, in this process and in a worker that was given `number`.
        number: its file descriptor.
    """

    def __init__(self, data: bytes = b"", *, on_disk: bool = False) -> None:
        with _in_memory() if not on_disk and hasattr(os, "memfd_create") else tempfile.TemporaryFile() as file:
            # Above 2, as the numbers of stdin, stdout and stderr mean something else in the worker.
            self._file = os.fdopen(fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 3), "w+b", buffering=0)
        self.number = self._file.fileno()
        self.path = Path(f"/dev/fd/{self.number}")
        self.write(data)

    def write(self, data: bytes) -> None:
        """Put `data` in; a reader begins with its first byte."""
        self._file.write(data)
        self._file.seek(0)

    def read(self) -> bytes:
        """All that is in it."""
        return os.pread(self.number, os.fstat(self.number).st_size, 0)

    def close(self) -> None:
        """Give the file up."""
        self._file.close()


def _in_memory() -> BinaryIO:
    return os.fdopen(os.memfd_create("smoketest"), "w+b")


class _Log:
    """A file that is written as long as it can be: a disk that is full ends no run.

    Attributes:
        problem: why nothing more is written; None where all is well.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self.problem: str | None = None

    def _put(self, data: bytes) -> None:
        while data and self.problem is None:
            try:
                data = data[self._file.write(data) :]
            except OSError as error:
                self.problem = error.strerror or str(error)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Journal(_Log):
    """The events of a run as they came: one JSON object a line, each with its part and the seconds since the start."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._started = time.monotonic()
        self._written = 0

    def add(self, part: str, line: bytes) -> None:
        """Write one line of a worker's pipe; nothing more once the file has its full size."""
        if self._written > JOURNAL_CAP:
            return
        text = line.decode("utf-8", "replace").strip()
        entry = f'{{"part": "{part}", "at": {time.monotonic() - self._started:.3f}, "event": {text}}}\n'
        self._put(entry.encode())
        self._written += len(entry)


class CappedLog(_Log):
    """What a worker printed: the beginning up to `LOG_HEAD` bytes and the last `LOG_TAIL`, whatever came between."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._head = 0
        self._dropped = 0
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def write(self, data: bytes) -> None:
        """Take what the worker printed."""
        kept = data[: max(0, LOG_HEAD - self._head)]
        if kept:
            self._put(kept)
            self._head += len(kept)
        self._dropped += len(data) - len(kept)
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= LOG_TAIL:
            self._tail_size -= len(self._tail.popleft())

    def last_lines(self, lines: int = 20, width: int = 300) -> str:
        """The last lines that are not empty, each cut to `width` characters, control characters taken out.

        Of what Python says of a crash, frames of this package and the list of extension modules are left out: the log
        has them, and here the user's own frames need the room.
        """
        text = b"".join(self._tail)[-LOG_TAIL:].decode("utf-8", "replace")
        clean = (
            "".join(c if c.isprintable() or c == "\t" else " " for c in line).rstrip() for line in text.splitlines()
        )
        told = [line for line in clean if line and not line.lstrip().startswith(_NOT_TOLD)]
        return "\n".join(line[:width] for line in told[-lines:])

    def close(self) -> None:
        """Write the end of what did not fit, and close the file."""
        if self._dropped:
            tail = b"".join(self._tail)[-min(LOG_TAIL, self._dropped) :]
            left_out = self._dropped - len(tail)
            self._put(f"\n[smoketest: {left_out:,} bytes left out here]\n".encode() if left_out else b"")
            self._put(tail)
        super().close()
