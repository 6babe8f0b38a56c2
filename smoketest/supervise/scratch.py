"""Folders for temporary files that do not pile up, however the process ends that made them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

__all__ = ["ScratchFolder"]

_PREFIX = "smoketest-scratch-"
_MARK = ".made-by-smoketest"
_YOUNG = 60.0
"""Seconds in which a folder is left alone that nobody holds: it may be one that is being made."""


class ScratchFolder:
    """A folder that is gone after `close`, or where its process was killed, once another one makes such a folder.

    A lock on a file in it tells whether it is in use: the system lets go of that however the process ends.

    Raises:
        OSError: there is nowhere to make one.

    Attributes:
        path: of the folder.
    """

    def __init__(self) -> None:
        _remove_abandoned(Path(tempfile.gettempdir()))
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
        self.path = Path(self._folder.name)
        self._held: int | None = os.open(self.path / _MARK, os.O_CREAT | os.O_RDWR, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks: nobody takes it away there
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Take the folder away."""
        self._folder.cleanup()
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of this user in `place` whose processes are dead."""
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, held, or gone by now
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
        return
    mark = os.open(folder / _MARK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if time.time() - os.fstat(mark).st_mtime > _YOUNG:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(mark)
