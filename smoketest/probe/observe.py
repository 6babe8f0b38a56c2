"""From what capture and lowering saw to observations, worded for the person whose model it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from smoketest.findings import Observation, Site, SitePolicy
from smoketest.findings.breaks import about_break
from smoketest.findings.remedies import LINALG_UNCHECKED
from smoketest.operators.reported_lowering import reported_lowering
from smoketest.probe.capture import Capture, CapturedGraph, CaptureError, Origin, function_in_words
from smoketest.probe.graphs import GraphSpec, HigherOrder, NodeSpec, Other, Ref, Symbolic, TensorSpec, inputs_of, one_op
from smoketest.probe.limits import Limit
from smoketest.probe.lowering_worker import Answer
from smoketest.probe.recompiles import recompiled
from smoketest.probe.verdict import Verdict

__all__ = [
    "WITNESS",
    "around_the_graphs",
    "calls_of",
    "dynamic",
    "empty",
    "graph_refused",
    "limited",
    "not_importable",
    "op_refused",
]

WITNESS = frozenset({"compile_probe"})
# Dynamo's ids of "the size of this op's result depends on values": with static shapes no graph can hold the op.
_DATA_DEPENDENT = frozenset({"GB0036", "GB0037", "GB0246"})
# Dynamo's ids of "the op itself raises, whatever it is given": of tensors on two devices, and of other arguments.
_TWO_DEVICES = "GB5173"
_RAISED_BY_THE_OP = frozenset({_TWO_DEVICES, "GB0112", "GB4315"})
# The backend's own tracing met such an op, mostly in a backward: its error is the name of the op and no more.
_BACKEND_FAILED = "GB0219"
_OPERATOR = re.compile(r"(?:Operator `|failed with )aten\.(\w+)\.(\w+)(?:`|\. Adding a graph break)")
_READ = "_local_scalar_dense"


def calls_of(graph: CapturedGraph) -> int:
    """How often a node of a graph is called in a step: as often as the graph ran in the last one.

    Where no step came to its end, once: at least that, unless the graph is of code that was compiled before.
    """
    if graph.runs is not None:
        return graph.runs
    return 0 if graph.again else 1


def op_refused(graph: CapturedGraph, node: NodeSpec, verdict: Verdict, policy: SitePolicy) -> Observation:
    """NST201 for one node: denied where it fails on firm grounds, else possible."""
    if verdict.denied:
        message = f"{node.target} does not lower ({verdict.why}). torch-mlir: {said(verdict.sentence)}"
    elif verdict.refused:
        link = ": " if verdict.outcome == "fails" else ", but "
        message = (
            f"{node.target} possibly does not lower: public torch-mlir refuses it{link}{verdict.why}. "
            f"torch-mlir: {said(verdict.sentence)}"
        )
    else:
        message = f"whether {node.target} lowers is not known: {verdict.sentence}; {verdict.why}"
    origin = graph.origins.get(node.name, Origin())
    return Observation(
        rule="NST201",
        op=str(node.target),
        called_as=origin.called_as,
        grounds=verdict.grounds,
        phase=graph.direction,
        site=policy.choose(origin.frames),
        module=origin.module,
        shapes=(signature_of(graph.spec, node),),
        calls=calls_of(graph),
        exact=graph.runs is not None,
        witnesses=WITNESS,
        stage=verdict.stage,
        message=message,
    )


def graph_refused(graph: CapturedGraph, answer: Answer, without: int, policy: SitePolicy) -> Observation:
    """NST201 for ops that lower alone and not in company: possible, since only the public compiler says so.

    Denied where users saw the device's compiler say the same.

    Args:
        graph: the captured graph.
        answer: what torch-mlir said of it.
        without: how many of its nodes were cut out before, since they do not lower alone.
        policy: chooses the user's line among frames.
    """
    at = graph.spec.node_of(answer.node)
    origin = Origin() if at is None else graph.origins.get(at.name, Origin())
    known = reported_lowering(str(at.target) if at is not None and at.is_op else None, answer.sentence)
    whole = f"the {graph.direction} graph {graph.id}"
    if without:
        whole += f", without the {without} of its ops that do not lower alone,"
        company = "each of the rest lowers alone"
    else:
        company = "each of its ops lowers alone"
    if known is None:
        message = (
            f"{whole} possibly does not lower as a whole: public torch-mlir refuses it, although {company}. "
            f"torch-mlir: {said(answer.sentence)}"
        )
    else:
        message = (
            f"{whole} does not lower as a whole, although {company} (reported by {known.source} for "
            f"torch-neuronx {known.release}: {known.said}). torch-mlir: {said(answer.sentence)}"
        )
    return Observation(
        rule="NST201",
        op="graph",
        grounds=None if known is None else "reported",
        phase=graph.direction,
        site=policy.choose(origin.frames),
        module=origin.module,
        calls=calls_of(graph),
        exact=graph.runs is not None,
        witnesses=WITNESS,
        stage=answer.stage,
        message=message,
    )


def empty(graph: CapturedGraph, policy: SitePolicy) -> Observation:
    """NST201 for a graph without a result: possible, since it was seen in a pre-release's own tests only.

    Source of the sentence: [PRE] tests/pytorch_tests/specs/dynamo_spec.json.
    """
    return Observation(
        rule="NST201",
        op="graph",
        phase=graph.direction,
        site=policy.choose(graph.frames),
        calls=calls_of(graph),
        exact=graph.runs is not None,
        witnesses=WITNESS,
        stage="imported",
        message=(
            f"the {graph.direction} graph {graph.id} gives no tensor and possibly does not lower: a pre-release of "
            "April 2026 says of such a graph: No outputs found in the module, expected at least one output"
        ),
        remedy="Return the result of the line, or keep the line out of the compiled region.",
    )


def limited(graph: CapturedGraph, node: NodeSpec, met: Sequence[Limit], policy: SitePolicy) -> Observation:
    """NST207 for a node that lowers to what the Neuron compiler is documented to refuse, by one or more codes."""
    origin = graph.origins.get(node.name, Origin())
    called = (
        f"{node.target}, of {origin.called_as}," if origin.called_as not in (None, node.target) else str(node.target)
    )
    why = "; ".join(f"{limit.code}: {limit.meaning} ({limit.source})" for limit in met)
    return Observation(
        rule="NST207",
        op=str(node.target),
        called_as=origin.called_as,
        phase=graph.direction,
        site=policy.choose(origin.frames),
        module=origin.module,
        shapes=(signature_of(graph.spec, node),),
        calls=calls_of(graph),
        exact=graph.runs is not None,
        witnesses=WITNESS,
        stage="stablehlo",
        message=f"{called} lowers with public torch-mlir, but the Neuron compiler possibly refuses it. {why}",
        remedy=" ".join(limit.remedy for limit in met),
    )


def not_importable(graph: CapturedGraph, node: NodeSpec, policy: SitePolicy) -> Observation:
    """NST202 for a higher-order op or a Python function that the importer does not know."""
    remedy = None
    if isinstance(node.target, HigherOrder):
        name = node.target.name
        message = f"Higher-order operation '{name}' not implemented in the FxImporter (tried '_import_hop_{name}')"
        held = next(
            (str(value.text) for value in inputs_of(node) if isinstance(value, Other) and "::" in value.text), None
        )
        if held is not None:
            message += f"; PyTorch puts it around {held}"
            remedy = LINALG_UNCHECKED if "_linalg_check_errors" in held else None
    else:
        name = str(node.target).removeprefix("unknown:")
        message = f"the importer does not know the function {name}, which the graph calls"
    origin = _own_or_next(graph, node)
    return Observation(
        rule="NST202",
        op=name,
        called_as=origin.called_as,
        phase=graph.direction,
        site=policy.choose(origin.frames),
        module=origin.module,
        calls=calls_of(graph),
        exact=graph.runs is not None,
        witnesses=WITNESS,
        stage="captured",
        message=message,
        remedy=remedy,
    )


def _own_or_next(graph: CapturedGraph, node: NodeSpec) -> Origin:
    """The origin of a node, or that of the next one with a line: AOTAutograd's own nodes have none."""
    following = graph.spec.nodes[graph.spec.nodes.index(node) :]
    origins = [graph.origins[later.name] for later in following if later.name in graph.origins]
    return next((origin for origin in origins if origin.frames), origins[0])


def dynamic(graph: CapturedGraph, node: NodeSpec, policy: SitePolicy) -> Observation:
    """NST206 for a node with a size or scalar that is not known beforehand."""
    origin = graph.origins.get(node.name, Origin())
    given = (graph.spec.by_name[ref.name].value for ref in inputs_of(node) if isinstance(ref, Ref))
    unknown = ", ".join(dict.fromkeys(str(value) for value in (node.value, *given) if isinstance(value, Symbolic)))
    return Observation(
        rule="NST206",
        op=str(node.target) if node.is_op else None,
        called_as=origin.called_as,
        phase=graph.direction,
        site=policy.choose(origin.frames),
        module=origin.module,
        calls=calls_of(graph),
        exact=graph.runs is not None,
        witnesses=WITNESS,
        stage="captured",
        message=f"the shape is not known before the step runs ({unknown}): the backend compiles static shapes only",
    )


def said(sentence: str) -> str:
    """The compiler's sentence, and what it means where it names a constant instead of the op.

    Of operations that are left over torch-mlir names the first, and an op's arguments come before it.
    """
    found = re.search(r"'torch\.constant\.\w+'", sentence)
    if found is None:
        return sentence
    note = ", an argument of the op: the compiler names the first operation left over"
    return sentence[: found.end()] + note + sentence[found.end() :]


_CALL_THE_MODEL = (
    "Call the model itself in the step, as `model(...)`: its forward is what is compiled, and a step that calls only "
    "its submodules or other methods goes past it."
)


_UNCOMPILED_FOR_IT = (
    "Take the gradient that is differentiated again (create_graph=True, such as a gradient penalty) through the "
    "uncompiled module: leave that module uncompiled, or keep it beside its compiled form, as in "
    "`compiled = torch.compile(net)`, and call `net` for the penalty and `compiled` for the rest."
)
_LET_IT_SET = (
    "Let the model take the attributes that torch.compile sets on it (as nn.Module.__setattr__ does), or compile its "
    "submodules instead."
)
_NO_RECURRENCE = (
    "Dynamo does not trace nn.RNN, nn.GRU and nn.LSTM unless torch._dynamo.config.allow_rnn is set: as it was set, the "
    "line, and what is called beside it, may run as plain Python, in no graph. The probe went on with allow_rnn = "
    "True: its graphs are those captured so"
)
_ALLOW_RECURRENCE = (
    "Set `torch._dynamo.config.allow_rnn = True` before the first call (PyTorch calls it experimental), use the loop "
    "over time that `smoketest explain lstm` (or gru) shows, which Dynamo traces, or leave the recurrent module "
    "uncompiled and compile the modules after it."
)
_BESIDE_THE_REST = (
    "Move the tensor that is on the CPU with the model: register it as a buffer (`register_buffer`), or make it on the "
    "input's device (`device=x.device`)."
)
_OUT_OF_IT = (
    "Without torch.compile the step runs: keep the function of this line out of the compiled region with "
    "@torch.compiler.disable, or rewrite it."
)


def around_the_graphs(seen: Capture, fullgraph: bool, policy: SitePolicy) -> Iterator[Observation]:
    """Breaks, skipped frames, recompiles, and what torch.compile raised."""
    # With fullgraph the error that ends the step is the one that made Dynamo give the frame up.
    skipped = () if fullgraph and seen.error else seen.skipped
    # What the code raises by itself is no matter of compiling: the eager part tells it, with what to do.
    if seen.error is not None and seen.error.eager_too:
        skipped = tuple(frame for frame in skipped if frame.id not in _RAISED_BY_THE_OP)
    skips: list[Observation] = []
    for frame in skipped:
        what = function_in_words(frame.function)
        message = f"Dynamo skipped {what}: it runs as plain Python, in no graph: {frame.reason}"
        skips.append(_gave_up(message, frame.id, policy.choose(frame.frames)))
    yield from skips
    for site in dict.fromkeys(policy.choose(one.frames) for one in seen.recurrent):
        yield replace(_about("NST204", _NO_RECURRENCE, seen.recurrent[0].id, site), remedy=_ALLOW_RECURRENCE)
    told = {(skip.rule, skip.site) for skip in skips}
    reasons = {frame.reason for frame in skipped}
    for broken in seen.breaks:
        what = "graph break that Dynamo cannot go on after: the rest of the function runs as plain Python, in no graph"
        what = what if broken.rest_skipped else "graph break"
        found = _gave_up(f"{what}: {broken.reason}", broken.id, policy.choose(broken.frames))
        # A line that breaks the graph of a function and makes Dynamo skip its caller is told once, as the worse; a
        # break without a line is that of a skipped frame with the same reason.
        known = broken.reason in reasons if found.site is None else (found.rule, found.site) in told
        if not known and (found.site is None or ("NST206", found.site) not in told):
            yield found
    for again in recompiled(seen.compiles):
        found = _about("NST205", again.message, None, policy.choose(again.frames))
        yield replace(found, calls=len(again.guards), remedy=again.remedy)
    if not seen.graphs and not seen.skipped and not seen.recurrent and seen.error is None:
        nothing = _about("NST204", "torch.compile found nothing to compile in the step", None, None)
        yield replace(nothing, remedy=_CALL_THE_MODEL)
    # What our running of a captured graph raises is not what torch.compile raises, nor what it raises with a switch
    # that only the probe has set.
    if seen.error is not None and not (seen.error.eager_too or seen.error.own_run or seen.recurrent):
        yield _error(seen.error, policy)


def _error(error: CaptureError, policy: SitePolicy) -> Observation:
    rule = "NST205" if "RecompileLimit" in error.type else "NST204" if error.id else "NST202"
    in_backward = error.id is None and "backward" in error.message
    found = _about(rule, f"torch.compile raises {error.type}: {error.message}", error.id, policy.choose(error.frames))
    if rule == "NST202":
        twice = _UNCOMPILED_FOR_IT if "double backward" in error.message else _OUT_OF_IT
        found = replace(found, remedy=_LET_IT_SET if error.step < 0 else twice)
    return replace(found, phase="backward") if in_backward else found


def _gave_up(message: str, break_id: str | None, site: Site | None) -> Observation:
    """NST204; NST206 where Dynamo gave up because a size depends on values, which no rewriting of the line cures."""
    if break_id == _TWO_DEVICES:
        return replace(_about("NST204", message, break_id, site), remedy=_BESIDE_THE_REST)
    named = _OPERATOR.search(message)
    by_backend = break_id == _BACKEND_FAILED and named is not None and named[1] != _READ
    if break_id not in _DATA_DEPENDENT and not by_backend:
        return replace(_about("NST204", message, break_id, site), remedy=about_break(message))
    op = None
    if named is not None:
        op = f"aten::{named[1]}" + ("" if named[2] == "default" else f".{named[2]}")
    return replace(_about("NST206", message, break_id, site), op=op)


def _about(rule: str, message: str, break_id: str | None, site: Site | None) -> Observation:
    text = f"{message} [{break_id}]" if break_id else message
    return Observation(
        rule=rule, phase="forward", site=site, calls=1, witnesses=WITNESS, stage="captured", message=text
    )


def signature_of(graph: GraphSpec, node: NodeSpec) -> str:
    """Shapes and dtypes of a node's tensor arguments, such as ``f32[4, 128], i64[4]``."""
    inputs = [part.value for part in one_op(graph, node).nodes if part.target == "placeholder"]
    return ", ".join(str(value) for value in inputs if isinstance(value, TensorSpec))


def counted(seen: Iterable[Observation]) -> list[Observation]:
    """Observations that differ in nothing but their calls, joined.

    What the last step did not call, as in a branch that only an earlier one took, has no count of its own: it is None
    and not exact, unless the same finding has others that were called.
    """
    calls: Counter[Observation] = Counter()
    shapes: dict[Observation, dict[str, None]] = {}
    for one in seen:
        key = replace(one, calls=None, shapes=())
        calls[key] += one.calls or 0
        shapes.setdefault(key, {}).update(dict.fromkeys(one.shapes))
    called = {_finding_of(one) for one, count in calls.items() if count}
    joined = [replace(one, calls=count, shapes=tuple(shapes[one])) for one, count in calls.items()]
    return [one if one.calls or _finding_of(one) in called else replace(one, calls=None, exact=None) for one in joined]


def _finding_of(seen: Observation) -> tuple[object, ...]:
    return (seen.rule, seen.op, seen.phase, seen.site)
