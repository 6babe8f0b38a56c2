"""Running a compiled graph: by the CPU, on the memory of the device, past the device's kernels and their tracker.

A compiled graph is one program on the device: none of its ops is executed or falls back by itself, so the tracker is
told nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from smoketest.devices.emulated import attention
from smoketest.devices.emulated.compat import NAME
from smoketest.devices.emulated.crossing import leave, to_cpu, to_neuron
from smoketest.devices.emulated.dynamo.compat import increment_version
from smoketest.devices.emulated.dynamo.errors import NEFFExecutionError
from smoketest.devices.emulated.dynamo.settings import Settings
from smoketest.operators.functional import overload

__all__ = ["Executor", "run_eagerly"]

BACKEND_LOGGER = "torch_neuronx.neuron_dynamo_backend.backend"
"""[PRE] internals 3.4."""

_log = logging.getLogger(BACKEND_LOGGER)
_CPU = torch.device("cpu")


class Executor:
    """One compiled graph, called with a list of its inputs.

    Args:
        graph: after AOTAutograd, on the device.
        settings: how it is run.
        narrowing: what 64-bit dtypes are computed as; empty where they are computed as they are.
    """

    def __init__(self, graph: fx.GraphModule, settings: Settings, narrowing: Mapping[torch.dtype, torch.dtype]) -> None:
        self._graph = graph
        self._settings = settings
        self._narrowing = narrowing
        self._on_cpu = _on_cpu(graph, narrowing)
        self._inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
        (output,) = graph.graph.find_nodes(op="output")
        self._results: Sequence[Any] = output.args[0]
        self._written = sorted(_written(graph, self._inputs))

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """The graph's results.

        What running it raises goes on, or is logged in the backend's words and the graph runs op by op on the device
        ([PRE] executor.py, backend.py; internals 3.4).

        Raises:
            NEFFExecutionError: too many or too few inputs, or inputs of both devices where results retain theirs.
            RuntimeError: an input is on the CPU, and copying it is switched off.
        """
        given = list(args)
        args.clear()
        try:
            return self._run(given)
        except Exception as error:
            if self._settings.raises:
                raise
            return run_eagerly(self._graph, given, error)

    def _run(self, args: list[Any]) -> Sequence[Any]:
        self._refuse(args)
        results = self._on_cpu(*map(self._enter, args))
        for index in self._written:
            if isinstance(args[index], Tensor) and not args[index].is_cpu:
                increment_version(args[index])
        return tuple(self._leave(node, result, args) for node, result in zip(self._results, results, strict=True))

    def _refuse(self, args: list[Any]) -> None:
        if len(args) != len(self._inputs):
            raise NEFFExecutionError(f"Expected {len(self._inputs)} inputs, got {len(args)}")
        on_cpu = [index for index, value in enumerate(args) if isinstance(value, Tensor) and value.is_cpu]
        if on_cpu and not self._settings.copies_inputs:
            raise RuntimeError(
                f"Input tensor at index {on_cpu[0]} is on cpu device, expected {NAME}. "
                f"Move tensor to Neuron device first with tensor.to('{NAME}')"
            )
        if self._settings.retains_device and 0 < len(on_cpu) < sum(isinstance(value, Tensor) for value in args):
            # That it raises, and of which class, is [PRE]; its text is not known.
            raise NEFFExecutionError(f"inputs are on cpu and on {NAME}, with TORCH_NEURONX_RETAIN_DEVICE_MODE=1")

    def _enter(self, value: Any) -> Any:
        alias = to_cpu(value)
        narrower = self._narrowing.get(alias.dtype) if isinstance(alias, Tensor) else None
        if narrower is None:
            return alias
        narrow = alias.to(narrower)
        return narrow if narrower.is_floating_point else narrow.to(alias.dtype)

    def _leave(self, node: Any, result: Any, args: list[Any]) -> Any:
        if not isinstance(result, Tensor):
            return result
        if node in self._inputs:
            return args[self._inputs.index(node)]  # itself: autograd sees when it is written to before backward
        meant = node.meta.get("val")
        if isinstance(meant, Tensor):
            if meant.dtype in self._narrowing:
                result = result.to(meant.dtype)  # float64 again, where it was computed as float32
            if self._settings.retains_device and meant.is_cpu:
                return result
        return leave(result)


def run_eagerly(graph: fx.GraphModule, args: list[Any], error: Exception) -> Sequence[Any]:
    """Run a graph that failed op by op on the device, saying so in the backend's words ([PRE] backend.py)."""
    _log.error("Execution failed: %s", error)
    _log.warning("Falling back to original GraphModule execution")
    results: Sequence[Any] = graph.forward(*args)
    return results


def _on_cpu(graph: fx.GraphModule, narrowing: Mapping[torch.dtype, torch.dtype]) -> fx.GraphModule:
    """A copy of the graph that computes on CPU tensors: constants, devices in arguments, graphs of control flow."""
    floats = {wide: narrow for wide, narrow in narrowing.items() if wide.is_floating_point}

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return _CPU
        return floats.get(value, value) if isinstance(value, torch.dtype) else value

    copied = fx.Graph()
    copied.output(copied.graph_copy(graph.graph, {}))
    module = fx.GraphModule(graph, copied)
    for node in copied.nodes:
        if node.op == "call_function":
            node.args, node.kwargs = tree_map(moved, node.args), tree_map(moved, node.kwargs)
            node.target = _instead().get(node.target, node.target)
        elif node.op == "get_attr":
            held = _attribute(graph, node.target)
            owner, _, name = node.target.rpartition(".")
            setattr(module.get_submodule(owner), name, _moved_constant(held, narrowing, floats))
    module.recompile()
    return module


def _attribute(graph: fx.GraphModule, target: str) -> Any:
    owner, _, name = target.rpartition(".")
    return getattr(graph.get_submodule(owner), name)


def _moved_constant(
    held: Any, narrowing: Mapping[torch.dtype, torch.dtype], floats: Mapping[torch.dtype, torch.dtype]
) -> Any:
    if isinstance(held, fx.GraphModule):
        return _on_cpu(held, narrowing)
    if isinstance(held, Tensor):
        alias: Tensor = to_cpu(held.detach())
        return alias.to(floats.get(alias.dtype, alias.dtype))
    return held


def _instead() -> dict[Any, Callable[..., Any]]:
    """What to call on CPU tensors for ops that the CPU has no kernel for, and for views.

    A kernel may lay its result out otherwise than the fake tensors of the trace did: a view then has to copy.
    """
    kernels: dict[str, Callable[..., Any]] = {
        attention.FUSED: attention.fused,
        attention.BACKWARD: attention.fused_backward,
    }
    instead = {overload(name): _on_aliases(kernel) for name, kernel in kernels.items()}
    return {**instead, torch.ops.aten.view.default: torch.ops.aten.reshape.default}


def _on_aliases(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel of the device, called with CPU tensors and giving some."""

    def enter(value: Any) -> Any:
        return to_neuron(value) if isinstance(value, Tensor) else value

    def call(*args: Any, **kwargs: Any) -> Any:
        return tree_map(to_cpu, kernel(*tree_map(enter, args), **tree_map(enter, kwargs)))

    return call


def _written(graph: fx.GraphModule, inputs: list[fx.Node]) -> set[int]:
    """Which inputs the graph writes to."""
    found: set[int] = set()
    for node in graph.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
            info = argument.alias_info
            if info is not None and info.is_write and value in inputs:
                found.add(inputs.index(value))
    return found
