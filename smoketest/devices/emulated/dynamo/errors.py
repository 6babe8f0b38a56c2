"""Exceptions of the backend, named as its own ([PRE] ``neuron_dynamo_backend.exceptions``, and its torch_mlir)."""

from __future__ import annotations

__all__ = ["NEFFExecutionError", "TorchMlirCompilerError"]


class TorchMlirCompilerError(Exception):
    """A graph does not lower; its text begins with ``Failed Torch-MLIR`` and the stage."""


class NEFFExecutionError(Exception):
    """A compiled graph is called with what it was not compiled for."""
