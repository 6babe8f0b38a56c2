"""Times of a step's phases, and what has to happen between them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from smoketest.devices.base import Device
from smoketest.findings.report import Phase
from smoketest.witness.context import Context
from smoketest.witness.tracker import Tracker
from smoketest.workload.workload import StepPhase

__all__ = ["StepClock"]


class StepClock:
    """Marks the phases of one step: takes their times, and reads the tracker after each.

    The device is waited for at both ends of a phase, so that its work is counted where it belongs. Everything else
    (messages, the tracker) happens outside of the time taken.

    Args:
        device: to wait for.
        context: told the phase, for the witnesses.
        tracker: read after each phase.
        entering: called with the phase's name before it begins.
        left: called when it is over and the tracker is read, unless it raised.

    Attributes:
        milliseconds: by phase, summed over micro-batches.
        recorded: (name, phase) of what ran on the CPU, as the tracker told after each phase.
    """

    def __init__(
        self,
        device: Device,
        context: Context,
        tracker: Tracker,
        entering: Callable[[StepPhase], None],
        left: Callable[[StepPhase], None],
    ) -> None:
        self._device = device
        self._context = context
        self._tracker = tracker
        self._entering = entering
        self._left = left
        self.milliseconds: Counter[str] = Counter()
        self.recorded: set[tuple[str, Phase | None]] = set()

    @contextmanager
    def phase(self, phase: StepPhase) -> Iterator[None]:
        """Around one phase; what the step's `PhaseMarker` is."""
        self._entering(phase)
        self._context.phase = None if phase == "step" else phase
        self._device.synchronize()
        started = time.perf_counter()
        try:
            yield
        except BaseException:
            with suppress(Exception):  # a device in trouble must not hide what the step raised
                self._read_tracker()
            raise
        self._device.synchronize()
        self.milliseconds[phase] += (time.perf_counter() - started) * 1e3  # type: ignore[assignment]
        self._read_tracker()
        self._left(phase)

    def _read_tracker(self) -> None:
        self.recorded.update((name, self._context.phase) for name in self._tracker.take())
