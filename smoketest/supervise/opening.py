"""The first use of a real device, which may hang or kill its process: how that is told, and what a run does without it.

[USER-B4] hung runs need hard timeouts; [USER] SIGSEGV in native code.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from smoketest.findings import NotChecked
from smoketest.supervise import protocol
from smoketest.supervise.outcome import Failed, Outcome, Record

__all__ = ["OPENING", "ended", "not_answering", "noted", "without_it"]

OPENING = "device"
"""The phase in which a worker loads torch-neuronx and uses its device for the first time."""

_UNFIT = 3


def not_answering(seconds: float) -> Failed:
    """The device did not answer in time."""
    return Failed(
        protocol.Failed(
            exit_code=_UNFIT,
            message=f"the Neuron device did not answer its first use within {seconds:g} s",
            hint="look for another user of the device or a hung compiler (`neuron-ls`, `ps`), end it, or reboot",
        )
    )


def ended(death: str) -> Failed:
    """The process died of it, in the words of `describe_death`."""
    return Failed(
        protocol.Failed(
            exit_code=_UNFIT,
            message=f"the Neuron device cannot be used: {death}",
            hint="reinstall torch and torch-neuronx as a documented pair, and see `sudo dmesg | tail` for the driver",
        )
    )


def without_it(asked: Literal["auto", "emulated", "neuron", "cpu"], outcome: Outcome) -> NotChecked | None:
    """What a run that goes on with the emulated device says of the real one; None where it does not go on.

    Args:
        asked: the check's device.
        outcome: of the eager worker that tried the real one and got no further.
    """
    if asked != "auto" or not isinstance(outcome, Failed) or outcome.error.exit_code != _UNFIT:
        return None
    return NotChecked(what="the real device", why=outcome.error.message)


def noted(record: Record, note: NotChecked | None) -> Record:
    """The record with one more thing that was not checked."""
    if note is None:
        return record
    return replace(record, seen=replace(record.seen, notes=(note, *record.seen.notes)))
