"""From single observations to findings: one per (rule, op, phase, site)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from smoketest.findings.identity import finding_id, functional_base, module_patterns
from smoketest.findings.remedies import remedy_at, remedy_for
from smoketest.findings.report import Finding, Grounds, Kind, ModuleCalls, Phase, Site
from smoketest.findings.rules import RULES

__all__ = ["Observation", "merge"]

MAX_SHAPES = 8
_ABOUT_AN_OP = ("NST101", "NST104", "NST201", "NST206")
_COMPLEX = ("c64[", "c128[")
_GROUNDS_FIRM_FIRST = ("measured", "reported", "cannot_lower", "no_kernel_known", None)


@dataclass(frozen=True)
class Observation:
    """What witnesses saw of one op (or break, or graph) at one place in one module.

    Attributes:
        rule: id of the rule, such as ``NST101``.
        op: overload name as recorded (``aten::sort.values_stable``); None where no op is meant.
        called_as: what the user's call dispatched (``aten::sort``).
        kind: fallback kind; None where it does not apply.
        grounds: what a prediction stands on.
        phase: forward, backward, optimizer or setup; None when not known.
        site: the user's line; None when not known.
        module: qualified name of the nn.Module (``h.0.attn``); None when not known.
        shapes: signatures seen, such as ``f32[4, 128], i64[4]``.
        calls: calls in the step (of breaks, compiles and graph inputs: how often).
        exact: False where `calls` is a lower bound.
        bytes: bytes that crossed between device and host in the step; None when not known.
        ms: milliseconds its calls took in the step, the device waited for around each; None but on a real device.
        witnesses: names of the witnesses that saw it.
        stage: the last stage of the lowering ladder it reached.
        message: one sentence.
        remedy: what to do, where the rule's own sentence can be bettered.
    """

    rule: str
    op: str | None = None
    called_as: str | None = None
    kind: Kind | None = None
    grounds: Grounds | None = None
    phase: Phase | None = None
    site: Site | None = None
    module: str | None = None
    shapes: tuple[str, ...] = ()
    calls: int | None = None
    exact: bool | None = None
    bytes: int | None = None
    ms: float | None = None
    witnesses: frozenset[str] = frozenset()
    stage: str | None = None
    message: str = ""
    remedy: str | None = None


_Key = tuple[str, str, str, int, str]


def merge(observations: Iterable[Observation]) -> tuple[Finding, ...]:
    """Join observations of the same (rule, op, phase, site) and give every finding its id.

    The result is sorted by rule, phase, file, line and op, and does not depend on the order of `observations`.
    """
    groups: dict[_Key, list[Observation]] = {}
    for seen in observations:
        groups.setdefault(_key(seen), []).append(seen)
    ordinals: Counter[tuple[str, ...]] = Counter()
    findings = []
    for key in sorted(groups):
        finding = _join(groups[key])
        file, code = (finding.site.file, finding.site.code) if finding.site else ("", "")
        equals = (finding.rule, functional_base(finding.op or ""), finding.phase or "", file, code.strip())
        identity = finding_id(finding.rule, finding.op, finding.phase, file, code, ordinals[equals])
        ordinals[equals] += 1
        findings.append(finding.model_copy(update={"id": identity}))
    return tuple(findings)


def _key(seen: Observation) -> _Key:
    file, line = (seen.site.file, seen.site.line) if seen.site else ("", 0)
    return (seen.rule, seen.phase or "", file, line, seen.op or "")


def _join(group: list[Observation]) -> Finding:
    first = max(group, key=_weight)
    modules: Counter[str] = Counter()
    for seen in group:
        if seen.module is not None:
            modules[seen.module] += 1 if seen.calls is None else seen.calls
    shapes = sorted({shape for seen in group for shape in seen.shapes})
    return Finding(
        id="",
        rule=first.rule,
        class_=RULES[first.rule].class_,
        op=first.op,
        called_as=first.called_as,
        kind=first.kind,
        grounds=min((seen.grounds for seen in group), key=_GROUNDS_FIRM_FIRST.index),
        phase=first.phase,
        site=first.site,
        modules=tuple(ModuleCalls(pattern=p, calls=c) for p, c in module_patterns(modules)),
        shapes=tuple(shapes[:MAX_SHAPES]),
        calls_per_step=_sum(seen.calls for seen in group),
        exact=_exact(group),
        bytes_per_step=_sum(seen.bytes for seen in group),
        ms_per_step=_milliseconds(group),
        witnesses=tuple(sorted({name for seen in group for name in seen.witnesses})),
        stage=first.stage,
        message=first.message,
        remedy=first.remedy or _remedy(first),
    )


def _weight(seen: Observation) -> tuple[int, str]:
    """Most calls first; then any order, as long as it is the same whatever order the observations came in."""
    return (seen.calls or 0, repr(replace(seen, shapes=tuple(sorted(seen.shapes)), witnesses=frozenset())))


def _remedy(seen: Observation) -> str:
    """The own remedy of the op called where its place in the code is the question, else the rule's.

    Of an op that has none, and that met complex numbers, these are the question: a product of real ones does lower.
    """
    if seen.op is None or seen.rule not in _ABOUT_AN_OP:
        return RULES[seen.rule].remedy
    is_complex = any(dtype in shape for shape in seen.shapes for dtype in _COMPLEX)
    own = remedy_at(seen.op, seen.called_as, seen.site.code if seen.site else "") or (
        remedy_for("aten::polar") if is_complex else None
    )
    return own or RULES[seen.rule].remedy


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _milliseconds(group: list[Observation]) -> float | None:
    """The sum, to a microsecond; None unless the time of each was taken."""
    known = [seen.ms for seen in group if seen.ms is not None]
    return round(sum(known), 3) if len(known) == len(group) else None


def _exact(group: list[Observation]) -> bool | None:
    """False where any count is a lower bound, or is missing beside others that are known."""
    counted = [seen.calls is not None for seen in group]
    if any(counted) and not all(counted):
        return False
    known = [seen.exact for seen in group if seen.exact is not None]
    return all(known) if known else None
