"""The worker's end of the breadcrumb: a shared file that always holds what it is doing."""

from __future__ import annotations

import json
import mmap
import os
import time
from pathlib import Path

from smoketest.supervise.protocol import BREADCRUMB_SIZE

__all__ = ["BreadcrumbFile"]

_MAX_NAME = 200


class BreadcrumbFile:
    """Writes where the run is into shared memory, which outlives the process however it ends.

    What is written is what `smoketest.supervise.protocol.Breadcrumb.unpack` reads; it is packed here without building
    one, since it happens before every op. A process that the user's code forks writes into memory of its own.
    """

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            if file.seek(0, 2) < BREADCRUMB_SIZE:
                file.truncate(BREADCRUMB_SIZE)
            self._memory = mmap.mmap(file.fileno(), BREADCRUMB_SIZE)
        self._prefix = "{"
        self._entered = 0
        self._began: float | None = None  # the phase that is going on
        self._in_step = False
        self._longest = {True: 0.0, False: 0.0}  # of the phases of steps, and of others
        os.register_at_fork(after_in_child=self._part)

    def enter(self, step: int | None, steps: int | None, role: str | None, phase: str | None) -> None:
        """A phase began, of step `step` (from 0) of `steps`; no op is known of it yet."""
        now = time.monotonic()
        if self._began is not None:
            self._longest[self._in_step] = max(self._longest[self._in_step], now - self._began)
        self._began, self._in_step = now, step is not None
        self._entered += 1
        took = round(self._longest[True] or self._longest[False], 3)
        place = {"step": step, "steps": steps, "role": role, "phase": phase, "entered": self._entered, "took": took}
        self._prefix = json.dumps({key: value for key, value in place.items() if value is not None})[:-1]
        self._write(f'{self._prefix}, "since": {now:.3f}}}')

    def op(self, name: str, module: str | None) -> None:
        """An op is about to run."""
        comma = ", " if len(self._prefix) > 1 else ""
        text = f'{self._prefix}{comma}"since": {time.monotonic():.3f}, "op": {json.dumps(name[:_MAX_NAME])}'
        if module:
            text += f', "module": {json.dumps(module[:_MAX_NAME])}'
        self._write(text + "}")

    def _part(self) -> None:
        self._memory = mmap.mmap(-1, BREADCRUMB_SIZE)

    def _write(self, text: str) -> None:
        self._memory[:] = text.encode()[:BREADCRUMB_SIZE].ljust(BREADCRUMB_SIZE)
