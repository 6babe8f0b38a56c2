"""The dispatch witness in threads that the user's code starts, such as one that runs backward or a part of a model."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from smoketest.witness.dispatch import DispatchWitness, Relay
from smoketest.witness.sites import ModuleStack

__all__ = ["FollowThreads"]


class FollowThreads:
    """Has a dispatch witness see what threads do that are started while this is entered.

    A dispatch mode is of one thread, and of the backward that it runs. In each new thread a mode of its own passes all
    calls on, until the thread ends; once this is left it only lets them through.

    What it cannot see: threads that were there before, such as a pool's from an earlier step, and those that are not
    started through `threading.Thread`.

    Args:
        witness: told of every call.
        modules: told which module started a thread.
    """

    def __init__(self, witness: DispatchWitness, modules: ModuleStack) -> None:
        self._witness = witness
        self._modules = modules
        self._entered = False

    def __enter__(self) -> Self:
        self._entered = True
        self._start = threading.Thread.start
        start, follow = self._start, self._follow

        def start_followed(thread: threading.Thread) -> None:
            follow(thread)
            start(thread)

        threading.Thread.start = start_followed  # type: ignore[method-assign, assignment]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        threading.Thread.start = self._start  # type: ignore[method-assign]
        self._entered = False

    def _follow(self, thread: threading.Thread) -> None:
        run, take_over = thread.run, self._modules.handover()

        def followed() -> None:
            del thread.run  # of the object: its class's is there again
            take_over()
            with Relay(self._witness, lambda: self._entered):
                run()

        thread.run = followed  # type: ignore[method-assign]
