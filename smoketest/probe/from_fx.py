"""From a torch.fx graph, as AOTAutograd leaves it, to a `GraphSpec`."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from smoketest.probe.graphs import GraphSpec, HigherOrder, NodeSpec, Other, Ref, Symbolic, TensorSpec, name_of, short

__all__ = ["graph_spec", "node_value", "value_spec"]

_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format)


def graph_spec(graph: fx.Graph) -> GraphSpec:
    """The graph as plain data. Constants held by the graph module become inputs of their shape and dtype."""
    return GraphSpec(tuple(_node(node) for node in graph.nodes))


def _node(node: fx.Node) -> NodeSpec:
    args = tuple(_argument(value) for value in node.args)
    kwargs = tuple(sorted((name, _argument(value)) for name, value in node.kwargs.items()))
    return NodeSpec(node.name, _target(node), args, kwargs, node_value(node))


def _target(node: fx.Node) -> str | HigherOrder:
    target = node.target
    if node.op in ("placeholder", "output"):
        return node.op
    if node.op == "get_attr":
        return "placeholder"
    if isinstance(target, torch._ops.OpOverload):
        return name_of(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return HigherOrder(str(target.name()))  # type: ignore[no-untyped-call]
    if target is operator.getitem:
        return "getitem"
    return f"unknown:{getattr(target, '__name__', target)}"


def _argument(value: Any) -> Any:
    if isinstance(value, fx.Node):
        return Ref(value.name)
    if isinstance(value, (list, tuple)):
        return tuple(_argument(item) for item in value)
    if isinstance(value, slice):
        return Other(str(value))
    return value_spec(value)


def node_value(node: fx.Node) -> Any:
    """What a node gives, as recorded by fake-tensor propagation."""
    if node.op == "get_attr" and isinstance(node.target, str):
        return value_spec(node.meta.get("val", _attribute(node)))
    return value_spec(node.meta.get("val"))


def _attribute(node: fx.Node) -> Any:
    held: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        held = getattr(held, part, None)
    return held


def value_spec(value: Any) -> Any:
    """A tensor's shape and dtype, a scalar as it is; devices become the CPU, since graphs carry no device here."""
    if isinstance(value, torch.Tensor):
        sizes = tuple(value.shape)
        if all(isinstance(size, int) for size in sizes):
            return TensorSpec(sizes, value.dtype)
        return Symbolic(f"{short(value.dtype)}[{', '.join(map(str, sizes))}]")
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return Symbolic(str(value))
    if isinstance(value, (list, tuple)):
        return tuple(value_spec(item) for item in value)
    if isinstance(value, torch._ops.OpOverload):
        return Other(name_of(value))
    return value if isinstance(value, _PLAIN) else Other(type(value).__name__)
