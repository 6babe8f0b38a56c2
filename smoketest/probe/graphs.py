"""Graphs as plain data: what capture writes down, and what the lowering process can rebuild without the model.

A `GraphSpec` holds shapes, dtypes and scalars, never a tensor's values, so it can be pickled, hashed and written into
a repro file. Both sides of the lowering process read this module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

__all__ = [
    "GraphSpec",
    "HigherOrder",
    "NodeSpec",
    "Other",
    "Ref",
    "Symbolic",
    "TensorSpec",
    "cut_out",
    "gives_nothing",
    "inline",
    "map_values",
    "name_of",
    "one_op",
    "overload",
    "short",
    "signature",
    "values",
]


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{short(self.dtype)}{list(self.shape)}"


@dataclass(frozen=True)
class Symbolic:
    """A size or a scalar that is not known when the graph is captured (``s0``, ``u1``)."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Other:
    """A value that no operator of a lowerable graph takes: a submodule, an opaque object."""

    text: str


@dataclass(frozen=True)
class Ref:
    """The value of another node of the same graph, by the node's name."""

    name: str


@dataclass(frozen=True)
class HigherOrder:
    """Target of a node that calls a higher-order op (``cond``, ``flex_attention``)."""

    name: str


Value = Any
"""TensorSpec, Symbolic, Other, a Python scalar, None, or a tuple of these."""


@dataclass(frozen=True)
class NodeSpec:
    """One node.

    Attributes:
        name: unique in its graph.
        target: ``aten::sort.values_stable`` for a call of an operator; `HigherOrder`; ``getitem``; for what is not a
            call: ``placeholder``, ``output``, or ``unknown:…`` where the graph holds something else.
        args: positional arguments; `Ref` for values of other nodes, tuples for lists.
        kwargs: keyword arguments, sorted by name.
        value: what the node gives.
    """

    name: str
    target: str | HigherOrder
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    value: Value = None

    @property
    def is_op(self) -> bool:
        """Whether it calls an operator of the dispatcher."""
        return isinstance(self.target, str) and "::" in self.target


@dataclass(frozen=True)
class GraphSpec:
    """A graph in topological order; placeholders first, one ``output`` node last."""

    nodes: tuple[NodeSpec, ...]
    by_name: Mapping[str, NodeSpec] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {node.name: node for node in self.nodes})

    def node_of(self, name: str | None) -> NodeSpec | None:
        """The node of a name, or the one that an inlined body's node stands for (``x__mul`` is of ``x``)."""
        part = name or ""
        while part and part not in self.by_name:
            part = part.rpartition("__")[0]
        return self.by_name.get(part)

    def __getstate__(self) -> tuple[NodeSpec, ...]:
        return self.nodes

    def __setstate__(self, nodes: tuple[NodeSpec, ...]) -> None:
        object.__setattr__(self, "nodes", nodes)
        self.__post_init__()


def overload(name: str) -> torch._ops.OpOverload:
    """The operator called ``aten::lgamma`` or ``aten::add.Tensor``. Raises AttributeError where there is none."""
    namespace, _, rest = name.partition("::")
    base, _, kind = rest.partition(".")
    found: torch._ops.OpOverload = getattr(getattr(getattr(torch.ops, namespace), base), kind or "default")
    return found


def name_of(op: torch._ops.OpOverload) -> str:
    """``aten::lgamma`` or ``aten::add.Tensor``."""
    name: str = op.name()  # type: ignore[no-untyped-call]
    return name


def map_values(value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with `change` applied to everything in it that is not a tuple."""
    if isinstance(value, tuple):
        return tuple(map_values(item, change) for item in value)
    return change(value)


def values(value: Any) -> Iterator[Any]:
    """Everything in `value` that is not a tuple, in order."""
    if isinstance(value, tuple):
        for item in value:
            yield from values(item)
    else:
        yield value


def inputs_of(node: NodeSpec) -> Iterator[Any]:
    """Every argument of a node, lists flattened, in order."""
    yield from values(node.args)
    for _, value in node.kwargs:
        yield from values(value)


def one_op(graph: GraphSpec, node: NodeSpec) -> GraphSpec:
    """The graph of `node` alone: values of other nodes become inputs, with equal refs sharing one."""
    placeholders: dict[Ref, NodeSpec] = {}

    def as_input(value: Any) -> Any:
        if not isinstance(value, Ref):
            return value
        produced = graph.by_name[value.name].value
        if not isinstance(produced, TensorSpec):
            return produced
        if value not in placeholders:
            placeholders[value] = NodeSpec(f"arg{len(placeholders)}", "placeholder", value=produced)
        return Ref(placeholders[value].name)

    args = map_values(node.args, as_input)
    kwargs = tuple((name, map_values(value, as_input)) for name, value in node.kwargs)
    call = NodeSpec("op", node.target, args, kwargs, node.value)
    return GraphSpec((*placeholders.values(), call, *_outputs(call)))


def _outputs(call: NodeSpec) -> Iterator[NodeSpec]:
    """Nodes that return every tensor `call` gives."""
    if isinstance(call.value, TensorSpec):
        yield NodeSpec("output", "output", ((Ref(call.name),),))
        return
    items = call.value if isinstance(call.value, tuple) else ()
    picked = [
        NodeSpec(f"out{i}", "getitem", (Ref(call.name), i), value=item)
        for i, item in enumerate(items)
        if isinstance(item, TensorSpec)
    ]
    yield from picked
    yield NodeSpec("output", "output", (tuple(Ref(node.name) for node in picked),))


def cut_out(graph: GraphSpec, names: Collection[str]) -> GraphSpec | None:
    """`graph` without the nodes named, whose results become inputs; None where no call is left.

    What the nodes took becomes an output beside those there were: were it dead, a compiler would drop it unseen. A node
    that takes what is no tensor from one that is cut out (an unknown size) goes with it.
    """
    gone = set(names)
    inputs: list[NodeSpec] = []
    calls: list[NodeSpec] = []
    taken: dict[Ref, None] = {}
    for node in graph.nodes:
        refs = [value for value in inputs_of(node) if isinstance(value, Ref)]
        lost = [ref for ref in refs if ref.name in gone]
        if node.target == "output":
            own = {call.name for call in calls}
            calls.append(replace(node, args=(tuple(dict.fromkeys(ref for ref in (*refs, *taken) if ref.name in own)),)))
        elif node.name in names or lost:
            gone.add(node.name)
            taken.update(dict.fromkeys(ref for ref in refs if _is_tensor(graph, ref)))
            if isinstance(node.value, TensorSpec) and node.target != "placeholder":
                gone.discard(node.name)
                inputs.append(NodeSpec(node.name, "placeholder", value=node.value))
        elif node.target == "placeholder":
            inputs.append(node)
        else:
            calls.append(node)
    if all(node.target in ("getitem", "output") for node in calls):
        return None
    used = {ref for node in calls for ref in inputs_of(node) if isinstance(ref, Ref)}
    return GraphSpec((*(node for node in inputs if Ref(node.name) in used), *calls))


def gives_nothing(graph: GraphSpec) -> bool:
    """Whether the graph neither gives a tensor nor writes to an input."""
    *nodes, output = graph.nodes
    given = [value for value in inputs_of(output) if isinstance(value, Ref) and _is_tensor(graph, value)]
    return not given and all(node.target != "aten::copy_" for node in nodes)


def signature(graph: GraphSpec) -> tuple[NodeSpec, ...]:
    """What two one-op graphs must have in common to lower alike; hashable, tells 1 from 1.0 and True."""
    return tuple(replace(n, args=_typed(n.args), kwargs=_typed(n.kwargs)) for n in graph.nodes)


def _typed(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_typed(item) for item in value)
    return (type(value).__name__, repr(value) if isinstance(value, float) else value)


def inline(graph: GraphSpec, bodies: Mapping[str, GraphSpec]) -> GraphSpec:
    """`graph` with the nodes named in `bodies` replaced by their bodies.

    A body's placeholders stand for the node's tensor arguments in order of first use; placeholders beyond those become
    inputs of the graph. Its output node lists what the node gives, in order.
    """
    new_inputs: list[NodeSpec] = []
    body_nodes: list[NodeSpec] = []
    results: dict[str, tuple[Any, ...]] = {}
    renamed: dict[str, Any] = {}

    def now(value: Any) -> Any:
        return renamed.get(value.name, value) if isinstance(value, Ref) else value

    for node in graph.nodes:
        node = _with_refs(node, now)
        if node.target == "getitem" and node.args[0].name in results:
            renamed[node.name] = results[node.args[0].name][node.args[1]]
            continue
        if node.name not in bodies:
            body_nodes.append(node)
            continue
        inner, extra, outputs = _instance(bodies[node.name], node, graph)
        body_nodes.extend(inner)
        new_inputs.extend(extra)
        if isinstance(node.value, tuple):
            results[node.name] = outputs
        else:
            renamed[node.name] = outputs[0]
    placeholders = [node for node in body_nodes if node.target == "placeholder"]
    calls = [node for node in body_nodes if node.target != "placeholder"]
    return GraphSpec((*placeholders, *new_inputs, *calls))


def _instance(
    body: GraphSpec, node: NodeSpec, graph: GraphSpec
) -> tuple[list[NodeSpec], list[NodeSpec], tuple[Any, ...]]:
    """Nodes of `body` under names of their own, the inputs it adds, and what it gives."""
    given = iter(dict.fromkeys(v for v in inputs_of(node) if isinstance(v, Ref) and _is_tensor(graph, v)))
    own: dict[str, Any] = {}
    inner: list[NodeSpec] = []
    extra: list[NodeSpec] = []

    def now(value: Any) -> Any:
        return own[value.name] if isinstance(value, Ref) else value

    for part in body.nodes:
        name = f"{node.name}__{part.name}"
        if part.target == "output":
            return inner, extra, tuple(map_values(part.args[0], now))
        if part.target == "placeholder":
            argument = next(given, None)
            if argument is None:
                extra.append(replace(part, name=name))
            own[part.name] = argument or Ref(name)
            continue
        own[part.name] = Ref(name)
        inner.append(replace(_with_refs(part, now), name=name))
    raise ValueError(f"the body of {node.name} has no output node")


def _is_tensor(graph: GraphSpec, ref: Ref) -> bool:
    """Whether a ref gives a tensor; values that came from an inlined body are tensors."""
    return ref.name not in graph.by_name or isinstance(graph.by_name[ref.name].value, TensorSpec)


def _with_refs(node: NodeSpec, now: Callable[[Any], Any]) -> NodeSpec:
    kwargs = tuple((name, map_values(value, now)) for name, value in node.kwargs)
    return replace(node, args=map_values(node.args, now), kwargs=kwargs)


_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def short(dtype: torch.dtype) -> str:
    """Such as f32, bf16, i64, bool."""
    name = str(dtype).removeprefix("torch.")
    kind = name.rstrip("0123456789")
    return _SHORT[kind] + name[len(kind) :] if kind in _SHORT and kind != name else name
