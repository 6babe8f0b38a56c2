"""Versions and settings that a result depends on, read without importing any of the packages."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata

from smoketest.findings.report import Environment

__all__ = ["read_environment"]

_SETTINGS = ("TORCH_NEURONX_", "NEURON_", "TORCH_", "PYTORCH_")
"""Neuron's variables and PyTorch's own; nothing else of the environment is shown."""


def read_environment(variables: Mapping[str, str]) -> Environment:
    """The environment of this process.

    Args:
        variables: environment variables as the user set them, before the worker sets its own.
    """
    return Environment(
        python=platform.python_version(),
        torch=_version("torch"),
        torch_neuronx=_version("torch-neuronx"),
        torch_mlir=_version("torch-mlir"),
        neuronx_cc=_version("neuronx-cc"),
        platform=f"{platform.system()} {platform.machine()}",
        settings={name: variables[name] for name in sorted(variables) if name.startswith(_SETTINGS)},
    )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
