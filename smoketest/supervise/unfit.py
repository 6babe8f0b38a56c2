"""The doctor's advice, where the device that was asked for cannot be used."""

from __future__ import annotations

from dataclasses import replace

from smoketest.doctor import Diagnosis
from smoketest.supervise.outcome import Failed, Record

__all__ = ["advised"]


def advised(record: Record, diagnosis: Diagnosis | None) -> Record:
    """The record, its hint the doctor's where the worker ended since its device cannot be used.

    The worker's own hint stays where the doctor finds nothing in the way.

    Args:
        record: of the eager part.
        diagnosis: of this machine; None where the doctor was not asked, since there is no such failure.
    """
    outcome = record.outcome
    if not isinstance(outcome, Failed) or diagnosis is None or diagnosis.ok:
        return record
    advice = diagnosis.advice().removeprefix(f"{outcome.error.message}.").strip()  # that is said already
    error = outcome.error.model_copy(update={"hint": advice})
    return replace(record, outcome=Failed(error))
