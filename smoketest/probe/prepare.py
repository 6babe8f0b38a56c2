"""Small rewrites between capture and lowering, and other ways to write an op that does not lower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx

from smoketest.operators.compat import fake_tensors
from smoketest.probe.from_fx import graph_spec
from smoketest.probe.graphs import GraphSpec, NodeSpec, Ref, TensorSpec, map_values, overload

__all__ = ["expanded", "lowerable"]

_HUGE = 2**62
Table = dict[OpOverload, Callable[..., Any]]


def lowerable(graph: GraphSpec) -> GraphSpec:
    """The graph with what the backend's own passes change before it lowers, and sentinels made plain.

    An input that is written back (``copy_``) becomes a value, as its FunctionalizeCopyInplace pass does [PRE], and the
    end of a slice that means "to the end" becomes the size: ``slice_scatter`` up to 2**63 - 1 takes torch-mlir
    20261001 down with std::bad_alloc after a minute.
    """
    return GraphSpec(tuple(_clamped(_functional(node), graph) for node in graph.nodes))


def _functional(node: NodeSpec) -> NodeSpec:
    return replace(node, target="aten::copy") if node.target == "aten::copy_" else node


def _clamped(node: NodeSpec, graph: GraphSpec) -> NodeSpec:
    if not node.is_op or not any(_is_huge(value) for value in node.args):
        return node
    schema = overload(str(node.target))._schema
    named = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False))
    sizes = _sizes(named, graph)
    dim = named.get("dim", 0)
    if sizes is None or not isinstance(dim, int) or not -len(sizes) <= dim < len(sizes):
        return node
    return replace(node, args=tuple(sizes[dim] if _is_huge(value) else value for value in node.args))


def _is_huge(value: Any) -> bool:
    return isinstance(value, int) and value >= _HUGE


def _sizes(named: dict[str, Any], graph: GraphSpec) -> tuple[int, ...] | None:
    """The shape that ``dim`` counts in: that of ``self``, or of the input in a backward op."""
    if "input_sizes" in named:
        return tuple(named["input_sizes"])
    source = named.get("self")
    held = graph.by_name[source.name].value if isinstance(source, Ref) and source.name in graph.by_name else None
    return held.shape if isinstance(held, TensorSpec) else None


def expanded(graph: GraphSpec, table: Table) -> GraphSpec | None:
    """A one-op graph with the op taken apart by `table`; None where that changes nothing or does not work.

    Traced with fake tensors. Outputs are those of the op, in order; the ones it gives as None or as a number stay so.
    """
    call = next(node for node in graph.nodes if node.is_op)
    op = overload(str(call.target))
    placeholders = [node for node in graph.nodes if node.target == "placeholder"]

    def run(*tensors: torch.Tensor) -> Any:
        given = {node.name: tensor for node, tensor in zip(placeholders, tensors, strict=True)}
        args = [_argument(value, given) for value in call.args]
        kwargs = {name: _argument(value, given) for name, value in call.kwargs}
        result = op(*args, **kwargs)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    with fake_tensors():
        tensors = [torch.empty(node.value.shape, dtype=node.value.dtype) for node in placeholders]
        try:
            traced = make_fx(run, decomposition_table=table, tracing_mode="fake")(*tensors)
        except Exception:  # a decomposition may raise whatever it likes on arguments it was not written for
            return None
    spec = lowerable(graph_spec(traced.graph))
    return None if any(node.target == call.target for node in spec.nodes) else spec


def _argument(value: Any, given: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, tuple):
        return [_argument(item, given) for item in value]
    return given[value.name] if isinstance(value, Ref) else value


def tensor_outputs(graph: GraphSpec) -> GraphSpec:
    """The graph giving only its tensors, to lower a body on its own."""
    *nodes, output = graph.nodes
    refs = tuple(value for value in output.args[0] if isinstance(value, Ref))
    return GraphSpec((*nodes, replace(output, args=(map_values(refs, lambda value: value),))))
