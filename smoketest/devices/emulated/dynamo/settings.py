"""The switches of the backend that an emulation can follow: environment variables, and options of torch.compile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Settings"]

_PREFIX = "TORCH_NEURONX_"


@dataclass(frozen=True)
class Settings:
    """How one graph of Dynamo's is to be compiled and run.

    Attributes:
        raises: a graph that fails raises, instead of running op by op. ``TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION``,
            1 by default, and the option ``fallback_execution`` that overrides it ([PUB] env-vars page).
        copies_inputs: CPU tensors given to a graph are taken as if copied. Not with
            ``TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY=1`` ([PUB] that there is the variable, [PRE] what it does).
        retains_device: results the graph puts on the CPU stay there, instead of on the device.
            ``TORCH_NEURONX_RETAIN_DEVICE_MODE=1`` ([PRE]).
        model_name: what graphs are called in metrics and artifacts; the option ``model_name`` ([PRE]).
        artifacts: where graphs are written; None where nothing is kept. ``TORCH_NEURONX_DEBUG_DIR``, with
            ``TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS=1`` ([PUB] env-vars page).
    """

    raises: bool = True
    copies_inputs: bool = True
    retains_device: bool = False
    model_name: str = "model_default"
    artifacts: Path | None = None

    @classmethod
    def read(cls, options: Mapping[str, Any] | None, environment: Mapping[str, str]) -> Settings:
        """What the options of a ``torch.compile`` call and the environment ask for; other options are not read."""
        given = options or {}

        def is_on(name: str, default: bool) -> bool:
            return environment.get(_PREFIX + name, str(int(default))).lower() in ("1", "true")

        raises = is_on("DISABLE_FALLBACK_EXECUTION", default=True)
        if "fallback_execution" in given:
            raises = not given["fallback_execution"]
        keeps = is_on("PRESERVE_COMPILATION_ARTIFACTS", default=False)
        return cls(
            raises=raises,
            copies_inputs=not is_on("DYNAMO_DISABLE_CPU_AUTOCOPY", default=False),
            retains_device=is_on("RETAIN_DEVICE_MODE", default=False),
            model_name=str(given.get("model_name", cls.model_name)),
            artifacts=Path(environment.get(_PREFIX + "DEBUG_DIR", "/tmp/neuron_backend")) if keeps else None,
        )
