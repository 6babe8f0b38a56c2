"""What the process and its children write to the terminal, heard while it passes on."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Overheard", "overheard"]

_KEPT = 64 * 1024


class Overheard:
    """The last of what was written, at most 64 KiB."""

    def __init__(self) -> None:
        self._tail = b""

    def add(self, data: bytes) -> None:
        """Keep more."""
        self._tail = (self._tail + data)[-_KEPT:]

    def text(self) -> str:
        """What is kept."""
        return self._tail.decode(errors="replace")


@contextmanager
def overheard() -> Iterator[Overheard]:
    """Hear file descriptors 1 and 2: what is written there by Python, by C++ and by child processes.

    All of it goes where it would have gone, at once, so that nothing is lost if the process dies.
    """
    heard = Overheard()
    with _heard(1, heard), _heard(2, heard):
        yield heard


@contextmanager
def _heard(descriptor: int, heard: Overheard) -> Iterator[None]:
    _flush()
    kept = os.dup(descriptor)
    reading, writing = os.pipe()
    os.dup2(writing, descriptor)
    os.close(writing)

    def pass_on() -> None:
        while data := os.read(reading, 65536):
            heard.add(data)
            _write(kept, data)

    listener = threading.Thread(target=pass_on, daemon=True)
    listener.start()
    try:
        yield
    finally:
        _flush()
        os.dup2(kept, descriptor)
        # A child that outlives this block may keep the pipe open: it is not waited for longer than what is on its way.
        listener.join(timeout=1)
        if not listener.is_alive():
            os.close(reading)
            os.close(kept)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
