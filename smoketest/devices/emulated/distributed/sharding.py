"""What DTensor has no rule for because no backend of PyTorch's own registers it: computed by ops that it has rules for.

The device has kernels for ``linear`` and ``linear_backward``, so autograd takes the latter, where on the CPU and on
CUDA it differentiates the products that ``linear`` is made of. Tensor parallelism is documented to work on the device
([PUB] torch-distributed guide); by which ops it computes these gradients there is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from smoketest.devices.emulated.distributed import compat
from smoketest.devices.emulated.substitutes import KERNELS

__all__ = ["install"]


def install() -> None:
    """Give DTensor what it lacks; it is loaded already."""
    for name in ("aten::linear_backward",):
        compat.handle_in_dtensor(name, _handler(KERNELS[name]))


def _handler(compute: Callable[..., Any]) -> Callable[..., Any]:
    def handler(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        del op
        return compute(*args, **kwargs)

    return handler
