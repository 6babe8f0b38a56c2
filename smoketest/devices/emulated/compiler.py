"""``torch.compile(backend="neuron")`` on the emulated device: known to Dynamo, and loaded with the first graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from smoketest.devices.emulated.compat import NAME, register_compile_backend

__all__ = ["register"]

_DEFAULT: Any = getattr(torch, "_TorchCompileInductorWrapper", None)
"""What ``torch.compile`` without a backend calls. Private: without it only the auto-selection is missing."""


def register() -> None:
    """Make the backend known to Dynamo under the name ``neuron``, and the default for graphs on the device.

    That it is the default there is [PUB] reference-torch-compile; how a release does it is not known.
    """
    loaded: list[Callable[..., Any]] = []

    def neuron(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        if not loaded:
            from smoketest.devices.emulated.device import the_device
            from smoketest.devices.emulated.dynamo.backend import Backend

            loaded.append(Backend(the_device()))
        compiled: Callable[..., Any] = loaded[0](graph, example_inputs, **kwargs)
        return compiled

    register_compile_backend(NAME, neuron)
    if _DEFAULT is not None:
        _select_for_device(neuron)


def _select_for_device(backend: Callable[..., Any]) -> None:
    elsewhere = _DEFAULT.__call__

    def call(self: Any, model_: torch.fx.GraphModule, inputs_: Sequence[Any], **kwargs: Any) -> Any:
        on_device = any(isinstance(value, Tensor) and value.device.type == NAME for value in inputs_)
        return backend(model_, inputs_) if on_device else elsewhere(self, model_, inputs_, **kwargs)

    _DEFAULT.__call__ = call
