"""Does a graph lower, and what does the backend say where it does not."""

from __future__ import annotations

import atexit
import logging
import re
from collections.abc import Iterator, Mapping

from torch import fx

from smoketest.devices.emulated.dynamo.errors import TorchMlirCompilerError
from smoketest.errors import DeviceUnavailable
from smoketest.operators.decompositions import decomposition_table
from smoketest.operators.profile import OperatorProfile
from smoketest.operators.reported_lowering import reported_lowering
from smoketest.probe.cache import CachedLowering, cache_file
from smoketest.probe.from_fx import graph_spec
from smoketest.probe.graphs import GraphSpec, HigherOrder, NodeSpec, Ref, inline, inputs_of, one_op, signature
from smoketest.probe.lower import CannotStart, missing_reason
from smoketest.probe.lowering_worker import Answer
from smoketest.probe.prepare import expanded, lowerable
from smoketest.probe.verdict import Judge, Verdict

__all__ = ["Lowering", "refuse_without_engine"]

_log = logging.getLogger(__name__)
_TIMEOUT = 120.0  # seconds for one graph, as the compile probe takes by default

_STAGES = {
    # last stage of the public ladder that was reached -> the backend's name of the one that failed ([PRE] internals
    # 3.3). What the torch dialect does not know dies in a stage that only the backend has, before the public ones.
    "unknown op": "Neuron partial lowering from TorchFX IR -> StableHLO IR",
    "imported": "Lowering Torch FX IR (RAW) -> Torch Backend IR",
    "torch-backend": "Lowering Torch Backend IR -> StableHLO IR",
}
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_COLLECTIVES = ("_c10d_functional::", "c10d_functional::", "_dtensor::")


def refuse_without_engine() -> None:
    """Make sure that there is something to lower with.

    Raises:
        DeviceUnavailable: torch-mlir is not installed.
    """
    missing = missing_reason()
    if missing is not None:
        reason, _, command = missing.partition(": ")
        raise DeviceUnavailable(
            f"torch.compile(backend='neuron') on the emulated device lowers graphs with torch-mlir, and {reason}",
            hint=f"{command}, or compile with backend='aot_eager' to run without lowering",
        )


class Lowering:
    """Lowers graphs with the public torch-mlir, each distinct op alone and then the whole graph.

    Args:
        profile: what its verdicts stand on, beside torch-mlir's own.
    """

    def __init__(self, profile: OperatorProfile) -> None:
        self._process = CachedLowering(cache_file())
        self._judge = Judge(self._process, profile, _TIMEOUT)
        self._decompositions = decomposition_table(profile.decompositions)
        self._verdicts: dict[tuple[NodeSpec, ...], Verdict] = {}
        self._told: set[str] = set()
        atexit.register(self._process.__exit__, None, None, None)

    def check(self, graph: fx.GraphModule, taken_apart: frozenset[str]) -> None:
        """Return if the graph lowers, or if nothing firm speaks against it.

        Args:
            graph: after AOTAutograd, with static shapes.
            taken_apart: overloads that the graph still holds and the backend would have decomposed.

        Raises:
            NotImplementedError: the importer does not know a higher-order op, or a Python function.
            RuntimeError: the graph gives nothing.
            TorchMlirCompilerError: an op, or the graph as a whole, does not lower.
            DeviceUnavailable: the installed torch-mlir cannot be used.
        """
        spec = self._decomposed(lowerable(graph_spec(graph.graph)), taken_apart)
        frames = {node.name: node.meta.get("stack_trace") for node in graph.graph.nodes}
        try:
            self._importable(spec)
            bodies = self._ops(spec, frames)
            self._whole(spec, bodies, frames)
        except CannotStart as error:
            raise DeviceUnavailable(
                f"the installed torch-mlir cannot be used: {error}", hint="pip install --force-reinstall torch-mlir"
            ) from error

    def _decomposed(self, spec: GraphSpec, names: frozenset[str]) -> GraphSpec:
        bodies = {
            node.name: body
            for node in _calls(spec)
            if node.target in names and (body := expanded(one_op(spec, node), self._decompositions)) is not None
        }
        return lowerable(inline(spec, bodies)) if bodies else spec

    def _importable(self, spec: GraphSpec) -> None:
        known = self._process.hello().higher_order
        for node in _calls(spec):
            if isinstance(node.target, HigherOrder) and node.target.name not in known:
                name = node.target.name  # upstream's sentence, and the one reported of the backend ([PRE] dynamo_spec)
                raise NotImplementedError(
                    f"Higher-order operation '{name}' not implemented in the FxImporter (tried '_import_hop_{name}')"
                )
            if isinstance(node.target, str) and node.target.startswith("unknown:"):
                function = node.target.removeprefix("unknown:")
                raise NotImplementedError(f"FIX ME: Unimplemented call_function: target={function}")
        (output,) = (node for node in spec.nodes if node.target == "output")
        # An input that is written back is a result of the backend's graphs (FunctionalizeCopyInplace [PRE]).
        if not any(isinstance(value, Ref) for value in inputs_of(output)) and not _writes_back(spec):
            raise RuntimeError(
                "No outputs found in the module, expected at least one output, "
                "modify your code to have at least one output."
            )

    def _ops(self, spec: GraphSpec, frames: Mapping[str, str | None]) -> dict[str, GraphSpec] | None:
        """What to put in the place of ops for lowering the whole; None where the whole cannot be lowered."""
        bodies: dict[str, GraphSpec] = {}
        failed: list[tuple[NodeSpec, Verdict]] = []
        whole = True
        for node in _calls(spec):
            if not node.is_op or str(node.target).startswith(_COLLECTIVES):
                whole = False  # the backend's own passes take care of collectives; a known higher-order op is not tried
                continue
            verdict = self._verdict(spec, node)
            if verdict.body is not None:
                bodies[node.name] = verdict.body
            if verdict.outcome in ("fails", "unknown"):
                whole = False
                if verdict.denied:
                    failed.append((node, verdict))
                else:
                    self._tell(str(node.target), verdict)
        if failed:
            raise _refusal(*_first_to_fail(failed), frames)
        return bodies if whole else None

    def _verdict(self, spec: GraphSpec, node: NodeSpec) -> Verdict:
        alone = one_op(spec, node)
        key = signature(alone)
        if key not in self._verdicts:
            self._verdicts[key] = self._judge.op(str(node.target), alone)
        return self._verdicts[key]

    def _whole(self, spec: GraphSpec, bodies: dict[str, GraphSpec] | None, frames: Mapping[str, str | None]) -> None:
        if bodies is None:
            return
        answer = self._judge.whole(inline(spec, bodies))
        if not isinstance(answer, Answer) or answer.lowers:
            return
        node = spec.by_name.get(answer.node or "")
        if reported_lowering(str(node.target) if node is not None else None, answer.sentence) is None:
            # Each op lowers alone, and only the public compiler speaks against the whole: possible, so it runs.
            self._log_once(f"the whole graph: {answer.sentence}")
        else:
            raise _failed(_STAGES.get(answer.stage, _STAGES["imported"]), answer.node or "", answer.sentence, frames)

    def _tell(self, op: str, verdict: Verdict) -> None:
        self._log_once(f"{op}: {verdict.sentence} ({verdict.why})")

    def _log_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            _log.warning("the emulated device runs what possibly does not lower: %s", text)


def _calls(graph: GraphSpec) -> Iterator[NodeSpec]:
    return (node for node in graph.nodes if node.target not in ("placeholder", "output", "getitem"))


def _writes_back(spec: GraphSpec) -> bool:
    return any(node.target == "aten::copy" for node in spec.nodes)


def _first_to_fail(failed: list[tuple[NodeSpec, Verdict]]) -> tuple[NodeSpec, Verdict]:
    """The failure the compiler stops at: it goes stage by stage, and through the graph in each."""
    order = list(_STAGES)
    return min(failed, key=lambda item: order.index(_stage(item[1])))


def _stage(verdict: Verdict) -> str:
    return "unknown op" if verdict.unknown or verdict.stage not in _STAGES else verdict.stage


def _refusal(node: NodeSpec, verdict: Verdict, frames: Mapping[str, str | None]) -> TorchMlirCompilerError:
    stage = _stage(verdict)
    if stage != "unknown op":
        return _failed(_STAGES[stage], node.name, verdict.sentence, frames)
    # The line that a released backend was seen to print ([USER-B3]), and MLIR's own note, which has the name; whether
    # users of the backend get to see the note is not known.
    operator = verdict.unknown[0] if verdict.unknown else f"torch.{str(node.target).replace('::', '.')}"
    line = "failed to legalize operation 'torch.operator' that was explicitly marked illegal"
    note = f'note: see current operation: "torch.operator" <{{name = "{operator}"}}>'
    return _failed(_STAGES[stage], node.name, f"{line}\nloc({_location(node.name, frames)}): {note}", frames)


def _failed(stage: str, node: str, sentence: str, frames: Mapping[str, str | None]) -> TorchMlirCompilerError:
    return TorchMlirCompilerError(f"Failed Torch-MLIR {stage}:\nloc({_location(node, frames)}): error: {sentence}")


def _location(name: str, frames: Mapping[str, str | None]) -> str:
    """File and line as MLIR prints them; a node of an inlined body has the name of the one it replaces in front."""
    while name and name not in frames:
        name = name.rpartition("__")[0]
    found = _FRAME.findall(frames.get(name) or "")
    return '"{}":{}:0'.format(*found[-1]) if found else "unknown"
