"""One-op graphs written by hand."""

from __future__ import annotations

from typing import Any

from smoketest.probe.graphs import GraphSpec, NodeSpec, Ref, TensorSpec, map_values, one_op


def op(target: str, *args: Any, value: Any) -> GraphSpec:
    """The graph of one call; a `TensorSpec` among the arguments is an input."""
    inputs: list[NodeSpec] = []

    def as_input(argument: Any) -> Any:
        if not isinstance(argument, TensorSpec):
            return argument
        inputs.append(NodeSpec(f"input{len(inputs)}", "placeholder", value=argument))
        return Ref(inputs[-1].name)

    call = NodeSpec("call", target, map_values(args, as_input), (), value)
    return one_op(GraphSpec((*inputs, call)), call)
