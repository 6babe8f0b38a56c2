"""The reference as a part of a run: whether to start it, and the files it finds the device's tensors in."""

from __future__ import annotations

import contextlib
from pathlib import Path

from smoketest.config import Check
from smoketest.supervise.files import PassedFile
from smoketest.supervise.outcome import Ran, Record

__all__ = ["Exchange", "no_reference"]

_FILES = 2


class Exchange:
    """Two files without a name, through which the eager worker leaves tensors for the reference worker.

    Args:
        wanted: whether there is to be a reference at all; else, and where there is no room for files, there are none.
    """

    def __init__(self, wanted: bool) -> None:
        self._files: list[PassedFile] = []
        with contextlib.suppress(OSError):
            while wanted and len(self._files) < _FILES:
                self._files.append(PassedFile(on_disk=True))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The file descriptors that a worker must be passed."""
        return tuple(file.number for file in self._files)

    def path_of(self, place: int) -> Path | None:
        """What a worker opens one of them by; None where there are none."""
        return self._files[place].path if len(self._files) == _FILES else None

    def close(self) -> None:
        """Give them up: nothing is left of them."""
        for file in self._files:
            file.close()


def no_reference(check: Check, eager: Record, device: str | None) -> str | None:
    """Why the reference is not started; None where it is.

    Args:
        check: may switch it off.
        eager: the eager part, over.
        device: that it ran on.
    """
    if not check.parity.enabled:
        return "switched off in the check (parity.enabled)"
    if not isinstance(eager.outcome, Ran) or eager.status != "ran":
        return "the eager part did not come to its end" if eager.status != "skipped" else "there was no eager part"
    if device == "cpu":
        return "the check itself ran on plain CPU"
    return None
