"""The private PyTorch API of the compile backend, in one place. ``DRIFT`` lists it; a test fails when a name goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, cast

import torch
from torch import fx
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.logging_utils import get_aot_compilation_context
from torch._subclasses.fake_tensor import unset_fake_temporarily

__all__ = ["DRIFT", "GraphType", "aot_backend", "count", "graph_number", "increment_version", "timed"]

DRIFT = (
    "torch._dynamo.backends.common.aot_autograd",
    "torch._dynamo.utils.compilation_time_metrics",
    "torch._dynamo.utils.counters",
    "torch._functorch._aot_autograd.logging_utils.get_aot_compilation_context",
    "torch._subclasses.fake_tensor.unset_fake_temporarily",
)

GraphType = Literal["forward", "backward", "inference"]
Compile = Callable[[fx.GraphModule, GraphType], Callable[[list[Any]], Any]]


def aot_backend(compile_graph: Compile, decompositions: dict[Any, Callable[..., Any]]) -> Callable[..., Any]:
    """A backend for torch.compile that has each graph of AOTAutograd's compiled by ``compile_graph``.

    Args:
        compile_graph: given the graph and what it is of; returns a function of one list of arguments.
        decompositions: applied while AOTAutograd traces.
    """

    def compiler(kind: GraphType) -> Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
        def compile_one(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
            with unset_fake_temporarily():  # AOTAutograd's mode is still on, and a graph's constants are real
                run: Any = compile_graph(graph, kind)
            run._boxed_call = True  # AOTAutograd then hands over the list, so that memory can be freed on the way
            return cast("Callable[..., Any]", run)

        return compile_one

    backend: Callable[..., Any] = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=decompositions,
        keep_inference_input_mutations=True,
    )
    return backend


def graph_number() -> tuple[str, int]:
    """AOTAutograd's number of the function being compiled, and how many graphs it has compiled before."""
    being_compiled, _, nth = get_aot_compilation_context()
    return (being_compiled[0].partition("_")[0] if being_compiled else "0"), nth


def count(name: str) -> None:
    """Add one to ``torch._dynamo.utils.counters["neuron"][name]``."""
    dynamo_utils.counters["neuron"][name] += 1


@contextmanager
def timed(name: str, add: Callable[[float], None]) -> Iterator[None]:
    """Take the time of a piece of work, for Dynamo's own table and for ``add`` (seconds)."""
    began = time.perf_counter()
    try:
        yield
    finally:
        took = time.perf_counter() - began
        dynamo_utils.compilation_time_metrics.setdefault(name, []).append(took)
        add(took)


def increment_version(tensor: torch.Tensor) -> None:
    """Tell autograd that a tensor was written to: through an alias of its memory, which it does not see."""
    torch.autograd.graph.increment_version(tensor)
