"""The last op and module, for the breadcrumb, in steps whose times do not count."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from torch import nn

from smoketest.devices.emulated.adapter import EmulatedAdapter
from smoketest.witness.dispatch import FailedOp
from smoketest.witness.modes import WatchingMode
from smoketest.witness.sites import ModuleStack
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.job import Job

__all__ = ["LastOp"]


class LastOp:
    """Writes each op into the breadcrumb before it runs, while entered.

    The emulated device tells its kernels one by one; elsewhere a dispatch mode sees what is called, and only on the
    main thread: an exception that leaves a dispatch mode on autograd's device thread is lost (torch 2.13 ends in
    `SystemError`, or aborts), and warm-up steps are where ops raise.

    Args:
        job: whose device and breadcrumb.
        model: gives the module's name; None while there is none.

    Attributes:
        failed: the op that raised last and has the dispatch mode for a witness; its line is not known.
        error: the exception that came out of it.
    """

    def __init__(self, job: Job, model: nn.Module | None = None) -> None:
        self.failed: FailedOp | None = None
        self.error: BaseException | None = None
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
            self._entered.enter_context(device.device.refuse_written_indices())
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


class _Mode(WatchingMode):  # type: ignore[no-untyped-call]
    def __init__(self, owner: LastOp, crumb: BreadcrumbFile) -> None:
        super().__init__()
        self._owner = owner
        self._crumb = crumb

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "profiler":  # PyTorch's profiling marks
            return func(*args, **(kwargs or {}))
        module = self._owner.module()
        self._crumb.op(func.name(), module)
        try:
            return func(*args, **(kwargs or {}))
        except BaseException as error:
            self._owner.failed, self._owner.error = FailedOp(func.name(), None, module, None), error
            raise
