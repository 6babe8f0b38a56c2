"""How findings, counts and devices are put into words; what the renderers for people share."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from smoketest.findings.parts import LIMITS_MET
from smoketest.findings.ranks import ranks_text
from smoketest.findings.remedies import LOWERS_WITH, RUNS_IN, is_rewrite
from smoketest.findings.report import Finding, GraphInfo, PartStatus, Report, Site
from smoketest.findings.rules import RULES
from smoketest.findings.wordings import OWN_LOSS

__all__ = [
    "COMPILED",
    "EAGER",
    "GRADES",
    "GROUNDS",
    "KINDS",
    "WITNESSES",
    "against_baseline",
    "amount",
    "by_verdict",
    "cause",
    "checked",
    "clean",
    "compiled",
    "counted",
    "crossing",
    "device",
    "device_note",
    "grounds",
    "judged",
    "met_limits",
    "module_name",
    "modules",
    "phase",
    "pieces",
    "place",
    "problems",
    "profile_note",
    "ranks_text",
    "reached",
    "row",
    "shared_by",
    "size",
    "tested",
    "title",
    "verdict",
    "witnesses",
    "worst_first",
]

_VERDICTS = ("deny", "warn", "allow", None)
_GROUNDS = ("measured", "reported", "cannot_lower", "no_kernel_known", None)
_PHASES = ("forward", "backward", "optimizer", "setup", None)
_LABELS = {
    "NST101": "fallback",
    "NST102": "hidden host work",
    "NST103": "host synchronisation",
    "NST104": "op failure",
    "NST201": "lowering failure",
    "NST202": "graph that cannot be imported",
    "NST204": "graph break",
    "NST205": "recompile",
    "NST206": "dynamic shape",
}
GROUNDS = {
    "measured": "measured on this device",
    "reported": "seen on a real device by others",
    "cannot_lower": "no kernel in the profile, and the op does not lower",
    "no_kernel_known": "no kernel in the profile; a newer release may have one",
}
KINDS = {
    "unimplemented": "no kernel for the op",
    "rejected": "a kernel exists and refused these dtypes, shapes or layouts",
    "recovered": "the kernel's compilation or execution failed and the CPU took over",
    "cpu_kernel": "registered on purpose, runs on the host",
    "unknown": "what was recorded does not tell why",
}
EAGER = {
    "device": "on the device",
    "host": "on CPU tensors only",
    "cpu": "on the CPU",
    "mixed": "on the device and on the CPU",
    "failed": "failed",
    "unknown": "not known where",
    "not_reached": "not called in the traced step",
}
"""What eager did with ops, in the order in which it is told."""

COMPILED = {
    "lowers": "lower",
    "fails": "fail to lower",
    "unknown": "not known",
    "decomposed": "split into other ops",
    "not_reached": "not in what torch.compile captured",
}
"""What the compiler did with ops, in the order in which it is told; `compiled` gives it for a report."""

WITNESSES = {
    "tracker": "torch-neuronx's list of what fell back",
    "warnings": "its warnings",
    "dispatch": "every op call of the traced step",
    "kernels": "which kernels ran",
    "registry": "PyTorch's list of kernels",
    "strict": "what a kernel said when it refused",
    "copies": "copies to the CPU inside ops",
    "exception": "the exception raised",
    "loss": "the loss",
    "gradient": "the gradients",
    "reference": "the same step on plain CPU",
    "output": "the outputs compared",
    "move": "the model before and after its move",
    "loader": "the batches of the data loader",
    "compile_probe": "the compile probe",
    "doctor": "`smoketest doctor`",
}
"""Who saw a finding, in words that need no knowledge of this package; each name of a witness that there is."""

_STAGES = ("captured", "imported", "torch-backend", "stablehlo")
"""The lowering ladder (design, section 5)."""

GRADES = {
    "PUB": "read from public documentation",
    "USER": "reported by users",
    "PRE": "read from a pre-release",
    "INFER": "inferred",
    "EXPORT": "exported from an installed release",
}
"""Grades of evidence in words."""

_ENDED: dict[PartStatus, str] = {
    "ran": "ran",
    "skipped": "skipped",
    "failed": "failed",
    "crashed": "crashed",
    "timed_out": "timed out",
}
_LONGEST_WORD = 40
"""Characters that are given up to end a cut line with a whole word."""

_MOST_MODULES = 4
_MOST_GRAPHS = 4


def clean(text: str, limit: int = 600) -> str:
    """One printable line of at most `limit` characters; what is longer ends at the end of a word, with an ellipsis.

    White space is collapsed; control characters, marks that turn the reading direction, zero-width characters and lone
    surrogates are shown as escapes, so that no text can hide or rearrange what stands around it.
    """
    shown = []
    for character in text[: 4 * limit]:
        category = unicodedata.category(character)
        if character in "\t\n\v\f\r" or category in ("Zl", "Zp", "Zs"):
            shown.append(" ")
        elif category[0] == "C":
            shown.append(character.encode("unicode_escape", "surrogatepass").decode("ascii"))
        else:
            shown.append(character)
    line = " ".join("".join(shown).split())
    return line if len(line) <= limit and len(text) <= 4 * limit else _cut(line, limit)


def _cut(line: str, limit: int) -> str:
    """The words of a line that fit in `limit` characters, and an ellipsis; a single word is cut where it must be."""
    kept = line[: limit - 1]
    blank = kept.rfind(" ")
    if len(line) >= limit and line[limit - 1] != " " and blank >= max(1, len(kept) - _LONGEST_WORD):
        kept = kept[:blank]
    return kept.rstrip(" .,;:(") + "…"


def pieces(text: str, limit: int = 600) -> list[tuple[str, bool]]:
    """One printable line as pieces of prose and of code (True), which stands between single backticks."""
    line = clean(text, limit)
    parts = line.split("`")
    if len(parts) % 2 == 0 or not all(part.strip() for part in parts[1::2]):
        return [(line, False)]
    return [(part, number % 2 == 1) for number, part in enumerate(parts) if part]


def verdict(report: Report) -> str:
    """PASS, FAIL or ERROR."""
    return report.status.upper()


def device(report: Report) -> str:
    """Which device the steps ran on, such as ``the emulated neuron device (operator profile NAME)``."""
    if report.device.kind == "emulated":
        profile = report.device.profile
        return "the emulated neuron device" + (f" (operator profile {clean(profile, 80)})" if profile else "")
    if report.device.kind == "neuron":
        version = report.environment.torch_neuronx
        return f"the neuron device (torch-neuronx {clean(version, 40)})" if version else "the neuron device"
    return "plain CPU"


def device_note(report: Report) -> str:
    """What results from this device are worth, in a sentence."""
    if report.device.kind == "emulated":
        return "Predictions from an operator profile: nothing ran on Trainium hardware."
    if report.device.kind == "neuron" and not report.eager.steps:
        return "No step came to its end on this device, so nothing was measured."
    if report.device.kind == "neuron" and any(row.eager == "unknown" for row in report.operators):
        return "This device does not tell where ops ran, so that is not known; whether they lower is predicted."
    if report.device.kind == "neuron":
        return "Where ops ran was measured on this device; whether they lower is predicted with the public torch-mlir."
    return "Plain CPU runs every op: this says nothing about where ops run on a Trainium device."


def met_limits(report: Report) -> list[str]:
    """Limits of the device that the steps met, a line each: what stands beside the headline, whatever that says."""
    lines = [
        f"A limit of the device is met, which possibly acts on it: {entry.why.partition(': ')[2] or entry.why}"
        for entry in report.not_checked
        if entry.what == LIMITS_MET
    ]
    if report.fit.fits is False:
        lines.append("The job does not fit in the memory of a logical core, by the estimate under Fit and cost.")
    return lines


def surroundings(report: Report) -> list[str]:
    """What the doctor found that is not right, a line each, and how much is."""
    lines = report.environment.lines
    trouble = [
        f"{line.topic} ({line.verdict}): {line.found}; expected: {line.expected}"
        for line in lines
        if line.verdict != "ok"
    ]
    right = [line.topic for line in lines if line.verdict == "ok"]
    return [*trouble, *([f"as expected: {', '.join(dict.fromkeys(right))}"] if right else [])]


def profile_note(report: Report) -> str | None:
    """What the profile is worth, without what `device_note` says already and with its evidence grade in words."""
    note = report.device.profile_note
    if not note:
        return None
    note = note.removesuffix("; a prediction, nothing ran on Trainium")
    return re.sub(r"\((PUB|USER|PRE|INFER|EXPORT), ", lambda found: f"({GRADES[found[1]]}, ", note)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Denied before warned before allowed, firm grounds before weak ones, most bytes and calls first."""
    return sorted(
        findings,
        key=lambda f: (
            _VERDICTS.index(f.verdict),
            _GROUNDS.index(f.grounds),
            f.rule,
            -(f.bytes_per_step or 0),
            -(f.calls_per_step or 0),
            _PHASES.index(f.phase),
            (f.site.file, f.site.line) if f.site else ("", 0),
            f.op or "",
            f.id,
        ),
    )


def by_verdict(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Findings under deny, warn and allow, each worst first; what no gate judged counts as warn."""
    groups: dict[str, list[Finding]] = {"deny": [], "warn": [], "allow": []}
    for finding in worst_first(findings):
        groups[finding.verdict or "warn"].append(finding)
    return groups


def judged(finding: Finding) -> str:
    """The verdict, with what a baseline says, such as ``deny (new)``; a dash where there is none."""
    return (finding.verdict or "-") + (f" ({finding.status})" if finding.status else "")


def title(finding: Finding, report: Report) -> str:
    """What kind of finding it is: *predicted* and *possible* are never left out."""
    return _title(finding, report.device.kind)


def _title(finding: Finding, device_kind: str) -> str:
    label = _LABELS.get(finding.rule, RULES[finding.rule].title if finding.rule in RULES else finding.rule)
    if finding.grounds in ("reported", "cannot_lower"):
        return f"predicted {label}"
    if finding.grounds == "no_kernel_known" or (finding.rule == "NST201" and finding.grounds is None):
        return f"possible {label}"
    if finding.grounds is None and finding.rule.startswith("NST1") and device_kind == "emulated":
        return f"predicted {label}"
    return label


def cause(finding: Finding) -> str:
    """The finding's message; of a guard's without the source and the stack of old reports: the site has the line."""
    if finding.rule != "NST205":
        return finding.message
    first = finding.message.partition("\nUser stack trace")[0]
    return re.sub(r"\s{2,}# .*", "", first, flags=re.DOTALL).strip()


def reached(finding: Finding) -> str | None:
    """How far up the lowering ladder it got; None where that is no question, as for a graph break."""
    if not finding.stage or finding.rule in ("NST204", "NST205", "NST206"):
        return None
    if finding.stage not in _STAGES:
        return finding.stage
    return f"stage {_STAGES.index(finding.stage) + 1} of {len(_STAGES)} ({finding.stage})"


def row(finding: Finding, device_kind: str) -> list[str]:
    """A finding in a few plain lines, the later ones indented: what and where, how often, why, what to do."""
    head = f"{finding.op}: {_title(finding, device_kind)}" if finding.op else _title(finding, device_kind)
    phase = f" in {finding.phase}" if finding.phase else ""
    status = f", {finding.status}" if finding.status else ""
    moved, where = crossing(finding), modules(finding)
    often = amount(finding) + (f", {moved} to and from the host" if moved else "")
    line = place(finding.site) if finding.site else no_place(finding)
    lines = [
        f"{head}{phase} ({finding.rule}{status})",
        f"  {line}{f'  {finding.site.code}' if finding.site and finding.site.code else ''}",
        f"  {often}{f', in {where}' if where else ''}",
        *([f"  {cause(finding)}"] if finding.message else []),
        *([f"  instead: {finding.remedy}"] if finding.remedy and finding.verdict != "allow" else []),
    ]
    return [" " * (len(line) - len(line.lstrip(" "))) + clean(line, 700) for line in lines]


def phase(finding: Finding) -> str:
    """The phase as what stands before the line: of backward, the line is the one that autograd runs it for."""
    return "backward of" if finding.phase == "backward" and finding.site else finding.phase or ""


def witnesses(names: Iterable[str]) -> str:
    """Who saw it, in words."""
    return ", ".join(WITNESSES.get(name, name) for name in sorted(set(names)))


def tested(finding: Finding) -> str | None:
    """What the tests hold of the code in a remedy; None where it holds none, or none that is run by them."""
    if not finding.remedy or not is_rewrite(finding.remedy):
        return None
    return (
        f"Of the first piece of code every op has a kernel in the operator profile {RUNS_IN} and lowers with"
        f" {LOWERS_WITH}, forward and backward; it has not been run on a device."
    )


def grounds(finding: Finding) -> str | None:
    """What the finding stands on, in words."""
    return GROUNDS[finding.grounds] if finding.grounds else None


def place(site: Site | None) -> str:
    """``file:line``, or that no witness could tell."""
    return f"{site.file}:{site.line}" if site else "line not known"


def no_place(finding: Finding) -> str:
    """What stands where a finding has no line: of one about the machine, none is wanted."""
    if finding.class_ == "environment":
        return "the machine"
    return f"{OWN_LOSS} (its key `loss`)" if OWN_LOSS in finding.message else place(None)


def amount(finding: Finding) -> str:
    """How often, such as ``48 calls per step``; ``at least`` where the count is a lower bound.

    What not all of several ranks saw names those that did.
    """
    return _often(finding) + (_on(finding.ranks, finding.ranks_unended) if finding.ranks else "")


def _on(ranks: tuple[int, ...], unended: tuple[int, ...] | None) -> str:
    if not unended:
        return f", on {ranks_text(ranks)} only"
    whose = "its" if len(unended) == 1 else "their"
    return f", seen on {ranks_text(ranks)} ({ranks_text(unended)} did not come to {whose} end)"


def _often(finding: Finding) -> str:
    count = finding.calls_per_step
    if finding.class_ == "environment" or (count is None and finding.class_ in ("non_finite", "parity", "moved")):
        return "in the whole run"
    if count is None:
        return "count not known"
    if finding.rule == "NST205" and finding.exact is None:
        return f"compiled again {count:,} {'time' if count == 1 else 'times'}"
    if finding.rule.startswith("NST2") and finding.exact is None:  # breaks, compiles, inputs: no calls of an op
        unit = ("time", "times")
    else:
        unit = ("call at setup", "calls at setup") if finding.phase == "setup" else ("call per step", "calls per step")
    least = "at least " if finding.exact is False else ""
    return f"{least}{count:,} {unit[count != 1]}"


def crossing(finding: Finding) -> str | None:
    """The bytes that cross between device and host, such as ``1.5 MiB per step``."""
    if finding.bytes_per_step is None:
        return None
    least = "at least " if finding.exact is False else ""
    return f"{least}{size(finding.bytes_per_step)} {'at setup' if finding.phase == 'setup' else 'per step'}"


def size(count: int) -> str:
    """A number of bytes as B, KiB, MiB or GiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} GiB"


def modules(finding: Finding) -> str:
    """The module patterns, most calls first; the model itself has no name of its own."""
    names = [module_name(calls.pattern) for calls in finding.modules]
    more = f" and {len(names) - _MOST_MODULES} more" if len(names) > _MOST_MODULES else ""
    return ", ".join(names[:_MOST_MODULES]) + more


def module_name(pattern: str) -> str:
    """The name of a module, or of modules that a pattern stands for."""
    return pattern or "(the model itself)"


def checked(report: Report) -> list[str]:
    """What was looked at, one sentence a part."""
    lines = [shared_by(report)] if report.ranks is not None else []
    lines += [f"Eager part: {_ended(report.eager.status, _reason(report, report.eager.reason))}{_steps(report)}"]
    times = _times(report)
    if times:
        lines.append(times)
    if report.eager.continued_past:
        lines.append(f"The run went on past ops that the device would have stopped at: {_list(report)}.")
    probed = _ended(report.compile.status, _reason(report, report.compile.reason))
    lines.append(f"Compile probe: {probed}{_probe(report)}")
    if report.parity.status != "skipped":
        lines.append(f"Comparison with CPU: {_ended(report.parity.status, report.parity.reason)}{_parity(report)}")
    rows, compared = _operators(report), against_baseline(report)
    return [*lines, *([rows] if rows else []), *([compared] if compared else [])]


def shared_by(report: Report) -> str:
    """How many made the steps, and what the numbers are of."""
    parallel = report.workload.parallel or {}
    kind = parallel.get("kind")
    how = f" ({clean(kind, 20)})" if isinstance(kind, str) else ""
    made = bool(report.eager.steps or report.findings or report.operators)
    text = f"{report.ranks} ranks{how}" + (": counts are per step and rank, losses the mean over them" if made else "")
    keys = (("split_over_ranks", "split over the ranks"), ("whole_on_each", "whole on each"))
    told = [
        f"{label}: {clean(', '.join(map(str, names)), 200)}"
        for key, label in keys
        if isinstance(names := parallel.get(key), list) and names
    ]
    return f"{text}{'. The batch is ' if told else ''}{'; '.join(told)}."


def problems(report: Report) -> list[tuple[str, list[str]]]:
    """The parts that came to no end, with all lines of why: a dead worker's last words, the user's own frames."""
    parts = (("Eager part", report.eager), ("Compile probe", report.compile), ("Comparison with CPU", report.parity))
    return [
        (name, [_line(line) for line in part.reason.splitlines()[:200]])
        for name, part in parts
        if part.status in ("failed", "crashed", "timed_out") and part.reason and "\n" in part.reason.strip()
    ]


def _line(line: str) -> str:
    """One line of a traceback, its indentation kept."""
    return " " * min(len(line) - len(line.lstrip(" ")), 20) + clean(line, 300)


def _reason(report: Report, reason: str | None) -> str | None:
    """The first line of why a part ended early, unless it is in the headline; `problems` has all of it."""
    first = (reason or "").partition("\n")[0]
    return first if first and not report.headline.startswith(first) else None


def _list(report: Report) -> str:
    return ", ".join(report.eager.continued_past)


def _ended(status: PartStatus, reason: str | None) -> str:
    word, why = _ENDED[status], (reason or "").rstrip(".")
    if why.startswith(word):
        return why
    return f"{word} ({why})" if why else word


def _steps(report: Report) -> str:
    eager = report.eager
    roles: Counter[str] = Counter(step.role for step in eager.steps)
    steps = [
        f"{roles[role]} {name}" for role, name in (("warmup", "warm-up"), ("timed", "timed"), ("traced", "traced"))
    ]
    text = f"; steps: {', '.join(steps)}" if eager.steps else "; no step was completed"
    if eager.op_calls is not None:
        text += f"; {eager.op_calls:,} op calls in the traced step"
        if eager.distinct_ops is not None:
            text += f", of {counted(eager.distinct_ops, 'overload')} as dispatched"
        if eager.host_calls:
            text += f" ({eager.host_calls:,} of the calls on CPU tensors only)"
    return text + "."


def _times(report: Report) -> str | None:
    parts = []
    for name in ("forward", "backward", "optimizer"):
        values = [value for step in report.eager.steady() if (value := getattr(step, f"{name}_ms")) is not None]
        if values:
            parts.append(f"{name} {median(values):.1f} ms")
    if not parts:
        return None
    where = "" if report.device.kind == "neuron" else ", on this machine's CPU: not what Trainium takes"
    return f"Time per step: {', '.join(parts)} (median of the timed steps{where}).{_compiling(report)}"


def _compiling(report: Report) -> str:
    """In which steps the device compiled, and how long those took; nothing where it is not known to have."""
    busy = [step for step in report.eager.steps if step.compiling]
    if not busy:
        return ""
    times = [
        sum(value for value in (step.forward_ms, step.backward_ms, step.optimizer_ms) if value is not None) / 1e3
        for step in busy
    ]
    told = ", ".join(
        f"step {step.index + 1} ({step.role}, {seconds:.1f} s)" for step, seconds in zip(busy, times, strict=True)
    )
    timed = [step for step in report.eager.steps if step.role == "timed"]
    if timed and all(step.compiling for step in timed):
        return f" The device compiled in {told}: no timed step is free of it, so raise training.warmup."
    left_out = " Such timed steps are left out of the median." if any(step.role == "timed" for step in busy) else ""
    return f" The device compiled in {told}.{left_out}"


def _probe(report: Report) -> str:
    part = report.compile
    parts = []
    if part.graphs:
        nodes = sum(graph.nodes for graph in part.graphs)
        parts.append(f"{counted(len(part.graphs), 'graph')} of {counted(nodes, 'node')} in all{_whole(part.graphs)}")
        parts.extend(_executed(part.graphs))
    elif part.status == "ran":
        parts.append("no graph was captured, so nothing was lowered")
    if part.ops_probed is not None and (part.graphs or part.ops_probed):
        unknown = f", {part.ops_unknown:,} unknown" if part.ops_unknown else ""
        parts.append(
            f"{part.ops_probed:,} distinct ops (told apart by shapes and dtypes) lowered one by one:"
            f" {part.ops_failed or 0:,} failed{unknown}"
        )
    for value, noun in (
        (part.graph_breaks, "graph break"),
        (part.skipped_frames, "skipped frame"),
        (part.recompiles, "recompile"),
    ):
        if value:
            parts.append(counted(value, noun))
    return f"; {', '.join(parts)}." if parts else "."


def _executed(graphs: Sequence[GraphInfo]) -> Iterator[str]:
    """How long the graphs took that a device compiled and ran."""
    first = {graph.id: graph.first_ms for graph in graphs if graph.first_ms is not None}
    if not first:
        return
    slowest = max(first, key=lambda graph: first[graph])
    steady = sum(graph.steady_ms for graph in graphs if graph.steady_ms is not None)
    yield (
        f"{counted(len(first), 'graph')} run on the device: {sum(first.values()) / 1e3:,.1f} s to compile and first run"
        f" them (most for {slowest}, {first[slowest] / 1e3:,.1f} s), {steady:,.1f} ms later"
    )


def _whole(graphs: Sequence[GraphInfo]) -> str:
    """How the graphs ended as a whole, those that do not lower by name."""
    ended: Counter[str] = Counter(graph.status for graph in graphs)
    parts = [
        f"{ended[status]:,} {word}"
        for status, word in (
            ("lowered", "lowered whole"),
            ("failed", "failed"),
            ("unknown", "unknown"),
            ("not_reached", "not tried whole"),
        )
        if ended[status]
    ]
    bad = [f"{g.id}, which got as far as {g.stage}" if g.stage else g.id for g in graphs if g.status == "failed"]
    more = [f"{len(bad) - _MOST_GRAPHS} more"] if len(bad) > _MOST_GRAPHS else []
    named = f" (failed: {'; '.join([*bad[:_MOST_GRAPHS], *more])})" if bad else ""
    return f": {', '.join(parts)}{named}"


def _parity(report: Report) -> str:
    if report.parity.max_relative_error is None:
        return "."
    losses = f"; losses of {report.parity.steps} steps, largest relative error {report.parity.max_relative_error:.1e}"
    tolerated = ""
    if report.parity.tolerance is not None and report.parity.precision is not None:
        tolerated = f"; {report.parity.tolerance:.1e} is tolerated, and what rounding of {report.parity.precision} does"
    if report.parity.tensors is None:
        return f"{losses}; no tensors{tolerated}."
    return f"{losses}; {counted(report.parity.tensors, 'tensor')} of the traced step{tolerated}."


def against_baseline(report: Report) -> str | None:
    """The baseline compared with, what the findings are against it, and what keeps the two from being comparable."""
    if report.baseline.file is None:
        return None
    counts: Counter[str] = Counter(finding.status or "" for finding in report.findings)
    counts["fixed"] = len(report.baseline.fixed)
    told = ", ".join(f"{counts[name]:,} {name}" for name in ("new", "worse", "known", "fixed") if counts[name])
    note = f" ({report.baseline.note})" if report.baseline.note else ""
    return f"Against the baseline {clean(report.baseline.file, 200)}: {told or 'nothing on either side'}{note}."


def _operators(report: Report) -> str | None:
    if not report.operators:
        return None
    eager: Counter[str] = Counter(row.eager for row in report.operators)
    predicted = " (predicted)" if report.device.kind == "emulated" else ""
    skipped = report.compile.status == "skipped"
    whose = "of the eager part" if skipped else "of both parts"
    text = (
        f"Operators {whose}, in-place and out variants counted with their functional overload:"
        f" {len(report.operators):,}. Eager{predicted}: {_tally(eager, EAGER)}."
    )
    if skipped:
        return text
    states: Counter[str] = Counter(row.compile for row in report.operators)
    return f"{text} Compiled: {_tally(states, compiled(report))}."


def compiled(report: Report) -> dict[str, str]:
    """`COMPILED` for a report: of a probe that came to no end nobody knows what it would have captured."""
    return COMPILED if report.compile.status == "ran" else COMPILED | {"not_reached": "not reached"}


def _tally(counts: Counter[str], names: Mapping[str, str]) -> str:
    return ", ".join(f"{counts[key]:,} {name}" for key, name in names.items() if counts[key])


def counted(number: int, noun: str) -> str:
    """A number and what is counted, such as ``1 graph`` or ``2 graphs``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
