"""What the process and its children write to the terminal, heard while it passes on."""

from __future__ import annotations

import fcntl
import os
import select
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Overheard", "overheard"]

_KEPT = 64 * 1024
_PATIENCE = 1.0
"""Seconds to wait for what is written already, should the listener be kept from reading it."""


class Overheard:
    """The last of what was written, at most 64 KiB."""

    def __init__(self) -> None:
        self._tail = b""
        self._lock = threading.Lock()
        self._pipes: set[int] = set()

    def listen_to(self, pipe: int) -> None:
        """Know of a pipe that will be read."""
        self._pipes.add(pipe)

    def read(self, pipe: int) -> bytes:
        """Take what a pipe holds, waiting for it; empty once nobody can write to it any more."""
        ready = select.poll()
        ready.register(pipe, select.POLLIN)
        ready.poll()
        with self._lock:  # so that nobody finds the pipe empty and its content not kept yet
            data = os.read(pipe, 65536)
            self._tail = (self._tail + data)[-_KEPT:]
            if not data:
                self._pipes.discard(pipe)
        return data

    def text(self) -> str:
        """What was written up to now: a listener that has not come to read it yet is waited for."""
        _flush()
        until = time.monotonic() + _PATIENCE
        while True:
            with self._lock:
                if not any(map(_waiting, self._pipes)) or time.monotonic() > until:
                    return self._tail.decode(errors="replace")
            time.sleep(0.001)


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
        while data := heard.read(reading):
            _write(kept, data)

    heard.listen_to(reading)
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


def _waiting(pipe: int) -> int:
    """Bytes written to a pipe that nobody has read."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
