"""Which device a process has among those of a job: the one of its local rank, as PyTorch's launcher names it.

PyTorch's guard for Python backends has one device, so that tensors of every process say ``neuron:0``. An index that
the user wrote and one that was read from a tensor look alike in a kernel: there 0 passes in any process. Where the
user names a device himself (``torch.neuron.set_device``, or text such as ``"neuron:0"`` while `WrittenIndices` is
entered), it has to be the local rank.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from smoketest.devices.emulated.compat import NAME

__all__ = ["WrittenIndices", "local_rank", "refuse_index"]


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


class WrittenIndices(TorchFunctionMode):
    """Refuses ``x.to("neuron:0")``, ``torch.zeros(2, device="neuron:0")`` and the like where 0 is not the local rank.

    A `torch.device` passes: nothing tells one that the user made from one that was read from a tensor.

    Raises:
        ValueError: text names the device of another rank.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for value in (*args[:2], (kwargs or {}).get("device")):
            if isinstance(value, str) and value.startswith(f"{NAME}:") and value[len(NAME) + 1 :].isdecimal():
                refuse_index(int(value[len(NAME) + 1 :]))
        return func(*args, **(kwargs or {}))
