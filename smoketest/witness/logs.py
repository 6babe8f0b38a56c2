"""What the backend says through `logging` when an op falls back: part of the warnings witness.

A pre-release logged through the root logger, at DEBUG, each text once in a process ([PRE] base.py, April 2026), where
nobody sees it: the root logger's level is WARNING unless somebody changes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

__all__ = ["LogTap"]

_PREFIX = "torch_neuronx"
_KNOWN = ("torch_neuronx.python_ops.torch_mlir.op_impl",)  # made now, so that it is tapped before the backend makes it


class LogTap:
    """Shows every record of the root logger and of torch_neuronx's to `listen` while entered, whatever their levels.

    Records that the user's settings let through go on as if nothing were there, and those they hold back are held back:
    levels, handlers, filters and `logging.disable` are not touched. A text of a record that is held back and has
    arguments is put together only where it speaks of the CPU, for that runs the arguments' own code.

    What it cannot see: loggers of torch_neuronx made after it was entered (until `ensure`), and what the backend's C++
    prints itself (the supervisor reads that of a check's worker).

    Args:
        listen: told the text of a record and its level.
    """

    def __init__(self, listen: Callable[[str, int], object]) -> None:
        self._listen = listen
        self._tapped: set[logging.Logger] = set()
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        for name in _KNOWN:
            logging.getLogger(name)
        self.ensure()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.close()
        self._tapped.clear()

    def ensure(self) -> None:
        """Tap the loggers that have been made since."""
        names = [name for name in list(logging.Logger.manager.loggerDict) if name.split(".")[0] == _PREFIX]
        for logger in (logging.getLogger(), *(logging.getLogger(name) for name in names)):
            if logger not in self._tapped:
                self._tap(logger)

    def _tap(self, logger: logging.Logger) -> None:
        enabled, handle = logger.isEnabledFor, logger.handle

        def show(record: logging.LogRecord) -> None:
            wanted = enabled(record.levelno)
            text = _text(record, wanted)
            if text is not None:
                self._listen(text, record.levelno)
            if wanted:
                handle(record)

        # Attributes of the object come before the methods of its class; removing them restores it.
        logger.isEnabledFor = lambda level: True  # type: ignore[method-assign]
        logger.handle = show  # type: ignore[method-assign]
        self._tapped.add(logger)
        self._entered.callback(_untap, logger)


def _untap(logger: logging.Logger) -> None:
    for name in ("isEnabledFor", "handle"):
        logger.__dict__.pop(name, None)


def _text(record: logging.LogRecord, wanted: bool) -> str | None:
    template = str(record.msg) if isinstance(record.msg, str) else ""
    if not record.args:
        return template
    if not wanted and "cpu" not in template.lower():
        return None
    try:
        return record.getMessage()
    except Exception:  # wrong arguments: logging itself reports it where the record is shown
        return None
