"""What an eager run did not show, once it is over."""

from __future__ import annotations

from collections.abc import Iterator

from smoketest.config.models import Witnesses
from smoketest.devices.base import Device
from smoketest.devices.emulated.adapter import EmulatedAdapter
from smoketest.findings.parts import LIMITS_MET
from smoketest.witness import hidden, reconcile

__all__ = ["let_past", "not_shown"]


def not_shown(
    heard: Witnesses, traced: reconcile.TracedCalls, over: bool, hidden_threads: int, stayed: str | None
) -> Iterator[tuple[str, str]]:
    """(what, why) of all that the traced step did not show.

    Args:
        heard: without the dispatch mode there is none to show anything, which `not_heard` tells.
        traced: what it showed.
        over: whether there is a traced step that came to its end.
        hidden_threads: threads in which ops ran that the dispatch mode does not see.
        stayed: what is known of tensors that stayed on the CPU, and did no harm in these steps; None without any.
    """
    if not heard.dispatch:
        return
    if not over and traced:
        yield (
            "lines, counts and host synchronisation of all of the step",
            "the traced step did not come to its end: they are told as far as it came",
        )
        return
    if not over:
        yield "lines, counts and host synchronisation", "no traced step came to its end"
        return
    if hidden_threads:
        yield (
            "lines and counts of ops in threads that the user's code starts",
            f"the dispatch mode does not see them; in the traced step ops ran in {hidden_threads} of them",
        )
    elif not reconcile.reached_the_device(traced):
        yield "fallbacks", "no op of forward or backward ran on the device: is the model moved by model.to(device)?"
    if stayed is not None:
        yield "tensors that stayed on the CPU when the model was moved, for other steps than these", stayed
    unseen = hidden.summary(traced)
    if unseen is not None:
        why = f"no witness sees into kernels, and in a pre-release of April 2026 {unseen}"
        yield "host work hidden in native ops, 64-bit floats apart", why


def let_past(device: Device) -> Iterator[tuple[str, str]]:
    """(what, why) of limits and rules of the backend that the run met, and was let past: possible problems."""
    if not isinstance(device, EmulatedAdapter):
        return
    limits = device.limits_let_past()
    if limits:
        effects = "; ".join(f"{limit.what}: {limit.effect}" for limit in limits)
        yield (
            LIMITS_MET,
            f"only a pre-release is known to have them, and without --strict-limits they do not act: {effects}",
        )
    for rule in device.device.met_rules:
        yield f"process groups of the device: {rule.what}", f"here it went well; {rule.effect}"
