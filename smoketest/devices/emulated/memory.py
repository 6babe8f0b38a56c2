"""How much memory the device's tensors take, counted from when somebody first asks.

Counting costs a tenth of a small op, so it begins with the first question: with what Python's garbage collector finds,
and from then on with every storage that is made. The bytes are those of the tensors, without an allocator's rounding
and without what a kernel of the real device would need for itself.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

from torch import Tensor

from smoketest.devices.emulated.compat import NAME
from smoketest.devices.emulated.crossing import watchers

__all__ = ["COUNTER", "Counter", "is_pinned", "pin"]


class Counter:
    """Bytes of the device's storages, by the address of their memory: aliases of one count once.

    Attributes:
        current: bytes now.
        peak: the most since the last `reset_peak`.
        allocated: bytes of all that was made since counting began.
        requests: how many storages were.
    """

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.requests = 0
        self._sharing: dict[int, int] = {}
        self._alive: dict[int, weakref.ref[Any]] = {}
        self._lock = threading.RLock()  # a storage may be freed while one is noted, in the same thread

    def begin(self) -> None:
        """Count from now on, if that has not begun."""
        if self._made not in watchers:
            watchers.append(self._made)
            for thing in gc.get_objects():
                if issubclass(type(thing), Tensor) and thing.device.type == NAME:
                    self._made(thing)

    def reset_peak(self) -> None:
        """The peak is what there is now."""
        with self._lock:
            self.peak = self.current

    def _made(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        address, size, key = storage.data_ptr(), storage.nbytes(), id(storage)
        if not address or key in self._alive:
            return

        def freed(_: Any) -> None:
            with self._lock:
                del self._alive[key]
                self._sharing[address] -= 1
                if not self._sharing[address]:
                    del self._sharing[address]
                    self.current -= size

        with self._lock:
            self._alive[key] = weakref.ref(storage, freed)
            sharing = self._sharing.get(address, 0)
            self._sharing[address] = sharing + 1
            if not sharing:
                self.current += size
                self.allocated += size
                self.requests += 1
                self.peak = max(self.peak, self.current)


COUNTER = Counter()
"""The one of this process: ``torch.neuron`` is a module, and PyTorch's spare backend one device."""


def pin(tensor: Tensor, device: Any = None) -> Tensor:
    """A copy of a CPU tensor that says it is pinned."""
    copy = tensor.clone()
    vars(copy.untyped_storage())["pinned"] = True
    return copy


def is_pinned(tensor: Tensor, device: Any = None) -> bool:
    """Whether a CPU tensor's memory came of `pin`.

    FSDP's CPU offload asks, and pins again what is not: it then trains parameters that nobody reads, without a word.
    """
    return vars(tensor.untyped_storage()).get("pinned", False) is True
