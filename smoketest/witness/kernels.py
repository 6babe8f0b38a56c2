"""A witness on the emulated device only: its own kernels tell when one of them runs on the CPU."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from types import TracebackType
from typing import Self

from smoketest.devices.emulated.device import EmulatedDevice
from smoketest.findings.report import Phase
from smoketest.witness.context import Context
from smoketest.witness.hostsync import waits_in

__all__ = ["KernelObserver", "Kernels"]


class KernelObserver(ABC):
    """Is told each kernel of the emulated device, before it runs, while it is entered.

    Args:
        device: has room for one observer at a time.
    """

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device

    def __enter__(self) -> Self:
        self._device.observe(self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._device.observe(None)

    @abstractmethod
    def _note(self, name: str, fell_back: bool) -> None:
        """A kernel is about to run, on the CPU if it fell back."""


class Kernels(KernelObserver):
    """Counts the kernels that ran on the CPU, exactly, while it is entered.

    It changes nothing in what runs and costs one call of a Python function per kernel. It sees kernels, not calls: that
    ``aten::sort.values_stable`` ran, not that ``aten::sort`` was called. The dispatch mode asks it after each call, so
    the two together tell how many kernels one call of a composite or of a ``_foreach_*`` op reached.

    Args:
        device: the emulated one, which has room for one observer at a time.
        context: says in which phase the step is, for `waits`; None where there are no phases.

    Attributes:
        threads: identifiers of the threads in which kernels ran.
        waits: how often each kernel that the host waits for ran on the device, by (name, phase).
    """

    name = "kernels"
    is_exact = True

    def __init__(self, device: EmulatedDevice, context: Context | None = None) -> None:
        super().__init__(device)
        self._context = context
        self._waited: dict[int, str] = {}
        self.waits: Counter[tuple[str, Phase | None]] = Counter()
        self._fell_back: dict[int, list[str]] = {}
        self.threads: set[int] = set()

    def take(self) -> list[str]:
        """Names of the kernels that ran on the CPU on this thread since it last asked, one for each time."""
        return self._fell_back.pop(threading.get_ident(), [])

    def waited(self) -> str | None:
        """A kernel on this thread that the host waited for since it last asked; None where there was none."""
        return self._waited.pop(threading.get_ident(), None)

    def leftovers(self) -> list[str]:
        """What no thread has taken, such as kernels that ran where no dispatch mode was active."""
        left = [name for names in self._fell_back.values() for name in names]
        self._fell_back.clear()
        return left

    def _note(self, name: str, fell_back: bool) -> None:
        thread = threading.get_ident()
        self.threads.add(thread)
        if fell_back:
            self._fell_back.setdefault(thread, []).append(name)
        elif waits_in(name) is not None:
            self._waited[thread] = name
            self.waits[name, self._context.phase if self._context is not None else None] += 1
