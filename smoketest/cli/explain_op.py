"""What is known of an op without running anything: kernels, lowering, reports, and what to write instead."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from smoketest.findings.identity import functional_base
from smoketest.findings.modules import module_for
from smoketest.findings.remedies import REWRITES, alike, remedy_for
from smoketest.operators.evidence import (
    Report,
    base_name,
    cannot_lower,
    composites,
    grounds_for,
    known_ops,
    reports,
    without_cpu_kernel,
)
from smoketest.operators.profile import OperatorProfile
from smoketest.operators.reported_lowering import lowering_reports
from smoketest.render.words import GRADES

__all__ = ["explain_op", "near_ops", "op_name"]

_MOST = 12
_NOTHING = ("No fallback is predicted", "Nothing is predicted", "Its own name")
_COMPOSITE = "composite: PyTorch computes it with other ops, and those are what runs and what a report counts"
_OF_OTHER_DEVICES = ("cudnn_", "miopen_", "mkldnn_", "_cudnn_", "_miopen_", "_mkldnn_", "_mps_")


def op_name(text: str) -> str:
    """The functional op a person means: ``sort``, ``torch.sort``, ``aten.sort.default`` are ``aten::sort``."""
    name = text.strip().removeprefix("torch.ops.")
    name = re.sub(r"^(torch|aten)\.(?=\w)", "", name)
    return functional_base(name)


def explain_op(op: str, profiles: Sequence[OperatorProfile], *, width: int = 80) -> str | None:
    """The facts on a functional op as text of at most `width` columns; None where nothing is known of it.

    Args:
        op: as `op_name` gives it.
        profiles: the operator profiles to look in.
        width: columns.
    """
    remedy, seen = remedy_for(op), [*map(_reported, _reports_of(op)), *_reported_lowering(op)]
    known = remedy or seen or op in cannot_lower() or any(op in _bases(profile) for profile in profiles)
    if not (known or op in known_ops()):
        return None
    lines = [op]
    worth = [line for profile in profiles for line in _worth(op, profile)]
    nothing_to_do = remedy is None and all(line.startswith(_NOTHING) for line in worth)
    for heading, paragraphs in (
        ("Kernel on the device", [line for profile in profiles for line in _kernels(op, profile)]),
        ("Lowering under torch.compile", list(_lowering(op, profiles))),
        ("Reported from real devices", seen),
        ("What a finding of it is worth", worth),
        ("Instead", [] if nothing_to_do else list(_instead(op, remedy))),
    ):
        if not paragraphs:
            continue
        lines += ["", heading, *(line for text in paragraphs for line in _wrap(text, width))]
    if module := module_for(op):
        lines += [
            "",
            "Whole code, tested in the same way",
            *("  " + line if line else "" for line in module.splitlines()),
        ]
    return "\n".join(lines) + "\n"


def near_ops(op: str, profiles: Sequence[OperatorProfile]) -> list[str]:
    """Ops of a like name of which something is known, nearest first: ``native_batch_norm`` for ``batch_norm``."""
    import difflib

    known = set(reports()) | set(cannot_lower()) | {f"aten::{name}" for name in REWRITES}
    known = known.union(*(_bases(profile) for profile in profiles))
    name = op.partition("::")[2]
    names = sorted(other.removeprefix("aten::") for other in known - {op})
    names = [other for other in names if not other.startswith(_OF_OTHER_DEVICES)]
    inside = sorted(
        (other for other in names if len(name) > 3 and name in other), key=lambda other: (len(other), other)
    )
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.75)
    return [f"aten::{other}" for other in dict.fromkeys([*inside, *close])][:6]


def _bases(profile: OperatorProfile) -> set[str]:
    names = (profile.native, profile.reaches, profile.unimplemented, profile.view_whitelist, profile.decompositions)
    return {base_name(name) for group in names for name in group}


def _of(op: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if base_name(name) == op)


def _reports_of(op: str) -> list[Report]:
    return [report for report in reports().values() if report.op == op]


def _kernels(op: str, profile: OperatorProfile) -> Iterator[str]:
    """Which overloads the profile's release runs itself, and which it leaves to the CPU."""
    native, missing = _of(op, profile.native), _of(op, profile.unimplemented)
    through = {name: profile.reached(name) for name in _of(op, profile.reaches)}
    yield f"{profile.name} ({GRADES[profile.grade]}, {profile.date}, PyTorch {profile.torch_version}):"
    if native:
        yield f"  has a kernel for {_list(native)}"
    if missing:
        yield f"  has none for {_list(missing)}"
    for reached in sorted(set(through.values())):
        what = "the device runs" if reached in profile.native else "the CPU runs"
        yield f"  {_list([name for name, to in through.items() if to == reached])}: {what} {reached}"
    if views := _of(op, profile.view_whitelist):
        yield f"  views, for which nothing is recorded: {_list(views)}"
    if not (native or missing or through or views):
        near = near_ops(op, [profile])
        others = f" ({', '.join(near)}?)" if near else ""
        if op in composites():
            yield f"  does not name it. A {_COMPOSITE}{others}"
        else:
            yield f"  does not name it; PyTorch may take it apart into others before the device sees it{others}"
    yield f"  {profile.note}"


def _lowering(op: str, profiles: Sequence[OperatorProfile]) -> Iterator[str]:
    """What is known of lowering, by what reports judge by; that an op is in no table is not knowledge."""
    table = cannot_lower()
    failed = [report for report in lowering_reports() if report.op == op]
    apart = [(name, profile) for profile in profiles for name in _of(op, profile.decompositions)]
    for report in failed:
        unless = "where the public torch-mlir refuses it"
        if report.sentence:
            unless += f' with "{report.sentence}"'
        yield f"It fails {unless}: so it did on a real device (below). A finding of that is denied by default."
    if op in table:
        seen = table[op].get("seen_as") if isinstance(table[op], dict) else None
        yield (
            "It does not lower: after the backend's and PyTorch's core decompositions, the public torch-mlir"
            " does not know " + (f"{seen}." if seen else "it.")
        )
        for profile in profiles:
            if native := _of(op, profile.native):
                yield (
                    f"{profile.name} lists a kernel for {_list(native)}, so a release may lower it: with that profile a"
                    " finding of it is a warning."
                )
    elif op in composites() and not apart:
        yield (
            "It is a composite: torch.compile captures the ops that it is made of, and those lower or do not. The"
            " compile probe of a check tells it."
        )
        yield from _made_of(op, profiles)
    elif apart:
        yield "It lowers where the ops do that the backend makes of it."
    elif failed:
        pass
    elif table:
        yield (
            f"Not known; it is not among the {len(table)} ops without a kernel that were found not to lower. The"
            " compile probe of a check tells it for your shapes and dtypes."
        )
    else:
        yield "Not known: there is no table of ops that cannot be lowered. The compile probe of a check tells it."
    for name, profile in apart:
        whose = profile.decompositions[name]
        yield f"The backend takes {name} apart first ({whose} decomposition; {profile.name})."
    for profile in profiles:
        for entry in profile.known_unsupported:
            if re.search(rf"{re.escape(op)}(?![\w.])", entry.op):
                yield f"Known to be refused: {entry.op}: {entry.why} ({profile.name})."


def _made_of(op: str, profiles: Sequence[OperatorProfile]) -> Iterator[str]:
    """What is known of the ops that a composite is told together with, those of which anything is."""
    for other in alike(op):
        if other in composites():
            continue
        if other in cannot_lower() or any(report.op == other for report in lowering_reports()):
            yield f"{other}, which it may become: {' '.join(_lowering(other, profiles))}"


def _reported(report: Report) -> str:
    return (
        f"{_list(list(report.names))} ran on the CPU under torch-neuronx {report.release}"
        f" ({report.source}; {report.grade})"
    )


def _reported_lowering(op: str) -> Iterator[str]:
    """Failures to compile on a real device, which the compile probe judges by."""
    for report in lowering_reports():
        if report.op == op:
            yield (
                f"failed to compile under torch-neuronx {report.release}: {report.said}"
                f" ({report.source}; {report.grade})"
            )


def _worth(op: str, profile: OperatorProfile) -> Iterator[str]:
    """The grounds a predicted fallback would have, overload by overload."""
    if op in composites() and op not in _bases(profile):
        for other in alike(op):
            if other in _bases(profile):
                yield from (f"As {line}" for line in _worth(other, profile))
    recorded = set(_of(op, profile.unimplemented))
    recorded |= {name for other in _of(op, profile.reaches) if (name := profile.fallback_name(other))}
    worth = {
        "reported": "predicted fallback, seen on a real device: denied by default",
        "cannot_lower": "predicted fallback, no kernel known and no lowering: denied by default",
        "no_kernel_known": "possible fallback, a newer release may have a kernel: a warning by default",
    }
    groups: dict[str, list[str]] = {}
    if op in without_cpu_kernel() and recorded - set(profile.native):
        yield (
            f"{_list(sorted(recorded - set(profile.native)))}: predicted op failure: there is no kernel for the CPU"
            f" either, so it cannot fall back: denied by default (NST104, {profile.name})."
        )
        return
    for name in sorted(recorded - set(profile.native)):
        groups.setdefault(grounds_for(name, profile), []).append(name)
    if not groups and op in _bases(profile):
        against = ", whatever was reported: it lists a kernel" if _reports_of(op) else ""
        yield f"No fallback is predicted with {profile.name}{against}."
    elif not groups:
        yield f"Nothing is predicted of it under this name with {profile.name}."
    for grounds, names in groups.items():
        yield f"{_list(names)}: {worth[grounds]} (NST101, {profile.name})."


def _instead(op: str, remedy: str | None) -> Iterator[str]:
    if remedy is None:
        yield "No remedy of its own is known. `smoketest explain NST101` says what can be done about any fallback."
        return
    yield remedy
    if op.partition("::")[2] in REWRITES:
        yield (
            "(The first piece of code is tested: it gives what the op gives, but for the differences named here, does"
            " not fall back, and lowers.)"
        )


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


def _wrap(text: str, width: int) -> list[str]:
    indent = "  " + " " * (len(text) - len(text.lstrip(" ")))
    return textwrap.wrap(
        text.strip(), width, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=True,
        break_on_hyphens=False,
    )  # fmt: skip
