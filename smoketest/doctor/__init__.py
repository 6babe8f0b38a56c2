"""The doctor: can this machine run on device ``neuron``, and if not, why, and what to do first.

Works without torch, imports none of what it examines, asks no network and answers within a minute. The steps are
`probe.observe` (what is there), `judge.judge` (what that means, by `facts`) and `render` (text, JSON).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from smoketest.doctor.judge import changing_settings, judge, judge_without_device
from smoketest.doctor.lines import Diagnosis, Line, Topic, Verdict
from smoketest.doctor.probe import Limits, Place, observe, observe_quickly
from smoketest.doctor.render import render_json, render_text

__all__ = [
    "Diagnosis",
    "Limits",
    "Line",
    "Place",
    "Topic",
    "Verdict",
    "changing_settings",
    "examine",
    "examine_quickly",
    "render_json",
    "render_text",
]


def examine(
    environ: Mapping[str, str] | None = None,
    *,
    python: str = sys.executable,
    place: Place | None = None,
    limits: Limits | None = None,
) -> Diagnosis:
    """Examine this machine for device ``neuron``.

    Args:
        environ: the environment variables to examine and to probe with; this process's when None.
        python: the interpreter to examine.
        place: where the machine's own files are; ``/`` when None.
        limits: seconds each probe may take.
    """
    given = os.environ if environ is None else environ
    return judge(observe(given, python=python, place=place or Place(), limits=limits or Limits()))


def examine_quickly(
    environ: Mapping[str, str] | None = None,
    *,
    torch: str | None,
    usable: bool,
    python: str = sys.executable,
    place: Place | None = None,
    limits: Limits | None = None,
) -> tuple[Line, ...]:
    """What the doctor says without loading torch or touching the device, in a fraction of a second.

    Args:
        environ: the environment variables to examine; this process's when None.
        torch: the version of the torch that a run loaded; None where none did.
        usable: whether the run had a device.
        python: the interpreter to examine.
        place: where the machine's own files are; ``/`` when None.
        limits: seconds each probe may take.
    """
    given = os.environ if environ is None else environ
    seen = observe_quickly(given, torch=torch, python=python, place=place or Place(), limits=limits or Limits())
    return judge_without_device(seen, usable=usable)
