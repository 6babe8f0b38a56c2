"""The last op and module, for the breadcrumb, in steps whose times do not count; and where that op came from."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from smoketest.devices.emulated.adapter import EmulatedAdapter
from smoketest.witness.context import Context
from smoketest.witness.dispatch import Calls, FailedOp, OpKey
from smoketest.witness.sites import ModuleStack, Origins
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.job import Job

__all__ = ["LastKernel", "LastOp"]


class LastOp:
    """Writes each op into the breadcrumb before it runs, while entered.

    The emulated device tells its kernels one by one; elsewhere a dispatch mode sees what is called, and only on the
    main thread: an exception that leaves a dispatch mode on autograd's device thread is lost (torch 2.13 ends in
    `SystemError`, or aborts), and warm-up steps are where ops raise.

    Args:
        job: whose device and breadcrumb.
        model: gives the module's name; None while there is none.
    """

    def __init__(self, job: Job, model: nn.Module | None = None) -> None:
        self._job = job
        self._modules = ModuleStack(model) if model is not None else None
        self._entered = ExitStack()
        self._mode: ExitStack | None = None

    def __enter__(self) -> Self:
        if self._modules is not None:
            self._entered.enter_context(self._modules)
        device, crumb = self._job.device, self._job.breadcrumb
        if isinstance(device, EmulatedAdapter):
            device.device.observe(lambda name, fell_back: crumb.op(name, self.module()))
            self._entered.callback(device.device.observe, None)
        else:
            self._mode = self._entered.enter_context(ExitStack())
            self.begin_phase("setup")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.close()

    def begin_phase(self, phase: str) -> None:
        """Watch with the dispatch mode, or not, in what comes next."""
        if self._mode is None:
            return
        self._mode.close()
        if self._job.device.kind == "cpu" or phase in ("setup", "forward", "optimizer"):
            self._mode.enter_context(_Mode(self, self._job.breadcrumb))

    def module(self) -> str | None:
        """The innermost module whose forward runs on this thread."""
        return self._modules.innermost()[0] if self._modules is not None else None


class LastKernel:
    """Knows where the last kernel of the emulated device came from, and which fell back, while entered.

    Args:
        device: the emulated one.
        origins: finds module and line.
        modules: entered with it.
        context: says in which phase the step is.

    Attributes:
        op: the last one that began; None before the first.
        fallbacks: calls that fell back, by their own name: the device's kernels do not know what was called.
    """

    def __init__(self, device: EmulatedAdapter, origins: Origins, modules: ModuleStack, context: Context) -> None:
        self._device, self._origins, self._modules, self._context = device, origins, modules, context
        self.op: FailedOp | None = None
        self.fallbacks: dict[OpKey, Calls] = {}

    def __enter__(self) -> Self:
        self._modules.__enter__()
        self._device.device.observe(self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        self._device.device.observe(None)
        self._modules.__exit__(None, None, None)

    def _note(self, name: str, fell_back: bool) -> None:
        origin = self._origins.of(name, needs_grad=True)
        self.op = FailedOp(name, origin.phase(self._context), origin.module, origin.line)
        if fell_back:
            key = OpKey(*self.op, fell_back=frozenset({name}), on_device=True)
            self.fallbacks.setdefault(key, Calls()).count += 1


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, owner: LastOp, crumb: BreadcrumbFile) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._owner = owner
        self._crumb = crumb

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "profiler":  # PyTorch's profiling marks
            self._crumb.op(func.name(), self._owner.module())
        return func(*args, **(kwargs or {}))
