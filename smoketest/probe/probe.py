"""The compile probe: every op of a training step that does not lower, not only the first one.

Capture the graphs, lower every distinct (op, shapes, dtypes, scalars) alone, lower whole what has no failing op, and
say what torch.compile left out of its graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from torch import nn

from smoketest.findings import Finding, NotChecked, Observation, SitePolicy, merge
from smoketest.findings.parts import STEPS_NOT_COMPILED
from smoketest.findings.report import GraphInfo
from smoketest.operators.decompositions import decomposition_table
from smoketest.operators.functional import functional_overload
from smoketest.operators.profile import OperatorProfile
from smoketest.probe import observe, observe_values
from smoketest.probe.cache import CachedLowering, Lowers, cache_file
from smoketest.probe.capture import Capture, CapturedGraph, CaptureError, RunStep, capture, function_in_words
from smoketest.probe.graphs import (
    GraphSpec,
    HigherOrder,
    NodeSpec,
    Ref,
    Symbolic,
    TensorSpec,
    cut_out,
    gives_nothing,
    inline,
    inputs_of,
    one_op,
    signature,
    values,
)
from smoketest.probe.limits import Hit, limits
from smoketest.probe.lower import CannotStart, Lowered, missing_reason
from smoketest.probe.lowering_worker import STAGES, Answer
from smoketest.probe.prepare import lowerable
from smoketest.probe.repro import FailingGraph, Key
from smoketest.probe.verdict import Judge, Outcome, Verdict, what_happened, worst

__all__ = ["NodeCounts", "ProbeResult", "probe"]

OnProgress = Callable[[str, int, int], None]
NodeOutcome = Literal["lowered", "failed", "unknown", "not_reached"]
_AS_NODE: Mapping[Outcome, NodeOutcome] = {
    "lowers": "lowered",
    "decomposed": "lowered",
    "unknown": "unknown",
    "fails": "failed",
}

_MOST_IN_COMPANY = 8
"""How many nodes of one graph that are refused in company only are looked for."""

_IN_EAGER = {
    f"aten::{name}": "aten::native_batch_norm"
    for name in (
        "_batch_norm_no_update",
        "_batch_norm_with_update",
        "_batch_norm_with_update_functional",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit.no_stats",
        "_native_batch_norm_legit_functional",
        "_native_batch_norm_legit_no_training",
    )
}
"""Ops that AOTAutograd's functionalization puts in the place of another, by what eager mode dispatches instead."""


@dataclass(frozen=True)
class NodeCounts:
    """What became of the nodes of one graph that call something; they add up to `total`."""

    lowered: int = 0
    failed: int = 0
    unknown: int = 0
    not_reached: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.lowered + self.failed + self.unknown + self.not_reached


@dataclass(frozen=True, repr=False)
class ProbeResult:
    """What the probe found. Its text is a summary for people.

    Attributes:
        graphs: every captured graph and how far it got.
        nodes: by graph id, what became of its nodes.
        observations: for `smoketest.findings.merge`.
        ops_probed: distinct (op, shapes, dtypes, scalars) that were lowered; failed and unknown ones among them below.
        operators: by functional overload, as the user's code called it: the worst of what became of its pieces.
        graph_breaks: how often Dynamo ended a graph and began another.
        skipped_frames: functions it left to plain Python.
        recompiles: functions compiled once more.
        failing: the graphs that were refused, for repro files (`smoketest.probe.repro.write`).
        specs: every captured graph by its id, where a device that compiles the same step numbers its graphs alike.
        lowering_skipped: why nothing was lowered, with what to type; None where it was.
        not_checked: what this result says nothing about.
        failed: what the first step raises with and without torch.compile, so that the step was not seen whole; None
            where it came to its end or the compiler is what ended it.
    """

    graphs: tuple[GraphInfo, ...] = ()
    nodes: Mapping[str, NodeCounts] = field(default_factory=dict)
    observations: tuple[Observation, ...] = ()
    ops_probed: int = 0
    ops_failed: int = 0
    ops_unknown: int = 0
    operators: Mapping[str, Outcome] = field(default_factory=dict)
    graph_breaks: int = 0
    skipped_frames: int = 0
    recompiles: int = 0
    failing: Mapping[Key, FailingGraph] = field(default_factory=dict, repr=False)
    specs: Mapping[str, GraphSpec] = field(default_factory=dict, repr=False)
    lowering_skipped: str | None = None
    not_checked: tuple[NotChecked, ...] = ()
    failed: str | None = None

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """One finding per (rule, op, phase, line); no gate has judged them."""
        return merge(self.observations)

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        count = Counter[str]()
        for nodes in self.nodes.values():
            count.update(lowered=nodes.lowered, failed=nodes.failed, unknown=nodes.unknown, missed=nodes.not_reached)
        yield (
            f"{len(self.graphs)} graphs of {count.total()} nodes: {count['lowered']} lowered, "
            f"{count['failed']} failed, {count['unknown']} unknown, {count['missed']} not reached"
        )
        yield f"{self.graph_breaks} graph breaks, {self.skipped_frames} skipped frames, {self.recompiles} recompiles"
        for finding in self.findings:
            place = f"{finding.site.file}:{finding.site.line}" if finding.site else "no line known"
            yield f"{place}: {finding.rule} ({finding.phase}) {finding.message}"
        yield from (f"not checked: {note.what}: {note.why}" for note in self.not_checked)


def probe(
    model: nn.Module,
    run_step: RunStep,
    *,
    profile: OperatorProfile,
    site_policy: SitePolicy,
    steps: int = 1,
    fullgraph: bool = False,
    op_timeout: float = 120.0,
    on_progress: OnProgress | None = None,
    process: Lowers | None = None,
) -> ProbeResult:
    """Probe the training step of `model`.

    Args:
        model: on its device; unchanged afterwards (see `capture`).
        run_step: called with the compiled model and the index of a step; does forward, loss and backward.
        profile: the operator profile predictions stand on.
        site_policy: chooses the user's line among frames.
        steps: how many steps are captured, each with its own batch.
        fullgraph: as for torch.compile.
        op_timeout: seconds for lowering one graph.
        on_progress: called with (what, done, total).
        process: where graphs are lowered, left running; one of its own behind the cache on disk by default.
    """
    tell = on_progress or (lambda what, done, total: None)
    missing = missing_reason() if process is None else None
    with CachedLowering(cache_file()) if process is None else nullcontext(process) as running:
        if missing is None:
            running.start()  # beside the capture
        tell("capture", 0, 1)
        table = decomposition_table(profile.decompositions)
        seen = capture(model, run_step, steps=steps, fullgraph=fullgraph, decompositions=table)
        tell("capture", 1, 1)
        sweep = _Sweep(seen, site_policy)
        if missing is None:
            try:
                sweep.lower(running, Judge(running, profile, op_timeout), tell)
            except CannotStart as error:  # a torch-mlir that does not fit, such as the one torch-neuronx brings
                missing = f"the installed torch-mlir cannot be used: {error}"
    around = [
        *observe.around_the_graphs(seen, fullgraph, site_policy),
        *observe_values.inputs(seen.inputs, site_policy),
        *(found for graph in seen.graphs for found in observe_values.doubles(graph, site_policy)),
        *(found for graph in seen.graphs for found in observe_values.large_integers(graph, site_policy)),
    ]
    return ProbeResult(
        graphs=tuple(sweep.info(graph) for graph in seen.graphs),
        nodes={graph.id: sweep.counts(graph) for graph in seen.graphs},
        observations=tuple(observe.counted([*sweep.observations, *around])),
        ops_probed=len(sweep.verdicts),
        ops_failed=sum(verdict.outcome == "fails" for verdict in sweep.verdicts.values()),
        ops_unknown=sum(verdict.outcome == "unknown" for verdict in sweep.verdicts.values()),
        operators=sweep.operators(),
        graph_breaks=len(seen.breaks),
        skipped_frames=len(seen.skipped),
        recompiles=len(seen.recompiles),
        failing=sweep.failing,
        # With allow_rnn, which only the probe sets, Dynamo makes other graphs than the device is given.
        specs={} if seen.recurrent else {graph.id: graph.spec for graph in seen.graphs},
        lowering_skipped=missing,
        not_checked=tuple(_not_checked(seen, sweep, missing, steps)),
        failed=_failed(seen.error, steps),
    )


class _Sweep:
    """Lowers what was captured and keeps what became of every node.

    Attributes:
        verdicts: by signature of the op alone.
        observations: of nodes and graphs.
        upstream: ops that torch-mlir itself broke on, and how.
        lost: whole graphs that it broke on, by id, and how.
        failing: one refused graph for each finding there will be.
    """

    def __init__(self, seen: Capture, policy: SitePolicy) -> None:
        self.policy = policy
        self.verdicts: dict[tuple[NodeSpec, ...], Verdict] = {}
        self.observations: list[Observation] = []
        self.upstream: dict[str, str] = {}
        self.lost: dict[str, str] = {}
        self.failing: dict[Key, FailingGraph] = {}
        self._engine = "torch-mlir"
        self._seen = seen
        self._prepared = {graph.id: lowerable(graph.spec) for graph in seen.graphs}
        self._of_node: dict[tuple[str, str], Verdict] = {}
        self._dynamic_inputs: set[tuple[str, Ref]] = set()
        self._whole: dict[str, Lowered] = {}
        self._hits: dict[tuple[str, str], dict[str, None]] = {}
        self._in_company: set[tuple[str, str]] = set()

    def lower(self, process: Lowers, judge: Judge, tell: OnProgress) -> None:
        """Lower every distinct op, then every graph none of whose nodes stands in the way."""
        known = process.hello().higher_order
        self._engine = f"torch-mlir {process.hello().torch_mlir}"
        work = [(graph, node) for graph in self._seen.graphs for node in _calls(self._prepared[graph.id])]
        for done, (graph, node) in enumerate(work):
            tell("lower", done, len(work))
            self._node(graph, node, judge, known)
        tell("lower", len(work), len(work))
        for done, graph in enumerate(self._seen.graphs):
            tell("lower whole graphs", done, len(self._seen.graphs))
            self._graph(graph, judge)
            self._limits(graph)
        tell("lower whole graphs", len(self._seen.graphs), len(self._seen.graphs))

    def _node(self, graph: CapturedGraph, node: NodeSpec, judge: Judge, known: frozenset[str]) -> None:
        spec = self._prepared[graph.id]
        if _is_dynamic(node, spec):
            if self._begins_dynamism(graph, node):
                self.observations.append(observe.dynamic(graph, node, self.policy))
        elif isinstance(node.target, HigherOrder):
            if node.target.name not in known:
                self.observations.append(observe.not_importable(graph, node, self.policy))
        elif not node.is_op:
            self.observations.append(observe.not_importable(graph, node, self.policy))
        elif any(isinstance(ref, Ref) and spec.by_name[ref.name].value is None for ref in inputs_of(node)):
            return  # of what a higher-order op gives nobody knows the shape: the op itself is told
        else:
            alone = one_op(spec, node)
            verdict = self._of_node[graph.id, node.name] = self._op(str(node.target), alone, judge)
            self._hits.setdefault((graph.id, node.name), {}).update(dict.fromkeys(hit.code for hit in verdict.limits))
            if verdict.outcome in ("fails", "unknown"):
                refused = observe.op_refused(graph, node, verdict, self.policy)
                self.observations.append(refused)
                if verdict.refused:
                    self._keep(refused, str(node.target), alone, verdict.sentence)
            if verdict.outcome == "unknown" and not verdict.refused:
                self.upstream[str(node.target)] = verdict.sentence

    def _begins_dynamism(self, graph: CapturedGraph, node: NodeSpec) -> bool:
        """Whether an unknown size is made here, or is an input of the forward graph and first used here."""
        taken = _unknown_inputs(node, self._prepared[graph.id])
        if not taken:
            return True
        sizes = {(graph.id, ref) for ref in taken}
        first = self._dynamic_inputs.isdisjoint(sizes)
        self._dynamic_inputs.update(sizes)
        is_input = any(self._prepared[graph.id].by_name[ref.name].target == "placeholder" for ref in taken)
        return first and is_input and graph.direction == "forward"

    def _op(self, op: str, alone: GraphSpec, judge: Judge) -> Verdict:
        key = signature(alone)
        if key not in self.verdicts:
            self.verdicts[key] = judge.op(op, alone)
        return self.verdicts[key]

    def _graph(self, graph: CapturedGraph, judge: Judge) -> None:
        """Lower a graph whole, without the nodes that do not lower alone: for what shows in company only.

        A node that is refused in company is cut out too, and the rest lowered again: the compiler names only the first.
        """
        spec = self._prepared[graph.id]
        if gives_nothing(graph.spec):
            self.observations.append(observe.empty(graph, self.policy))
        alone = {node.name for node in _calls(spec) if not self._lowers(graph, node)}
        cut = set(alone)
        while (rest := cut_out(spec, cut) if cut else spec) is not None:
            whole = inline(rest, self._bodies(graph, rest))
            answer = judge.whole(whole)
            self._whole.setdefault(graph.id, answer)
            if not isinstance(answer, Answer):
                self.lost.setdefault(graph.id, what_happened(answer)[1])
                return
            if answer.lowers:
                self._note(graph, rest, answer.limits)
                return
            refused = observe.graph_refused(graph, answer, len(alone), self.policy)
            self.observations.append(refused)
            self._keep(refused, f"graph {graph.id} as a whole", whole, answer.sentence)
            culprit = rest.node_of(answer.node)
            if culprit is None or not culprit.is_op or len(cut) - len(alone) >= _MOST_IN_COMPANY:
                return
            cut.add(culprit.name)
            self._in_company.add((graph.id, culprit.name))

    def _lowers(self, graph: CapturedGraph, node: NodeSpec) -> bool:
        verdict = self._of_node.get((graph.id, node.name))
        return verdict is not None and verdict.outcome in ("lowers", "decomposed")

    def _note(self, graph: CapturedGraph, lowered: GraphSpec, found: tuple[Hit, ...]) -> None:
        """Keep the limits that a graph meets as a whole: some show in company only, such as a size that got lost."""
        for hit in found:
            node = lowered.node_of(hit.node)
            if node is not None:
                self._hits.setdefault((graph.id, node.name), {})[hit.code] = None

    def _limits(self, graph: CapturedGraph) -> None:
        """Say what the Neuron compiler is documented to refuse of what lowers; of a dtype, where it comes up only."""
        spec = self._prepared[graph.id]
        for node in _calls(spec):
            called = graph.origins[node.name].called_as or str(node.target)
            codes = self._hits.get((graph.id, node.name), ())
            made = [spec.by_name[ref.name] for ref in inputs_of(node) if isinstance(ref, Ref)]
            given = {v.dtype for other in made if other.is_op for v in values(other.value) if isinstance(v, TensorSpec)}
            met = [
                limit
                for code in codes
                if (limit := limits()[code]).is_of(called) and not any(map(limit.is_of_type, given))
            ]
            if met:
                self.observations.append(observe.limited(graph, node, met, self.policy))

    def _bodies(self, graph: CapturedGraph, spec: GraphSpec) -> dict[str, GraphSpec]:
        """What stands in the place of the nodes that lower in other words, by their names."""
        verdicts = {node.name: self._of_node[graph.id, node.name] for node in _calls(spec)}
        return {name: verdict.body for name, verdict in verdicts.items() if verdict.body is not None}

    def _keep(self, seen: Observation, what: str, graph: GraphSpec, sentence: str) -> None:
        failing = FailingGraph(what, graph, seen.stage or "captured", sentence, self._engine)
        self.failing.setdefault((seen.rule, seen.op, seen.phase, seen.site), failing)

    def counts(self, graph: CapturedGraph) -> NodeCounts:
        """What became of the nodes of a graph."""
        became: Counter[str] = Counter()
        for node in _calls(self._prepared[graph.id]):
            outcome = self._outcome(graph, node)
            became["not_reached" if outcome is None else _AS_NODE[outcome]] += 1
        return NodeCounts(**became)

    def _outcome(self, graph: CapturedGraph, node: NodeSpec) -> Outcome | None:
        """What is to be said of a node, alone and in its graph; None where it was not reached."""
        verdict = self._of_node.get((graph.id, node.name))
        if verdict is None:
            return None
        return worst(verdict.outcome, "unknown" if (graph.id, node.name) in self._in_company else verdict.outcome)

    def info(self, graph: CapturedGraph) -> GraphInfo:
        """How far a graph got."""
        counts = self.counts(graph)
        whole = self._whole.get(graph.id)
        status: NodeOutcome = "not_reached"
        if counts.failed:
            status = "failed"
        elif counts.not_reached:
            status = "not_reached"
        elif isinstance(whole, Answer) and whole.lowers and counts.lowered == counts.total:
            status = "lowered"
        elif counts.unknown or whole is not None:
            status = "unknown"
        verdicts = [verdict for (owner, _), verdict in self._of_node.items() if owner == graph.id]
        stages = [verdict.stage for verdict in verdicts if verdict.outcome in ("fails", "unknown")]
        if counts.not_reached or whole is None:
            stages.append("captured")
        elif isinstance(whole, Answer):
            stages.append(whole.stage)
        return GraphInfo(
            id=graph.id,
            direction=graph.direction,
            nodes=counts.total,
            lowered=counts.lowered,
            failed=counts.failed,
            unknown=counts.unknown,
            not_reached=counts.not_reached,
            status=status,
            stage=min(stages, key=STAGES.index, default="captured"),
        )

    def operators(self) -> dict[str, Outcome]:
        """The worst outcome by functional overload, as the user's code called it."""
        found: dict[str, Outcome] = {}
        for graph in self._seen.graphs:
            for node in _calls(self._prepared[graph.id]):
                outcome = self._outcome(graph, node)
                if outcome is None:
                    continue
                called = graph.origins[node.name].called_as or str(node.target)
                if called != node.target and outcome == "lowers":
                    outcome = "decomposed"
                op = functional_overload(_IN_EAGER.get(called, called))
                found[op] = worst(outcome, found.get(op, "lowers"))
        return dict(sorted(found.items()))


def _calls(graph: GraphSpec) -> Iterator[NodeSpec]:
    """The nodes that call something: all but inputs, outputs and the picking of one result among several."""
    return (node for node in graph.nodes if node.target not in ("placeholder", "output", "getitem"))


def _is_dynamic(node: NodeSpec, graph: GraphSpec) -> bool:
    """Whether a node gives or takes something whose size is not known beforehand."""
    return any(_is_symbolic(value) for value in (*values(node.value), *inputs_of(node))) or bool(
        _unknown_inputs(node, graph)
    )


def _unknown_inputs(node: NodeSpec, graph: GraphSpec) -> list[Ref]:
    refs = (value for value in inputs_of(node) if isinstance(value, Ref))
    return [ref for ref in refs if any(_is_symbolic(value) for value in values(graph.by_name[ref.name].value))]


def _is_symbolic(value: object) -> bool:
    return isinstance(value, Symbolic)


def _stopped(error: CaptureError, steps: int) -> str:
    """In which step the capture stopped, and at what."""
    at, raised = f"in step {error.step + 1} of {steps}", f"{error.type}: {error.message}"
    if error.own_run:
        return (
            f"{at} a captured graph cannot be run op by op on this device ({raised}), which says nothing of compiling"
            " it"
        )
    if error.step < 0:
        return f"in step 1 of {steps} torch.compile raised {raised}"
    if error.eager is None:
        return f"{at} torch.compile raised {raised}; without torch.compile the same step runs"
    if error.eager == raised:
        return f"{at} the model's own code raised {raised}; run without torch.compile it raised the same"
    return f"{at} the model's own code raised {raised}; run without torch.compile it raised {error.eager}"


def _failed(error: CaptureError | None, steps: int) -> str | None:
    """Why the probe says nothing of the model: the first step raises, and no compiler is needed for that."""
    if error is None or error.step > 0 or error.own_run or not error.eager_too:
        return None
    return _stopped(error, steps)


def _not_checked(seen: Capture, sweep: _Sweep, missing: str | None, steps: int) -> Iterator[NotChecked]:
    if missing is not None:
        yield NotChecked(what="lowering", why=missing)
    yield NotChecked(
        what="the loss and the optimizer under torch.compile",
        why="the model is compiled; what is computed outside it runs op by op",
    )
    if seen.recurrent:
        yield NotChecked(
            what="the graphs with torch._dynamo.config.allow_rnn as it was set",
            why="Dynamo does not trace recurrent modules then: the probe set it to True and looked at those graphs",
        )
    if seen.skipped:
        names = ", ".join(sorted({function_in_words(frame.function).replace("()", "") for frame in seen.skipped}))
        yield NotChecked(what=f"compiling {names}", why="Dynamo skipped it: its ops are in no graph")
    for broken in (broken for broken in seen.breaks if broken.rest_skipped):
        yield NotChecked(
            what="compiling what comes after a graph break that Dynamo cannot go on after",
            why=f"its ops are in no graph: {broken.reason}",
        )
    if seen.error is not None:
        yield NotChecked(what=STEPS_NOT_COMPILED, why=_stopped(seen.error, steps))
    integers = observe_values.integers(seen.graphs)
    if integers is not None:
        yield integers
    for op, sentence in sorted(sweep.upstream.items()):
        yield NotChecked(what=f"whether {op} lowers", why=sentence)
    for graph, how in sweep.lost.items():
        yield NotChecked(what=f"lowering graph {graph} as a whole", why=how)
