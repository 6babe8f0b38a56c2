"""The ``neuron`` process-group backend of the emulated device: its tensors cross to CPU aliases, and gloo carries them.

Nothing is copied on the way, and nothing is replaced but the kernels of ``c10d`` ops: DDP, FSDP, DTensor, functional
collectives and distributed checkpoints are PyTorch's own, and end in those.
"""

from __future__ import annotations

from smoketest.devices.emulated.distributed import backend, compat, rules, sharding
from smoketest.devices.emulated.distributed.backend import install

__all__ = ["MODULES", "install"]

MODULES = (backend, compat, rules, sharding)
"""Those whose functions run while an op does."""
