"""Imports without the garbage collector.

PyTorch and a model library make hundreds of thousands of objects that stay until the process ends. The collector looks
through them again and again while they are made, and in each of its full passes later: a quarter of the time of the
import, and a tenth of that of a capture.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Import in here: what there is at the end is never looked through, what comes later is, as if nothing had been."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
