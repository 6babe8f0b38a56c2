"""The compile probe: graphs, lowering, breaks and recompiles of a training step, and repro files.

The package can be called: Python puts it in the place of the function `smoketest.probe` once a module of it is
imported, and that call must go on working.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from smoketest.probe.probe import ProbeResult


class _Callable(ModuleType):
    def __call__(self, model: nn.Module, *args: Any, **kwargs: Any) -> ProbeResult:
        from smoketest.probe.api import probe

        return probe(model, *args, **kwargs)


sys.modules[__name__].__class__ = _Callable
