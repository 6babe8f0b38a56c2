"""``torch.compile(backend="neuron")`` on the emulated device."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from smoketest.devices.emulated.compat import NAME, register_compile_backend, run_through_aot

__all__ = ["compile_graph", "register"]


def compile_graph(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Capture the graph as the backend does, and run it op by op on the emulated device.

    Forward and backward graph pass AOT autograd with the backend's decompositions. They are *not* lowered: an op that
    the real backend cannot compile runs here all the same. The compile probe is what finds those.

    Args:
        graph: what Dynamo captured.
        example_inputs: its inputs.
        options: accepted; nothing in it is read ([PUB] reference-torch-compile: only a few keys are).
        mode: any but the default is warned about ([PRE] wording; that it is, [PUB] reference-torch-compile).
    """
    if mode not in (None, "default"):
        # The backend uses the root logger ([PRE] neuron_dynamo_backend/backend.py).
        logging.warning(f"Neuron backend does not support mode='{mode}', falling back to default mode.")

    return run_through_aot(graph, example_inputs, _decompositions())


def register() -> None:
    """Make the backend known to Dynamo under the name ``neuron``."""
    register_compile_backend(NAME, compile_graph)


def _decompositions() -> dict[Any, Callable[..., Any]]:
    if importlib.util.find_spec("smoketest.operators.decompositions") is None:
        return {}
    from smoketest.operators.decompositions import decomposition_table

    return decomposition_table()
