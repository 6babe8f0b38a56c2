"""How the optional parts of this package are installed: it is on no package index, so from a clone."""

from __future__ import annotations

from typing import Literal

__all__ = ["NEURONX", "NEURONX_INDEX", "Extra", "install"]

Extra = Literal["lowering", "hf"]

NEURONX = "pip install 'torch-neuronx>=2.13.3,<2.15'"
"""How torch-neuronx is installed: the one way that is told anywhere. Its range is that of the extra ``neuron``."""

NEURONX_INDEX = "AWS's own wheel index, named in the TorchNeuron quickstart"
"""[INFER] wheels of torch-neuronx are on this index only."""


def install(extra: Extra) -> str:
    """What to type for an optional part, and where; as the README has it."""
    return f'pip install ".[{extra}]" in a clone of smoketest'
