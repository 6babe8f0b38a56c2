"""The third witness: a dispatch mode that sees every op of the traced step, and what the tracker says after each."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from smoketest.findings.report import Phase
from smoketest.witness.context import Context
from smoketest.witness.contract import host_tensors
from smoketest.witness.hostsync import sync_cause, waits_in
from smoketest.witness.modes import WatchingMode, tensors_of
from smoketest.witness.sites import Line, Origins

__all__ = ["Calls", "DispatchWitness", "FailedOp", "OpKey", "Relay", "Signature", "dtypes_of", "signature_text"]

_MAX_SIGNATURES = 8
_MAX_TENSORS = 8
_SHORT = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b8",
    torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip

Signature = tuple[tuple[torch.dtype, tuple[int, ...]], ...]
"""Dtype and shape of each tensor argument, the first few of them."""


class OpKey(NamedTuple):
    """What calls are counted by.

    Attributes:
        op: full overload name as dispatched, ``aten::sort``.
        phase: of the step; None where it is not known.
        module: qualified name, or the class of an optimizer.
        line: the user's (file, line).
        fell_back: names recorded on the CPU while the call ran; empty where it ran on the device.
        on_device: whether a tensor of the device took part.
        sync: why the host waits for the device in it (see `hostsync`); None where it does not.
    """

    op: str
    phase: Phase | None
    module: str | None
    line: Line | None
    fell_back: frozenset[str]
    on_device: bool
    sync: str | None = None


@dataclass
class Calls:
    """Calls with the same `OpKey`.

    Attributes:
        count: how many.
        bytes: that cross, where the calls fell back or copy to the host.
        host_bytes: of CPU tensors among the arguments, beside tensors of the device; not of numbers (0-d tensors), nor
            of those that the op wants there.
        copied_bytes: that crossed in copies, where somebody knows.
        signatures: dtypes and shapes, the first few that differ.
        copies: between device and host while the calls ran, where somebody counts them.
        seconds: from before the calls until the names recorded in them were taken; a tracker waits for the device for
            that, before and after each call.
        kernels: how often each kernel was recorded on the CPU; a tracker records one at most once in a call.
        callers: where the host waits in code of a library, the user's own lines that it was called from.
    """

    count: int = 0
    bytes: int = 0
    signatures: dict[Signature, None] = field(default_factory=dict)
    host_bytes: int = 0
    copied_bytes: int = 0
    kernels: Counter[str] = field(default_factory=Counter)
    callers: Counter[Line] = field(default_factory=Counter)
    copies: int = 0
    seconds: float = 0.0


class FailedOp(NamedTuple):
    """The op that was running when an exception came out of it."""

    op: str
    phase: Phase | None
    module: str | None
    line: Line | None


class DispatchWitness(WatchingMode):  # type: ignore[no-untyped-call]
    """Counts every call that PyTorch dispatches in a step while it is entered.

    Args:
        origins: finds module and line of an op.
        context: says in which phase the step is.
        torch_device: type of the device whose tensors matter.
        taken: names recorded on the CPU since it was last asked, each as often as it can tell; called around each op.
        copied: how often the device copied to or from the host since it was last asked; None where nobody counts.
        before: told (op, module) before each op runs, for the breadcrumb; None if nobody wants to know.
        noted: told each call with a tensor of the device: op, arguments, named ones, result, names recorded on the CPU.
        waited: a kernel that the host waited for since it was last asked, None where there was none; called around each
            op. It tells of the reads within composites (allclose). None where nobody knows.

    Attributes:
        torch_device: as given.
        calls: by `OpKey`.
        failed: the op that raised last, if one did, whether or not somebody caught the exception.
        error: the exception that came out of it.
        threads: identifiers of the threads in which ops were seen.
        strays: names taken before an op ran that no dispatched op accounts for, by phase.
    """

    def __init__(
        self,
        origins: Origins,
        context: Context,
        torch_device: str,
        taken: Callable[[], Collection[str]],
        before: Callable[[str, str | None], None] | None = None,
        copied: Callable[[], int] | None = None,
        noted: Callable[[Any, Any, Any, Any, Collection[str]], None] | None = None,
        waited: Callable[[], str | None] | None = None,
    ) -> None:
        super().__init__()
        self._noted = noted
        self._waited = waited or (lambda: None)
        self._origins = origins
        self._context = context
        self.torch_device = torch_device
        self._taken = taken
        self._before = before
        self._copied = copied
        self.calls: dict[OpKey, Calls] = {}
        self.failed: FailedOp | None = None
        self.error: BaseException | None = None
        self.threads: set[int] = set()
        self._lock = threading.Lock()
        self.strays: set[tuple[str, Phase | None]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` as it is, and count it.

        Not while a batch is made, which is no part of the step's work; nor PyTorch's profiling marks, which are no ops.
        """
        kwargs = kwargs or {}
        self.threads.add(threading.get_ident())
        if func.namespace == "profiler":
            return func(*args, **kwargs)
        if self._context.phase == "setup":
            result = func(*args, **kwargs)
            self.strays.update(
                (name, "setup") for name in self._taken()
            )  # else the next op would take them for its own
            return result
        op: str = func.name()
        tensors = list(tensors_of((*args, *kwargs.values())))
        needs_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        origin = self._origins.of(op, needs_grad)
        if needs_grad:
            for tensor in tensors:
                if tensor.requires_grad and tensor.is_leaf:
                    self._origins.used(tensor, origin)
        phase = origin.phase(self._context)
        if self._before is not None:
            self._before(op, origin.module)
        self.strays.update((name, phase) for name in self._taken())
        self._waited()
        if self._copied is not None:
            self._copied()
        signature = tuple((tensor.dtype, tuple(tensor.shape)) for tensor in tensors[:_MAX_TENSORS])
        started = time.perf_counter()
        try:
            result = self.call(func, args, kwargs)
        except BaseException as error:
            self.failed, self.error = FailedOp(op, phase, origin.module, origin.line), error
            raise
        crossing = [*tensors, *tensors_of((result,))]
        places = {tensor.device.type for tensor in crossing}
        on_device = self.torch_device in places
        fell_back = self._taken()
        seconds = time.perf_counter() - started
        if on_device and self._noted is not None:
            self._noted(func, args, kwargs, result, fell_back)
        sync = None
        if on_device and not fell_back:
            sync = sync_cause(op, args, kwargs, tensors, result, self.torch_device)
            if sync is None and (kernel := self._waited()) is not None and kernel != op:
                sync = waits_in(kernel)
        line = origin.line
        if sync is not None and origin.in_optimizer:
            line = self._origins.optimizer_line() or line
        key = OpKey(op, phase, origin.module, line, frozenset(fell_back), on_device, sync)
        with self._lock:
            calls = self._calls_of(key, signature)
            calls.seconds += seconds
            calls.kernels.update(fell_back)
            if sync is not None and (caller := self._origins.caller()) not in (None, line):
                calls.callers[caller] += 1
            if self._copied is not None:
                calls.copies += self._copied()
            if fell_back or sync == "copy":
                calls.bytes += sum(_bytes(tensor) for tensor in crossing if tensor.device.type == self.torch_device)
            if on_device and "cpu" in places:
                calls.host_bytes += sum(_bytes(tensor) for tensor in host_tensors(func, args, kwargs))
            self.counted(key, calls)
        return result

    def _calls_of(self, key: OpKey, signature: Signature) -> Calls:
        """The calls of `key`, with one more."""
        calls = self.calls.get(key)
        if calls is None:
            calls = self.calls[key] = Calls()
        calls.count += 1
        if len(calls.signatures) < _MAX_SIGNATURES:
            calls.signatures[signature] = None
        return calls

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run one op."""
        return func(*args, **kwargs)

    def counted(self, key: OpKey, calls: Calls) -> None:
        """A call was counted; for those who want to know more of it."""


class Relay(WatchingMode):  # type: ignore[no-untyped-call]
    """Tells a witness of calls that its own mode does not see: in another thread, or where modes are off.

    Args:
        witness: told of each call.
        on: whether to tell it; else calls are let through.
    """

    def __init__(self, witness: DispatchWitness, on: Callable[[], bool] = lambda: True) -> None:
        super().__init__()
        self._witness = witness
        self._on = on

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Pass the call on."""
        if self._on():
            return self._witness.__torch_dispatch__(func, types, args, kwargs)
        return func(*args, **(kwargs or {}))


def dtypes_of(calls: Iterable[Calls]) -> frozenset[torch.dtype]:
    """The dtypes that ops were given, of tensors whose signatures were kept: a region of autocast shows in them."""
    signatures = (signature for seen in calls for signature in seen.signatures)
    return frozenset(dtype for signature in signatures for dtype, _ in signature)


def signature_text(signature: Signature) -> str:
    """Such as ``f32[4, 128], i64[4]``."""
    return ", ".join(f"{_SHORT.get(dtype, str(dtype))}{list(shape)}" for dtype, shape in signature)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
