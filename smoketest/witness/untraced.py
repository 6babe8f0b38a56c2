"""What an untraced step does and the traced one does not: PyTorch's own code asks whether a dispatch mode is active.

Some of its functions (the gradients of prod and cumprod among them) take another way under a mode, with other ops in
place of a value read on the host. The untraced step is the one that users have, so it is believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from smoketest.devices.emulated.device import EmulatedDevice
from smoketest.findings import Observation, SitePolicy
from smoketest.findings.identity import functional_base
from smoketest.findings.report import Phase
from smoketest.witness.context import Context
from smoketest.witness.dispatch import Calls, OpKey
from smoketest.witness.hostsync import sync_message, sync_remedy, waits_in
from smoketest.witness.kernels import KernelObserver
from smoketest.witness.sites import Line, Origins

__all__ = ["Place", "Waits", "artefacts", "believed", "unseen_waits"]


class Place(NamedTuple):
    """Where a kernel made the host wait.

    Attributes:
        op: full name of the kernel.
        phase: of the step.
        line: the user's (file, line).
    """

    op: str
    phase: Phase | None
    line: Line | None


class Waits(KernelObserver):
    """Counts, while it is entered, the kernels of the emulated device that the host waits for, with no mode active.

    Args:
        device: has room for one observer at a time.
        context: says in which phase the step is.
        origins: finds the line, in backward that of the op whose gradient is made. It is told every kernel.

    Attributes:
        seen: how often at each place, but for those of making batches.
    """

    def __init__(self, device: EmulatedDevice, context: Context, origins: Origins) -> None:
        super().__init__(device)
        self._context, self._origins = context, origins
        self.seen: Counter[Place] = Counter()

    def _note(self, name: str, fell_back: bool) -> None:
        if self._context.phase not in ("forward", "backward", "optimizer"):
            return
        origin = self._origins.of(name, needs_grad=False)
        if not fell_back and waits_in(name) is not None:
            self.seen[Place(name, self._context.phase, origin.line)] += 1


def artefacts(traced: Iterable[OpKey], untraced: Iterable[tuple[str, Phase | None]]) -> set[tuple[str, Phase | None]]:
    """(name, phase) of what fell back in the traced step alone.

    Args:
        traced: the calls of the traced step.
        untraced: what any untraced step recorded on the CPU, the one from the same state among them.
    """
    known = {(functional_base(name), phase) for name, phase in untraced}
    return {
        (name, key.phase)
        for key in traced
        for name in key.fell_back
        if not {(functional_base(name), key.phase), (functional_base(name), None)} & known
    }


def believed(traced: Mapping[OpKey, Calls], untrue: set[tuple[str, Phase | None]]) -> dict[OpKey, Calls]:
    """The calls of the traced step without those that an untraced one does not make: they fell back in it alone.

    Args:
        traced: all of them.
        untrue: as `artefacts` gives it.
    """
    return {
        key: calls
        for key, calls in traced.items()
        if not key.fell_back or any((name, key.phase) not in untrue for name in key.fell_back)
    }


def unseen_waits(
    untraced: Mapping[Place, int],
    kernels: Mapping[tuple[str, Phase | None], int],
    traced: Mapping[OpKey, Calls],
    policy: SitePolicy,
) -> list[Observation]:
    """NST103: where the host waits for the device in an untraced step, and not in the traced one.

    Args:
        untraced: what `Waits` saw.
        kernels: how often each kernel that the host waits for ran in the traced step, by phase.
        traced: calls of the traced step.
        policy: makes sites out of lines.
    """
    told: Counter[tuple[Phase | None, Line | None]] = Counter()
    modules: dict[Line | None, set[str | None]] = {}
    for key, calls in traced.items():
        modules.setdefault(key.line, set()).add(key.module)
        if key.sync is not None:
            told[key.phase, key.line] += calls.count
    left = Counter({(op, phase): -count for (op, phase), count in kernels.items()})
    for place, count in untraced.items():
        left[place.op, place.phase] += count
    found = []
    for place, count in untraced.items():
        more = min(count - told[place.phase, place.line], left[place.op, place.phase])
        cause = waits_in(place.op)
        if more <= 0 or cause is None:
            continue
        left[place.op, place.phase] -= more
        site = policy.site(*place.line) if place.line is not None else None
        where = modules.get(place.line, set()) if place.line is not None else set()
        found.append(
            Observation(
                rule="NST103",
                op=place.op,
                called_as=place.op,
                phase=place.phase,
                site=site,
                module=next(iter(where)) if len(where) == 1 else None,
                calls=more,
                exact=True,
                witnesses=frozenset({"kernels"}),
                message=f"{sync_message(cause)}; PyTorch itself does so here, in steps that are not traced",
                remedy=sync_remedy("inside"),
            )
        )
    return found
