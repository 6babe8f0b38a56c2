"""The registry witness: which ops the backend has a kernel for now, by PyTorch's own table of kernels.

It tells an op that has no kernel (``unimplemented``) from one whose kernel did not run. It cannot see whether a kernel
works, nor what a kernel does inside, nor why it did not run, which is the strict witness's question. On the emulated
device it is not asked: the kernels there are made from the operator profile, which knows them better.
"""

from __future__ import annotations

from smoketest.witness.compat import has_device_kernel, overloads_of, registry_is_readable

__all__ = ["Registry"]


class Registry:
    """What is registered under the backend's dispatch key; asked anew each time, as libraries may register more.

    Args:
        on: whether to ask at all.

    Attributes:
        readable: whether it can tell anything; the table has no public interface.
    """

    def __init__(self, on: bool = True) -> None:
        self.readable = on and registry_is_readable()

    def has_kernel(self, name: str) -> bool | None:
        """Whether the backend has a kernel for an op; None where nobody can tell.

        Args:
            name: as a witness gave it. An overload (``aten::sort.values_stable``, ``aten::mm``) is looked up as it is.
                A bare name (``gather``, ``gather.out``), as the backend's hand-written kernels record it ([PRE]
                internals 2.6) and log lines say it, has one if any overload of that op has.
        """
        if not self.readable:
            return None
        namespace, _, rest = name.rpartition("::")
        overloads = overloads_of(f"{namespace or 'aten'}::{rest.partition('.')[0]}")
        if namespace and name in overloads:
            return has_device_kernel(name)
        return any(has_device_kernel(overload) for overload in overloads)
