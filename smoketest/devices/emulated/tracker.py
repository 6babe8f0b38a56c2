"""What ran where: the process-wide op tracker, with the semantics of the real one.

[PRE] NeuronOpTracking: process-wide sets of names, so unique, unordered and without counts; a fallback is recorded
before it runs. Names are the dispatcher's, ``aten::sort.values_stable``.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

from smoketest.devices.emulated.faults import Fault

__all__ = ["FallbackWarning", "Tracker"]

Observer = Callable[[str, bool], None]


class FallbackWarning(UserWarning):
    """An op had no kernel on the device and ran on the CPU.

    That there is a warning is documented ([PUB] best-practices page); its wording is a pre-release's
    ([PRE] ``neuron_cpu_fallback``), and releases may say it differently.
    """


class Tracker:
    """Names of what ran, filled by the device's kernels.

    Attributes:
        warn: whether an op warns the first time it falls back; `clear` re-arms it.
        observer: called with the name of each op before its kernel runs, and whether it falls back.
        executed: names of the ops that ran on the device, as the dispatcher has them; always the same set.
        copied: the directions of copies, under the backend's names for them.
        failing: ops whose kernel is made to fail, or to compute wrongly; always the same set.
        faults: those of them that compute wrongly, and how.
        continued_past: ops that would have raised on the device and were computed another way; `clear` keeps them.
        cpu_collectives: collectives that a process group of the device was given CPU tensors for; `clear` keeps them.
    """

    def __init__(self) -> None:
        self.warn = True
        self.observer: Observer | None = None
        self.executed: set[str] = set()
        self.copied: set[str] = set()
        self.fallen_back: set[str] = set()
        self.failing: set[str] = set()
        self.faults: dict[str, Fault] = {}
        self.continued_past: set[str] = set()
        self.cpu_collectives: set[str] = set()
        self._viewed: set[str] = set()
        self._used = False
        self._lock = threading.Lock()

    def ran(self, name: str) -> None:
        """A kernel of the device is about to run."""
        self.executed.add(name)
        if self.observer is not None:
            self.observer(name, False)

    def fell_back(self, name: str, text: str | None = None) -> None:
        """An op is about to run on the CPU.

        Args:
            name: what it is recorded as.
            text: of the warning; that of the boxed fallback when None.
        """
        with self._lock:  # backward runs on a thread of its own
            first = name not in self.fallen_back
            self.fallen_back.add(name)
        self.executed.add("aten::_to_copy")  # of its arguments and results
        if self.observer is not None:
            self.observer(name, True)
        if first and self.warn:
            # fell_back <- fallback kernel <- (C++) <- the line that called the op
            warnings.warn(text or f"Operator ' {name} ' fell back to CPU", FallbackWarning, stacklevel=3)

    def viewed(self, name: str) -> None:
        """A view op is about to run on the CPU: PyTorch itself warns of it, here once per op until `clear`.

        The wording, the digit in front of it too, is that of the ``cpu_fallback`` which the backend calls.
        """
        with self._lock:
            first = name not in self._viewed
            self._viewed.add(name)
        if first and self.warn:
            text = (
                f"0The operator {name} appears to be a view operator, but it has no implementation for the backend "
                "\"neuron:0\". View operators don't support falling back to run on the CPU, since the tensor's storage "
                "cannot be shared across devices."
            )
            warnings.warn(text, UserWarning, stacklevel=4)

    def carried_cpu(self, name: str) -> bool:
        """A collective of CPU tensors is about to run on a process group of the device; whether to warn of it."""
        with self._lock:
            first = name not in self.cpu_collectives
            self.cpu_collectives.add(name)
        return first and self.warn

    def was_used(self) -> bool:
        """Whether anything ran on the device since the process began, whatever was cleared since."""
        return self._used or bool(self.executed or self.fallen_back or self._viewed)

    def clear(self) -> None:
        """Forget all names; the next fallback of each op warns again."""
        with self._lock:
            self._used = self.was_used()
            self.executed.clear()
            self.copied.clear()
            self.fallen_back.clear()
            self._viewed.clear()
