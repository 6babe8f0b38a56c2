"""Which device a process has among those of a job: the one of its local rank, as PyTorch's launcher names it.

PyTorch's guard for Python backends has one device, so that tensors of every process say ``neuron:0``. An index that
the user wrote and one that was read from a tensor look alike in a kernel: there 0 passes in any process. Where the
user names a device himself (``torch.neuron.set_device``), it has to be the local rank.
"""

from __future__ import annotations

import os

__all__ = ["local_rank", "refuse_index"]


def local_rank() -> int:
    """``LOCAL_RANK``, which torchrun sets; 0 where it does not say a number."""
    given = os.environ.get("LOCAL_RANK", "")
    return int(given) if given.isdecimal() else 0


def refuse_index(index: int | None, *, from_tensors: bool = False) -> None:
    """Check that a device index is the process's own.

    Args:
        index: None for the bare device.
        from_tensors: whether it may have been read from a tensor of this process.

    Raises:
        ValueError: it is another's ([PRE] wording of ``torch_neuronx.set_device``; rule ``device_index``).
    """
    if index is None or index == local_rank() or (from_tensors and index == 0):
        return
    raise ValueError(f"Invalid device id: {index}")
