"""The entry of the backend: what torch.compile calls with each graph of Dynamo's."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from smoketest.devices.emulated import attention
from smoketest.devices.emulated.device import EmulatedDevice
from smoketest.devices.emulated.dynamo import compat, metrics
from smoketest.devices.emulated.dynamo.compat import GraphType
from smoketest.devices.emulated.dynamo.execute import Executor, run_eagerly
from smoketest.devices.emulated.dynamo.lower import Lowering, refuse_without_engine
from smoketest.devices.emulated.dynamo.metrics import NeuronCompilationMetrics
from smoketest.devices.emulated.dynamo.passes import preprocess
from smoketest.devices.emulated.dynamo.settings import Settings
from smoketest.errors import DeviceUnavailable
from smoketest.operators.decompositions import decomposition_table
from smoketest.probe.graphs import name_of

__all__ = ["Backend"]

_PREFIX = "Neuron backend NEFF execution setup failed with unexpected error: "
"""In front of whatever stops the compilation of a graph ([PRE], [USER-B4])."""

_NARROWER = {"float64": (torch.float64, torch.float32), "int64": (torch.int64, torch.int32)}


class Backend:
    """``torch.compile(backend="neuron")`` on one emulated device.

    Args:
        device: its profile says what lowers, its limits what is computed in fewer bits.
    """

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device
        self._lowering = Lowering(device.profile)
        # Kept whole for running: the fused op draws the dropout mask that eager mode draws, its decomposition none.
        self._kept = frozenset({attention.FUSED, attention.BACKWARD}) & device.profile.native
        self._decompositions = {
            op: function
            for op, function in decomposition_table(device.profile.decompositions).items()
            if name_of(op) not in self._kept
        }
        index_put = torch.ops.aten.index_put.default
        if index_put in self._decompositions:
            self._decompositions[index_put] = _refusing_masks(self._decompositions[index_put])

    def __call__(
        self,
        graph: fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        options: dict[str, Any] | None = None,
        mode: str | None = None,
    ) -> Callable[..., Any]:
        """Compile a graph of Dynamo's.

        Args:
            graph: what Dynamo captured.
            example_inputs: its inputs.
            options: see `Settings.read`; other keys are not read ([PUB] reference-torch-compile: only a few are).
            mode: any but the default is warned about ([PRE] wording; that it is, [PUB] reference-torch-compile).

        Raises:
            DeviceUnavailable: there is no torch-mlir to lower with.
            Exception: see `preprocess`.
            RuntimeError: a forward graph cannot be compiled; Dynamo makes a BackendCompilerFailed of all of these.
        """
        refuse_without_engine()
        if mode not in (None, "default"):
            # The backend uses the root logger ([PRE] neuron_dynamo_backend/backend.py).
            logging.warning(f"Neuron backend does not support mode='{mode}', falling back to default mode.")
        metrics.write_at_exit(os.environ)
        settings = Settings.read(options, os.environ)
        preprocess(graph)

        def compile_graph(made: fx.GraphModule, kind: GraphType) -> Callable[[list[Any]], Any]:
            return self._compile(made, kind, settings)

        compiled: Callable[..., Any] = compat.aot_backend(compile_graph, self._decompositions)(graph, example_inputs)
        return compiled

    def _compile(self, graph: fx.GraphModule, kind: GraphType, settings: Settings) -> Callable[[list[Any]], Any]:
        """One graph of AOTAutograd's, as a function of its inputs in a list.

        Raises:
            RuntimeError: it cannot be compiled. A backward graph is compiled when it is first run, so it is
                ``backward()`` that raises.
        """
        name = _name(settings.model_name, kind)
        _keep(graph, name, settings)
        took: list[float] = []
        try:
            with compat.timed("torch_neuronx_fx_passes", took.append):
                executor = Executor(graph, settings, self._narrowing())
            with compat.timed("torch_neuronx_lower", took.append):
                self._lowering.check(graph, self._kept)
        except DeviceUnavailable:
            raise
        except Exception as error:
            failure = RuntimeError(f"{_PREFIX}{error}")
            failure.__cause__ = error
            if settings.raises:
                raise failure from error
            return lambda args: run_eagerly(graph, args, failure)
        compat.count("compiled_graphs")
        metrics.record(_metrics(graph, name, settings, took))
        if metrics.get_dynamo_metrics()[-1].has_collectives:
            compat.count("graphs_with_collectives")
        return executor

    def _narrowing(self) -> dict[torch.dtype, torch.dtype]:
        """What 64-bit dtypes are computed as: the same limits act as on eager ops."""
        strict = self._device.strict_limits
        acting = {limit.what for limit in self._device.profile.limits if strict or limit.grade != "PRE"}
        return dict(pair for what, pair in _NARROWER.items() if what in acting)


def _refusing_masks(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``index_put``, with the backend's refusal ([PRE] decompositions.py; its class is not known).

    It takes apart one boolean mask with one value; integers are lowered as they are.
    """

    def index_put(x: Any, indices: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        made = decomposition(x, indices, *args, **kwargs)
        if made is NotImplemented and any(index is not None and index.dtype is torch.bool for index in indices):
            raise RuntimeError(
                "Boolean index_put is not supported in torch.compile on Neuron. "
                "Boolean indices require nonzero() which produces dynamic shapes."
            )
        return made

    return index_put


def _name(model: str, kind: GraphType) -> str:
    number, nth = compat.graph_number()
    return f"{model}_{number}_{kind}_{nth}"


def _keep(graph: fx.GraphModule, name: str, settings: Settings) -> None:
    """Write the graph where the backend writes it, before it is lowered ([PRE] ``save_fx_graph_txt``)."""
    if settings.artifacts is None:
        return
    folder = settings.artifacts / "fx_graphs" / f"proc_{os.environ.get('RANK', '0')}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}_{time.time_ns()}.fx.txt").write_text(f"{graph.graph}\n", encoding="utf-8")


def _metrics(graph: fx.GraphModule, name: str, settings: Settings, took: list[float]) -> NeuronCompilationMetrics:
    text = str(graph.graph)
    return NeuronCompilationMetrics(
        graph_id=hashlib.sha256(text.encode()).hexdigest()[:16],
        graph_name=name,
        model_name=settings.model_name,
        has_collectives="c10d_functional" in text,
        graph_node_count=len(graph.graph.nodes),
        timestamp=time.time(),
        torch_neuronx_fx_passes_us=round(took[0] * 1e6),
        torch_neuronx_lower_us=round(took[1] * 1e6),
    )
