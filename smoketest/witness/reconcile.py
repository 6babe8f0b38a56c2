"""From what each witness saw to observations: one account of every op that ran on the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from smoketest.findings import Observation, Site, SitePolicy
from smoketest.findings.identity import functional_base
from smoketest.findings.report import Grounds, Kind, OperatorRow, Phase
from smoketest.findings.wordings import POSSIBLE_FALLBACK, UNLOWERABLE_FALLBACK, WHY_ON_CPU
from smoketest.operators.evidence import base_name, grounds_for, reports
from smoketest.operators.functional import functional_overload
from smoketest.operators.profile import OperatorProfile
from smoketest.witness.dispatch import Calls, OpKey, signature_text
from smoketest.witness.hidden import computes_on_device
from smoketest.witness.hostsync import sync_message, sync_remedy
from smoketest.witness.registry import Registry
from smoketest.witness.sites import Line
from smoketest.witness.warnings import SeenWarning

__all__ = ["Evidence", "host_syncs", "is_exact", "observations", "operator_rows", "reached_the_device"]

_Eager = Literal["device", "host", "cpu", "mixed", "failed", "unknown", "not_reached"]
TracedCalls = Mapping[OpKey, Calls]


@dataclass
class Evidence:
    """What the witnesses saw up to now.

    Attributes:
        tracked: (name, phase) read from the tracker after every phase of every step, setup included.
        steady: the same, of the steps after the warm-up only; None before there is one.
        warned: warnings, each once.
        traced: calls of the traced step; empty before it.
        counted_by: which witness told what each call of the traced step reached: ``tracker``, or ``kernels``, which is
            exact for composites too.
        registry: which ops have a kernel of the backend's, on a real device.
        timed: whether the times of calls are the device's own: on a real one, which its tracker waits for.
        untrue: what fell back in steps under a dispatch mode alone (see `untraced`): no evidence.
        complete: whether the traced step came to its end; its counts are lower bounds where it did not.
    """

    tracked: set[tuple[str, Phase | None]] = field(default_factory=set)
    steady: set[tuple[str, Phase | None]] | None = None
    warned: Collection[SeenWarning] = ()
    traced: TracedCalls = field(default_factory=dict)
    counted_by: Literal["tracker", "kernels"] = "tracker"
    registry: Registry = field(default_factory=Registry)
    timed: bool = False
    untrue: set[tuple[str, Phase | None]] = field(default_factory=set)
    complete: bool = True


def observations(
    evidence: Evidence, profile: OperatorProfile | None, policy: SitePolicy, raised: Iterable[str] = ()
) -> list[Observation]:
    """One NST101 observation for every (op, phase, site, module) where an op ran on the CPU.

    What the traced step met has its site, module, count and bytes. A name that only the tracker or only a warning knows
    in some phase (an op of the first step alone, say) is an observation with no site. Whether the device warns makes no
    difference but to the list of witnesses.

    Args:
        evidence: of all witnesses.
        profile: of the emulated device, which makes these predictions; None on a real device, where they are measured.
        policy: makes sites out of lines.
        raised: ops that the emulated device computed another way, since neither device nor CPU has a kernel. They are
            another finding, and so are the kernels that the other way reached.
    """
    raised = frozenset(raised)
    warned = {warning.op for warning in evidence.warned}
    found = []
    met: set[tuple[str, Phase | None]] = set()
    for key, calls in evidence.traced.items():
        for name in sorted(key.fell_back - raised) if key.op not in raised else ():
            untraced = _untraced_name(name, key.phase, evidence.tracked)
            met |= {(name, key.phase), (untraced, key.phase)}
            seen = _traced(name, untraced, key, calls, profile, policy, warned, evidence)
            found.append(seen if evidence.complete else replace(seen, exact=False))
    phases = {*met, *evidence.tracked, *evidence.untrue}
    only_warned = {(seen.op, seen.phase) for seen in evidence.warned if not _accounted(seen.op, phases)}
    for name, phase in sorted((evidence.tracked | only_warned) - met, key=str):
        if name in raised or (phase is None and any(name == other for other, _ in met)):
            continue  # an unsplit step: the traced one knows the phases
        witnesses = {"tracker"} if (name, phase) in evidence.tracked else set()
        found.append(_unplaced(name, phase, profile, frozenset(witnesses | _warning(name, warned)), evidence))
    return found


def host_syncs(traced: TracedCalls, policy: SitePolicy) -> list[Observation]:
    """NST103: the calls of the traced step in which the host waits for the device.

    What the runner reads (the loss) is not among them: it does when the step is over. Nor are ops that fell back, which
    is a finding already.

    Args:
        traced: calls of the traced step.
        policy: makes sites out of lines.
    """
    callers: dict[tuple[str, Phase | None, Line | None], Counter[Line]] = {}
    for key, calls in traced.items():
        callers.setdefault((key.op, key.phase, key.line), Counter()).update(calls.callers)
    return [
        Observation(
            rule="NST103",
            op=key.op,
            called_as=key.op,
            phase=key.phase,
            site=_site(key.line, policy),
            module=key.module,
            shapes=tuple(signature_text(signature) for signature in calls.signatures),
            calls=calls.count,
            exact=True,
            bytes=calls.bytes or None,
            witnesses=frozenset({"dispatch"}),
            message=sync_message(key.sync) + _called_from(callers[key.op, key.phase, key.line], policy),
            remedy=_sync_remedy(key.sync, key, policy),
        )
        for key, calls in traced.items()
        if key.sync is not None
    ]


def _called_from(callers: Counter[Line], policy: SitePolicy) -> str:
    """The user's own lines that a library's was called from, the most frequent first."""
    if not callers:
        return ""
    lines = sorted(callers, key=lambda line: (-callers[line], line))
    shown = [f"{policy.display(file)}:{number}" for file, number in lines[:_MOST_CALLERS]]
    more = f" and {len(lines) - _MOST_CALLERS} more lines" if len(lines) > _MOST_CALLERS else ""
    return f" (called from {', '.join(shown)}{more})"


_MOST_CALLERS = 3


def _sync_remedy(cause: str, key: OpKey, policy: SitePolicy) -> str:
    site = _site(key.line, policy)
    library = policy.library(key.line[0]) if key.line else None
    code, in_optimizer = site.code if site else "", key.phase == "optimizer"
    return sync_remedy(cause, code, library, key.module, op=key.op, in_optimizer=in_optimizer)


def operator_rows(
    traced: TracedCalls, torch_device: str, failed: Iterable[str] = (), *, told: bool = True
) -> tuple[OperatorRow, ...]:
    """What the eager run does with each functional overload of the traced step; every call is in a row.

    ``mixed``: some calls ran on the CPU and some did not, or a call reached several kernels of which some did.
    ``host``: no call took or made a tensor of the device.

    Args:
        traced: calls of the traced step.
        torch_device: on ``cpu`` everything is host work, and said to be.
        failed: overloads that raised.
        told: whether a witness could tell where each call ran; ``unknown`` otherwise, and never ``device``.
    """
    outcomes: dict[str, set[_Eager]] = {}
    counts: dict[str, int] = {}
    for key, calls in traced.items():
        name = functional_overload(key.op)
        if key.on_device:
            outcomes.setdefault(name, set()).add(_outcome(key, torch_device) if told else "unknown")
        else:
            outcomes.setdefault(name, set())
        counts[name] = counts.get(name, 0) + calls.count
    for op in failed:
        outcomes[functional_overload(op)] = {"failed"}
    return tuple(
        OperatorRow(
            op=name,
            eager=_one_word(seen),
            compile="not_reached",
            calls_per_step=counts.get(name),
        )
        for name, seen in sorted(outcomes.items())
    )


def reached_the_device(traced: TracedCalls) -> bool:
    """Whether any call of forward or backward computed on the device or fell back from it; copies are not enough."""
    return any(key.phase != "optimizer" and (key.fell_back or computes_on_device(key)) for key in traced)


def is_exact(called_as: str, recorded: str) -> bool:
    """Whether one call reaches the recorded kernel exactly once: both are forms of one op.

    A composite or a ``_foreach_*`` op can reach a kernel of another name any number of times.
    """
    return functional_base(called_as) == functional_base(recorded)


def _traced(
    traced_as: str,
    name: str,
    key: OpKey,
    calls: Calls,
    profile: OperatorProfile | None,
    policy: SitePolicy,
    warned: set[str],
    evidence: Evidence,
) -> Observation:
    counted = evidence.counted_by == "kernels"
    own = is_exact(key.op, name)
    has_kernel = _has_kernel(name, profile, evidence.registry)
    kind = _kind(has_kernel)
    tracked = {"tracker"} & {"tracker" for when in (key.phase, None) if (name, when) in evidence.tracked}
    grounds = _grounds(name, has_kernel, profile)
    return Observation(
        rule="NST101",
        op=name,
        called_as=key.op,
        kind=kind,
        grounds=grounds,
        phase=key.phase,
        site=_site(key.line, policy),
        module=key.module,
        shapes=tuple(signature_text(signature) for signature in calls.signatures),
        calls=calls.kernels[traced_as] if counted else calls.count,
        exact=counted or own,
        bytes=calls.bytes if calls.bytes and (own or _is_foreach_of(key.op, name)) else None,
        # A call that reached several kernels is one time, which nobody can divide better than evenly.
        ms=calls.seconds * 1e3 / len(key.fell_back) if evidence.timed else None,
        witnesses=frozenset({evidence.counted_by, "dispatch"} | tracked | _warning(name, warned)) | _why(kind, profile),
        message=_message(name, has_kernel, grounds, profile),
    )


def _untraced_name(name: str, phase: Phase | None, tracked: set[tuple[str, Phase | None]]) -> str:
    """What the same op is recorded as when no dispatch mode is active.

    A mode can change which overload a composite chooses (``_ctc_loss.Tensor`` for ``_ctc_loss``); untraced steps tell
    the truth.
    """
    names = {other for other, when in tracked if when in (phase, None)}
    if name in names:
        return name
    return min((other for other in names if functional_base(other) == functional_base(name)), default=name)


def _unplaced(
    name: str, phase: Phase | None, profile: OperatorProfile | None, witnesses: frozenset[str], evidence: Evidence
) -> Observation:
    has_kernel = _has_kernel(name, profile, evidence.registry)
    grounds = _grounds(name, has_kernel, profile)
    kind = _kind(has_kernel)
    where = ""
    if phase == "setup":
        again = any(when != "setup" for other, when in evidence.tracked if other == name)
        where = "at setup: " if again else "at setup only: "
    elif evidence.steady is not None and (name, phase) not in evidence.steady and "tracker" in witnesses:
        where = "in the warm-up only: "
    return Observation(
        rule="NST101",
        op=name,
        kind=kind,
        grounds=grounds,
        phase=phase,
        exact=False,
        witnesses=witnesses | _why(kind, profile),
        message=where + _message(name, has_kernel, grounds, profile),
    )


def _message(name: str, has_kernel: bool | None, grounds: Grounds | None, profile: OperatorProfile | None) -> str:
    if has_kernel:
        return f"{name} has a kernel on the device, {WHY_ON_CPU['unknown']}"
    if profile is None or grounds == "measured":
        return f"{name} ran on the CPU"
    if grounds == "reported":
        report = reports()[base_name(name)]
        return (
            f"predicted fallback: {report.op} was seen to run on the CPU of a real device (torch-neuronx"
            f" {report.release}), and the operator profile {profile.name} has no kernel for {name}"
        )
    begin, end = UNLOWERABLE_FALLBACK if grounds == "cannot_lower" else POSSIBLE_FALLBACK
    return f"{begin}the operator profile {profile.name} has no kernel for {name}{end}"


def _grounds(name: str, has_kernel: bool | None, profile: OperatorProfile | None) -> Grounds | None:
    """None for an op that has a kernel in the profile: it fell back on this device, and predicts nothing of another."""
    if profile is None:
        return "measured"
    return None if has_kernel else grounds_for(name, profile)


def _has_kernel(name: str, profile: OperatorProfile | None, registry: Registry) -> bool | None:
    if profile is None:
        return registry.has_kernel(name)
    return profile.is_native(name) or name in profile.recovered_as.values()  # which are recorded of kernels only


def _kind(has_kernel: bool | None) -> Kind:
    """Unknown where there is a kernel, or nobody can tell: why it did not run, the strict witness may say later."""
    return "unimplemented" if has_kernel is False else "unknown"


def _why(kind: Kind, profile: OperatorProfile | None) -> frozenset[str]:
    """Who told the kind. On the emulated device that is the profile, and PyTorch's registry only repeats it."""
    return frozenset({"registry"} if kind == "unimplemented" and profile is None else ())


def _site(line: Line | None, policy: SitePolicy) -> Site | None:
    return policy.site(*line) if line is not None else None


def _one_word(outcomes: set[_Eager]) -> _Eager:
    if not outcomes:
        return "host"
    return next(iter(outcomes)) if len(outcomes) == 1 else "mixed"


def _outcome(key: OpKey, torch_device: str) -> _Eager:
    if torch_device == "cpu":
        return "cpu"
    if not key.fell_back:
        return "device"
    return "cpu" if any(is_exact(key.op, name) for name in key.fell_back) else "mixed"


def _is_foreach_of(called_as: str, recorded: str) -> bool:
    """Whether `called_as` does to each tensor of a list what `recorded` does to one: all of them cross."""
    prefix = "aten::_foreach_"
    return called_as.startswith(prefix) and functional_base("aten::" + called_as.removeprefix(prefix)) == (
        functional_base(recorded)
    )


def _accounted(op: str, phases: set[tuple[str, Phase | None]]) -> bool:
    """Whether another witness knows the op; a warning may name it without overload."""
    return any(op == name or op == name.partition(".")[0] or op == _bare(name) for name, _ in phases)


def _bare(name: str) -> str:
    return name.rpartition("::")[2].partition(".")[0]


def _warning(name: str, warned: set[str]) -> set[str]:
    return {"warnings"} if warned & {name, name.partition(".")[0], _bare(name)} else set()
