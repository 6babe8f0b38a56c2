"""``python -m smoketest.worker.early WORKER REQUEST MODULE...``: a worker that imports first and waits for its turn.

Importing PyTorch and a model library takes as long as a small check's steps. A part that must wait for another does it
meanwhile. Only what merely defines things is imported here; the user's own code is not.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path

from smoketest.process import end_with_parent
from smoketest.uncollected import uncollected

__all__ = ["import_early", "main"]

_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def main(arguments: list[str]) -> int:
    """Import the modules, wait for a line on stdin, and be the worker.

    Args:
        arguments: the worker's module, the file of its request, and what to import: ``module`` or ``module:name``.

    Returns:
        0 where stdin ended without a line: the part was not needed.
    """
    end_with_parent()
    worker, request, *early = arguments
    import_early(early)
    if not os.read(0, 1):
        return 0
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    sys.argv[1:] = [request]
    runpy.run_module(worker, run_name="__main__", alter_sys=True)
    return 0


def import_early(names: Iterable[str]) -> None:
    """Import ``module`` or ``module:name``, as far as that works: what does not is imported again when it is needed."""
    before = os.environ.get(_AUTOLOAD)
    os.environ[_AUTOLOAD] = "0"  # torch-neuronx would load itself with torch; workers of the real device do not wait
    with uncollected():
        for name in names:
            module, _, attribute = name.partition(":")
            with contextlib.suppress(Exception):  # told when it is its turn
                getattr(importlib.import_module(module), attribute or "__name__")
    del os.environ[_AUTOLOAD]
    if before is not None:
        os.environ[_AUTOLOAD] = before


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
