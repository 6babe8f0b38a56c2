"""The doctor's advice, where the device that was asked for cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from smoketest.doctor import Diagnosis, examine
from smoketest.supervise.outcome import Failed, Record

__all__ = ["advised"]

_UNFIT = 3


def advised(record: Record, look: Callable[[], Diagnosis] = examine) -> Record:
    """The record, its hint the doctor's where the worker ended since its device cannot be used.

    The worker's own hint stays where the doctor finds nothing in the way.

    Args:
        record: of the eager part.
        look: examines this machine; takes seconds, and is called for such a failure only.
    """
    outcome = record.outcome
    if not (isinstance(outcome, Failed) and outcome.error.exit_code == _UNFIT) or outcome.error.is_advised:
        return record
    diagnosis = look()
    if diagnosis.ok:
        return record
    advice = diagnosis.advice().removeprefix(f"{outcome.error.message}.").strip()  # that is said already
    error = outcome.error.model_copy(update={"hint": advice})
    return replace(record, outcome=Failed(error))
