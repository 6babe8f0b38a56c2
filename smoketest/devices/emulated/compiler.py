"""``torch.compile(backend="neuron")`` on the emulated device: known to Dynamo, and loaded with the first graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from smoketest.devices.emulated.compat import NAME, register_compile_backend

__all__ = ["register"]


def register() -> None:
    """Make the backend known to Dynamo under the name ``neuron``."""
    loaded: list[Callable[..., Any]] = []

    def neuron(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        if not loaded:
            from smoketest.devices.emulated.device import the_device
            from smoketest.devices.emulated.dynamo.backend import Backend

            loaded.append(Backend(the_device()))
        compiled: Callable[..., Any] = loaded[0](graph, example_inputs, **kwargs)
        return compiled

    register_compile_backend(NAME, neuron)
