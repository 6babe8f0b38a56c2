"""The first witness: what the device says of ops that fell back, in warnings and in log records."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, SupportsIndex

from smoketest.findings.report import Phase
from smoketest.findings.wordings import op_named_as_fallback
from smoketest.witness.context import Context
from smoketest.witness.logs import LogTap

__all__ = ["FallbackWarnings", "SeenWarning"]


@dataclass(frozen=True)
class SeenWarning:
    """One warning of the device, by the op it names."""

    op: str
    phase: Phase | None


@dataclass
class FallbackWarnings:
    """Records every fallback warning of the device while it is entered, whatever warning filters are set.

    It keeps an entry of its own in front of `warnings.filters`, the list that both `warnings.warn` and C++
    (``TORCH_WARN``) read on each call. The entry asks this object about the text: a warning of the device is recorded
    and goes no further, so a filter of ``error`` cannot make it an exception in the user's step; any other warning
    meets the user's filters as if nothing were there. Changes to the filters, `warnings.catch_warnings` and
    `warnings.resetwarnings` inside keep the entry in front; a ``showwarning`` of the user's is not touched.

    Records of the root logger and of torch_neuronx's loggers are heard as well, at any level (see `LogTap`).

    What it cannot see: what the backend's C++ prints itself, which the supervisor reads of a check's worker; warnings
    that code prints without the `warnings` module, those a program swallows by replacing `warnings.warn` itself (C++
    warnings are still seen then), and anything after somebody assigns a plain list to `warnings.filters` or calls it
    up from before this was entered, until `ensure` is called, which the runner does before every step. Python 3.14 can
    keep filters per context (``sys.flags.context_aware_warnings``): contexts copy the list, this entry included, so
    those made after entering are covered.

    Attributes:
        context: says in which phase a warning came.
        seen: what was recorded and how often, oldest first.
    """

    context: Context
    _logs: LogTap = field(init=False)
    seen: Counter[SeenWarning] = field(default_factory=Counter)
    _saved: list[Any] | None = None

    def __post_init__(self) -> None:
        self._logs = LogTap(self._record_log)

    def __enter__(self) -> Self:
        self._logs.__enter__()
        self._saved = warnings.filters  # type: ignore[assignment]
        self._spy = _Spy(self._record)
        self.ensure()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._logs.__exit__(None, None, None)
        self._spy.listen = None  # copies of the entry may live on in filters that others saved
        if self._saved is not None:
            self._saved[:] = [entry for entry in warnings.filters if not _belongs_to(entry, self._spy)]
            warnings.filters = self._saved
            self._saved = None
            _filters_changed()

    def ensure(self) -> None:
        """Put the entry back in front, where somebody replaced the list; and listen to new loggers of the backend."""
        if self._saved is None:
            return  # not entered
        self._logs.ensure()
        if not isinstance(warnings.filters, _Guarded) or warnings.filters.spy is not self._spy:
            warnings.filters = _Guarded(warnings.filters, self._spy)
            _filters_changed()

    def ops(self) -> set[str]:
        """Names of the ops that were warned about."""
        return {warning.op for warning in self.seen}

    def _record_log(self, text: str, level: int) -> None:
        """The backend logs the same text as an error where it is not allowed to fall back ([PRE] internals, 2.7)."""
        if level < logging.ERROR:
            self._record(text)

    def _record(self, text: str) -> bool:
        op = op_named_as_fallback(text)
        if op is None:
            return False
        self.seen[SeenWarning(op, self.context.phase)] += 1
        return True


class _Spy:
    """Stands in a filter where a compiled pattern would: the `warnings` module calls its `match`."""

    def __init__(self, listen: Callable[[str], bool]) -> None:
        self.listen: Callable[[str], bool] | None = listen

    def match(self, text: str) -> bool:
        return self.listen is not None and self.listen(text)

    def entry(self) -> tuple[Any, ...]:
        return ("ignore", self, Warning, None, 0)


class _Guarded(list[Any]):
    """A filter list whose first entry is the spy's, whatever is done to it; slices are guarded too."""

    def __init__(self, entries: Iterable[Any], spy: _Spy) -> None:
        super().__init__(entries)
        self.spy = spy
        self._to_front()

    def _to_front(self) -> None:
        mine = [entry for entry in self if not _belongs_to(entry, self.spy)]
        super().__setitem__(slice(None), [self.spy.entry(), *mine])

    def insert(self, index: SupportsIndex, entry: Any) -> None:
        super().insert(index, entry)
        self._to_front()

    def append(self, entry: Any) -> None:
        super().append(entry)
        self._to_front()

    def extend(self, entries: Iterable[Any]) -> None:
        super().extend(entries)
        self._to_front()

    def __iadd__(self, entries: Iterable[Any]) -> Self:  # type: ignore[misc]
        self.extend(entries)
        return self

    def remove(self, entry: Any) -> None:
        super().remove(entry)
        self._to_front()

    def pop(self, index: SupportsIndex = -1) -> Any:
        entry = super().pop(index)
        self._to_front()
        return entry

    def clear(self) -> None:
        super().clear()
        self._to_front()

    def reverse(self) -> None:
        super().reverse()
        self._to_front()

    def sort(self, **options: Any) -> None:
        super().sort(**options)
        self._to_front()

    def copy(self) -> list[Any]:
        return _Guarded(self, self.spy)

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        self._to_front()

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        super().__delitem__(index)
        self._to_front()

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return _Guarded(found, self.spy) if isinstance(index, slice) else found


def _belongs_to(entry: Any, spy: _Spy) -> bool:
    return entry[1] is spy


def _filters_changed() -> None:
    """Make the `warnings` module forget which texts it has shown: a text shown before is not asked about again."""
    lock = getattr(warnings, "_lock", None)
    locked = getattr(warnings, "_filters_mutated_lock_held", None)
    if lock is not None and locked is not None:  # Python 3.14
        with lock:
            locked()
    elif hasattr(warnings, "_filters_mutated"):
        warnings._filters_mutated()
