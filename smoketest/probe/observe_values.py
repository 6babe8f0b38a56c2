"""What graphs take and hold that the device does not have, or has only by a copy: said in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from smoketest.findings import NotChecked, Observation, SitePolicy
from smoketest.operators.evidence import base_name
from smoketest.probe.capture import HANDED_ON, CapturedGraph, GraphInput, Origin
from smoketest.probe.graphs import NodeSpec, Ref, TensorSpec, inputs_of, values
from smoketest.probe.observe import WITNESS, calls_of

__all__ = ["doubles", "inputs", "integers", "large_integers"]

_ON_CPU = (
    "under torch.compile it is copied to the device in every call, or refused where "
    "TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY=1"
)
_MOVE = "Move it to the device once, before the first call: register it as a buffer, or move the batch."
_STRIDED = "the device's kernels take contiguous tensors only, so it is possibly copied in every call"
_MAKE_CONTIGUOUS = "Make it contiguous once, before the first call, with `.contiguous()`."
_DOUBLE = (
    "the device has no 64-bit floats: under torch.compile a pre-release of April 2026 computed such a graph in float32 "
    "and gave its results back as float64"
)
_USE_FLOAT32 = "Use float32 here: the digits are lost in any case."

_BELOW_32_BITS = "Keep it below 2**31, or compute what needs it on the CPU, as part of the batch."
_COMPUTING = (
    "add", "sub", "rsub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "bitwise_and", "bitwise_or",
    "bitwise_xor", "eq", "ne", "lt", "le", "gt", "ge", "clamp", "clamp_min", "clamp_max", "masked_fill", "fill", "full",
    "full_like", "scalar_tensor", "where",
)  # fmt: skip
"""Ops whose integers are values; those of a slice or a reshape are sizes, and its largest means "to the end"."""


def inputs(taken: Iterable[GraphInput], policy: SitePolicy) -> Iterator[Observation]:
    """NST102 for inputs of graphs that are copied in every call, NST207 for those of 64-bit floats.

    Sources: [PRE] torch.compile executor of April 2026, which copies CPU inputs silently; [PUB] environment variables,
    TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY; [PRE] and [USER-B3] layouts: kernels take contiguous tensors only.

    Args:
        taken: the inputs of all forward graphs.
        policy: chooses the user's line among frames.
    """
    taken = tuple(taken)
    on_device = any(one.device not in ("cpu", "meta") for one in taken)
    for one in taken:
        if on_device and one.device == "cpu":
            yield _about("NST102", one, policy, f"{one.name} is on the CPU: {_ON_CPU}", _MOVE)
        if not one.contiguous:
            message = f"{_named(one)} is not contiguous: {_STRIDED}"
            yield _about("NST102", one, policy, message, _made_contiguous(one))
        if one.value is not None and one.value.dtype == torch.float64:
            yield _about("NST207", one, policy, f"{one.name} is of float64: {_DOUBLE}", _USE_FLOAT32)


def _named(one: GraphInput) -> str:
    """An input by its name; a local that the step made with where, and where Dynamo has it from."""
    if one.role != "intermediate":
        return one.name
    made = (
        "made earlier in the step"
        if one.after_line is None
        else f"made before the graph break of line {one.after_line}"
    )
    return f"{'a value' if one.name == HANDED_ON else one.name}, {made} (Dynamo's source: {one.source}),"


def _made_contiguous(one: GraphInput) -> str:
    if one.role != "intermediate":
        return _MAKE_CONTIGUOUS
    if one.after_line is None:
        where, removed = "where it is made", "the graph break or skipped function that lies between"
    else:
        where, removed = f"before the graph break of line {one.after_line}", "that break"
    return f"Make it contiguous {where}, with `.contiguous()`, or remove {removed}: one graph hands nothing over."


def _about(rule: str, one: GraphInput, policy: SitePolicy, message: str, remedy: str) -> Observation:
    return Observation(
        rule=rule,
        op="graph input",
        phase="forward",
        site=policy.choose(one.frames),
        module=one.module,
        shapes=() if one.value is None else (str(one.value),),
        calls=1,
        witnesses=WITNESS,
        stage="captured",
        message=message,
        remedy=remedy,
    )


def doubles(graph: CapturedGraph, policy: SitePolicy) -> Iterator[Observation]:
    """NST207 for the nodes of a forward graph that make 64-bit floats of what is none.

    Source: [PRE] torch.compile of April 2026: float64 to float32 before the compiler, and back after the run.
    """
    if graph.direction != "forward":
        return
    for node in graph.spec.nodes:
        if not node.is_op or not _has(node.value, torch.float64) or _takes(graph, node, torch.float64):
            continue
        yield _of_node(graph, node, policy, f"{node.target} gives float64: {_DOUBLE}", _USE_FLOAT32)


def large_integers(graph: CapturedGraph, policy: SitePolicy) -> Iterator[Observation]:
    """NST207 for the nodes of a forward graph that compute with an integer of the source that needs more than 32 bits.

    Source: [PRE] torch.compile executor and eager kernels of April 2026: int64 is computed as int32, and wraps.
    """
    if graph.direction != "forward":
        return
    for node in graph.spec.nodes:
        large = _beyond_32_bits(node) if _is_computing(node) else None
        if large is None or not (_has(node.value, torch.int64) or _takes(graph, node, torch.int64)):
            continue
        message = (
            f"{node.target} computes with {large}, which needs more than 32 bits: a pre-release of April 2026 computed "
            "64-bit integers as 32-bit ones, so that it possibly wraps, and nothing fails"
        )
        yield _of_node(graph, node, policy, message, _BELOW_32_BITS)


def _of_node(graph: CapturedGraph, node: NodeSpec, policy: SitePolicy, message: str, remedy: str) -> Observation:
    """NST207 for a node as it was captured."""
    origin = graph.origins.get(node.name, Origin())
    return Observation(
        rule="NST207",
        op=str(node.target),
        called_as=origin.called_as,
        phase=graph.direction,
        site=policy.choose(origin.frames),
        module=origin.module,
        shapes=tuple(str(value) for value in values(node.value) if isinstance(value, TensorSpec)),
        calls=calls_of(graph),
        exact=graph.runs is not None,
        witnesses=WITNESS,
        stage="captured",
        message=message,
        remedy=remedy,
    )


def _is_computing(node: NodeSpec) -> bool:
    return node.is_op and base_name(str(node.target)).partition("::")[2] in _COMPUTING


def _beyond_32_bits(node: NodeSpec) -> int | None:
    """The first integer among the arguments that int32 does not hold."""
    given = (value for value in inputs_of(node) if isinstance(value, int))
    return next((value for value in given if not -(2**31) <= value < 2**31), None)


def integers(graphs: Iterable[CapturedGraph]) -> NotChecked | None:
    """That integers beyond 32 bits are not looked for, where there are 64-bit ones.

    It is no finding: every language model has some.

    Source: [PRE] torch.compile executor of April 2026: int64 and uint64 are viewed as 32-bit integers.
    """
    nodes = sum(_has(node.value, torch.int64) for graph in graphs for node in graph.spec.nodes)
    if not nodes:
        return None
    return NotChecked(
        what="integers that need more than 32 bits",
        why=f"no values are looked at but those that the source has, and {nodes} nodes and inputs of graphs are of "
        "int64, which a pre-release of April 2026 computed as 32-bit integers",
    )


def _has(value: object, dtype: torch.dtype) -> bool:
    return any(isinstance(one, TensorSpec) and one.dtype == dtype for one in values(value))


def _takes(graph: CapturedGraph, node: NodeSpec, dtype: torch.dtype) -> bool:
    refs = (value for value in inputs_of(node) if isinstance(value, Ref))
    return any(_has(graph.spec.by_name[ref.name].value, dtype) for ref in refs)
