"""What the backend looks at before AOTAutograd: whether all shapes are static ([PRE] ``preprocess_graph``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.fx.passes.infra.pass_manager import PassManager

__all__ = ["preprocess"]

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def preprocess(graph: fx.GraphModule) -> None:
    """Run the backend's analyses on a graph of Dynamo's.

    Raises:
        Exception: the graph has dynamic shapes. The text is that of PyTorch's own pass manager, which the backend uses;
            the cause is a RuntimeError that names them. ``dynamic=True`` is refused ([PUB] reference-torch-compile),
            these are a pre-release's words ([PRE] dynamic_shape_analysis.py). There the analysis was reported to miss
            some graphs, which then failed while lowering; here it misses none.
    """
    PassManager([AliasingAnalysis(), DynamicShapeAnalysis()])(graph)


class AliasingAnalysis(PassBase):
    """Comes first, and is named in the error of the one that follows. It refuses nothing that is known."""

    def call(self, graph_module: fx.GraphModule) -> PassResult:
        """Change nothing."""
        return PassResult(graph_module, modified=False)


class DynamicShapeAnalysis(PassBase):
    """Refuses sizes and scalars that are not known beforehand."""

    def call(self, graph_module: fx.GraphModule) -> PassResult:
        """Change nothing.

        Raises:
            RuntimeError: there is such a size.
        """
        found: dict[str, fx.Node] = {}
        for node in graph_module.graph.nodes:
            for name in _symbols(node):
                found.setdefault(name, node)
        if not found:
            return PassResult(graph_module, modified=False)
        raise RuntimeError(
            "Dynamic shapes detected in the model, but torch-neuronx requires static shapes. "
            f"Found {len(found)} dynamic dimension(s): [{', '.join(found)}]\n"
            f"Source location: {_place(graph_module, found)}\n"
            "1. Compile with dynamic=False, so that each shape gets a graph of its own.\n"
            "2. Pad or bucket inputs to fixed sizes."
        )


def _symbols(node: fx.Node) -> Iterator[str]:
    value = node.meta.get("example_value", node.meta.get("val"))
    for item in value if isinstance(value, (tuple, list)) else (value,):
        sizes: Any = (*item.shape, *item.stride()) if isinstance(item, torch.Tensor) and _strided(item) else (item,)
        yield from (str(size.node.expr) for size in sizes if isinstance(size, torch.SymInt) and not _known(size))


def _strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided


def _known(size: torch.SymInt) -> bool:
    return bool(size.node.expr.is_number) or not str(size.node.expr).isidentifier()  # a product names no new dimension


def _place(graph: fx.GraphModule, found: dict[str, fx.Node]) -> str:
    """The line of the first dynamic node, or where it has none of the first node that uses it."""
    first = next(iter(found.values()))
    for node in (first, *first.users, *graph.graph.nodes):
        frames = _FRAME.findall(node.meta.get("stack_trace") or "")
        if frames:
            return "{}:{}".format(*frames[-1])
    return "unknown"
