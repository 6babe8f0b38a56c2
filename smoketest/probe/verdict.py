"""What is to be said of an op: three witnesses are asked, because the public compiler alone cries wolf.

torch-mlir as published refuses ops that the device runs, so its word alone proves nothing. An op *fails* only if
torch-mlir refuses it, the operator profile has no kernel for it, and no decomposition avoids it; or if it refuses what
users saw the device's own compiler refuse. A crash or a time-out of torch-mlir is its own fault: it says nothing of the
op, unless the torch dialect does not know it either.

What fails is denied on firm grounds only: users reported it, or the torch dialect does not even know the op. That
torch-mlir knows an op and has no lowering for it is a gap of the published compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from smoketest.operators.decompositions import decomposition_table, lowering_equivalents
from smoketest.operators.evidence import Grounds, base_name, grounds_for, reports
from smoketest.operators.functional import functional_overload
from smoketest.operators.profile import OperatorProfile
from smoketest.operators.reported_lowering import reported_lowering
from smoketest.probe.cache import Lowers
from smoketest.probe.compat import core_decompositions
from smoketest.probe.graphs import GraphSpec, name_of
from smoketest.probe.limits import Hit
from smoketest.probe.lower import Crashed, Lowered, TimedOut
from smoketest.probe.lowering_worker import Answer
from smoketest.probe.prepare import Table, expanded, tensor_outputs

__all__ = ["Judge", "Outcome", "Verdict", "what_happened", "worst"]

Outcome = Literal["lowers", "decomposed", "unknown", "fails"]
_BAD_LAST: tuple[Outcome, ...] = ("lowers", "decomposed", "unknown", "fails")


def worst(*outcomes: Outcome) -> Outcome:
    """The one that matters among several."""
    return max(outcomes, key=_BAD_LAST.index)


@dataclass(frozen=True)
class Verdict:
    """What is said of one (op, shapes, dtypes, scalars).

    Attributes:
        outcome: lowers; decomposed (it does in other words); unknown; fails.
        stage: the last stage of the ladder it reached.
        sentence: the compiler's own, or what became of the compiler; empty where it lowers.
        why: what the other witnesses say, one clause; empty where it lowers.
        refused: whether the compiler *said* no. An op that is unknown and refused is shown as possible.
        unknown: ops of it that the torch dialect does not know (``torch.aten.lgamma``).
        body: the graph that lowers in its place, where it is decomposed.
        grounds: what a failure stands on: ``reported`` and ``cannot_lower`` are firm, ``no_kernel_known`` is not.
        limits: of the Neuron compiler, that the StableHLO meets where it lowers or is decomposed.
    """

    outcome: Outcome
    stage: str
    sentence: str = ""
    why: str = ""
    refused: bool = False
    unknown: tuple[str, ...] = ()
    body: GraphSpec | None = None
    grounds: Grounds | None = None
    limits: tuple[Hit, ...] = ()

    @property
    def denied(self) -> bool:
        """Whether it fails on firm grounds."""
        return self.grounds in ("reported", "cannot_lower")


class Judge:
    """Asks the three witnesses.

    Args:
        process: where graphs are lowered.
        profile: which overloads the device has kernels for.
        timeout: seconds for one graph.
    """

    def __init__(self, process: Lowers, profile: OperatorProfile, timeout: float) -> None:
        self._lower: Callable[[GraphSpec], Lowered] = lambda graph: process.lower(graph, timeout)
        self._profile = profile

    def whole(self, graph: GraphSpec) -> Lowered:
        """How far a whole graph gets."""
        return self._lower(graph)

    def op(self, op: str, graph: GraphSpec) -> Verdict:
        """The verdict on a one-op graph of `op`."""
        # Where torch-mlir is known to be at fault it is not asked: nll_loss_forward takes the process down.
        other = self._body(graph, self._equivalents) if op in self._faulty else None
        if other is not None:
            body, answer = other
            return Verdict("decomposed", answer.stage, body=body, limits=answer.limits)
        seen = self._lower(graph)
        if isinstance(seen, Answer) and seen.lowers:
            return Verdict("lowers", seen.stage, limits=seen.limits)
        stage, sentence = what_happened(seen)
        if not isinstance(seen, Answer) and not seen.unknown:
            return Verdict("unknown", stage, sentence, "that is its own fault and says nothing of the op")
        known = reported_lowering(op, sentence)
        if known is not None:
            said = f"reported by {known.source} for torch-neuronx {known.release}: {known.said}"
            return Verdict("fails", stage, sentence, said, refused=True, unknown=seen.unknown, grounds="reported")
        way_out = self._way_out(op, graph, seen)
        if way_out is not None:
            return Verdict("unknown", stage, sentence, way_out, refused=True)
        grounds, why = self._failure(op, graph, seen)
        return Verdict("fails", stage, sentence, why, refused=True, unknown=seen.unknown, grounds=grounds)

    def _way_out(self, op: str, graph: GraphSpec, seen: Lowered) -> str | None:
        """Why an op that torch-mlir refuses may lower all the same, one clause; None where nothing speaks for it."""
        if self.has_kernel(op):
            return f"{self._profile.name} lists a kernel of the backend's own, so a release may lower it"
        if self._body(graph, self._core) is not None:
            return "PyTorch has a decomposition that lowers, which the backend is not known to use"
        if not (seen.unknown or self.falls_back(op) or op in self._functional_missing):
            return f"{self._profile.name} cannot tell, since PyTorch makes it of other ops in eager mode"
        return None

    def _failure(self, op: str, graph: GraphSpec, seen: Lowered) -> tuple[Grounds, str]:
        """What the failure of an op without kernel and decomposition stands on, and in words."""
        nothing = f"{self._profile.name} has no kernel for it, and no decomposition avoids it"
        if seen.unknown and self._unknown_when_expanded(graph):
            return "cannot_lower", nothing
        if grounds_for(op, self._profile) == "reported":
            source = reports()[base_name(op)].source
            return "reported", f"{nothing}; on a device it was seen to run on the CPU ({source})"
        it = "it knows what the op decomposes to" if seen.unknown else "it knows the op"
        upstream = f"{it} and has no lowering for it, an upstream gap that proves nothing of the device"
        return "no_kernel_known", f"{upstream}, but {nothing}"

    def _unknown_when_expanded(self, graph: GraphSpec) -> bool:
        """Whether the torch dialect lacks an op even of what the decompositions make of `graph`."""
        body = expanded(graph, self._core)
        return body is None or bool(self._lower(tensor_outputs(body)).unknown)

    def has_kernel(self, op: str) -> bool:
        """Whether the profile has a kernel for `op`, its ``out`` form or its functional form.

        So it is for an op that PyTorch makes of another overload of the same name (``bitwise_xor.Scalar``).
        """
        if self._profile.is_native(op) or functional_overload(op) in self._functional_kernels:
            return True
        return not self.falls_back(op) and base_name(op) in self._names

    def falls_back(self, op: str) -> bool:
        """Whether the profile says that `op` has neither kernel nor composite."""
        return op in self._profile.unimplemented or self._profile.reached(op) in self._profile.unimplemented

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(base_name(name) for name in self._profile.native)

    @cached_property
    def _functional_kernels(self) -> frozenset[str]:
        return frozenset(functional_overload(name) for name in self._profile.native)

    @cached_property
    def _functional_missing(self) -> frozenset[str]:
        """Functional forms of ``out`` overloads without a kernel: PyTorch makes the one of the other (``kthvalue``)."""
        missing = self._profile.unimplemented
        return frozenset(functional_overload(name) for name in missing) - self._functional_kernels

    @cached_property
    def _faulty(self) -> frozenset[str]:
        return frozenset(name_of(op) for op in lowering_equivalents())

    @cached_property
    def _equivalents(self) -> Table:
        return {**decomposition_table(self._profile.decompositions), **lowering_equivalents()}

    @cached_property
    def _core(self) -> Table:
        return {**core_decompositions(), **self._equivalents}

    def _body(self, graph: GraphSpec, table: Table) -> tuple[GraphSpec, Answer] | None:
        """`graph` taken apart by `table`, and how it lowers; None where it does not."""
        body = expanded(graph, table)
        if body is None:
            return None
        seen = self._lower(tensor_outputs(body))
        return (body, seen) if isinstance(seen, Answer) and seen.lowers else None


def what_happened(seen: Lowered) -> tuple[str, str]:
    """The stage reached and what is to be read in the report."""
    if isinstance(seen, Answer):
        return seen.stage, seen.sentence
    stage = "imported" if seen.unknown else "captured"
    names = f" (unknown to the torch dialect: {', '.join(seen.unknown)})" if seen.unknown else ""
    if isinstance(seen, Crashed):
        return stage, f"torch-mlir crashed on it: {seen.cause}{names}"
    assert isinstance(seen, TimedOut)
    return stage, f"torch-mlir had no answer after {seen.seconds:g} s{names}"
