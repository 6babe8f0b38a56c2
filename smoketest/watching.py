"""``smoketest.watch()``: the witnesses around any code, in a notebook or a training script."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from torch import nn

from smoketest.devices import neuron_compat
from smoketest.devices.base import Device, Kind, neuron_available, open_device
from smoketest.devices.emulated.adapter import EmulatedAdapter
from smoketest.devices.emulated.device import the_device
from smoketest.errors import DeviceUnavailable
from smoketest.findings import Finding, NotChecked, SitePolicy, merge
from smoketest.findings.sites import project_root
from smoketest.witness import hidden
from smoketest.witness.context import Context
from smoketest.witness.dispatch import DispatchWitness
from smoketest.witness.kernels import Kernels
from smoketest.witness.printing import Prints
from smoketest.witness.reconcile import Evidence, host_syncs, observations
from smoketest.witness.sites import ModuleStack, Origins, StackWalker
from smoketest.witness.tracker import Tracker
from smoketest.witness.warnings import FallbackWarnings

__all__ = ["Watch"]

_active = threading.Lock()


class Watch:
    """What ran on the CPU while it was entered; made by `smoketest.watch`.

    Only one can be active in a process: the device's list of names belongs to the process, and is cleared on entering.
    It is left as it is on leaving. Exceptions pass through, and everything is restored; what was seen up to then stays.
    What it saw can be read inside the block too, and until it is entered again, which starts afresh.

    Lines that the backend's C++ prints itself are not read: the file descriptors of the process are left alone, so that
    what your code prints keeps its order and a notebook works. `not_checked` says so.

    With ``trace=True`` the dispatch mode is of the thread that entered, and of the backward that it runs. Code that
    torch.compile compiled earlier is seen as one call; do not trace the first call of compiled code: Dynamo compiles
    nothing under a dispatch mode.
    """

    def __init__(self, model: nn.Module | None = None, *, trace: bool = False) -> None:
        self._model = model
        self._trace = trace
        self._policy = SitePolicy(project_root(Path.cwd()))
        self._entered: ExitStack | None = None
        self._device: Device | None = None
        self._tracked: frozenset[str] = frozenset()
        self._warned: FallbackWarnings | None = None
        self._witness: DispatchWitness | None = None
        self._kernels: Kernels | None = None
        self._unread: str | None = None
        self._ran = False

    def __enter__(self) -> Self:
        device = _device()
        if not _active.acquire(blocking=False):
            raise RuntimeError("smoketest.watch() is active in this process already: leave that block first")
        with ExitStack() as stack:
            stack.callback(_active.release)
            self._device, self._tracked, self._witness, self._kernels = device, frozenset(), None, None
            self._unread, self._ran = None, False
            device.synchronize()
            device.clear_tracking()
            tracker = Tracker(device)
            context = Context(None)
            self._warned = stack.enter_context(FallbackWarnings(context))
            if self._trace:
                self._start_tracing(device, tracker, context, stack)
            self._entered = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._entered is not None
        with self._entered:  # whatever happens here, everything is restored
            try:
                self._tracked, self._ran = self._names(), self._anything_ran()
            except Exception as problem:
                self._unread = f"the device's list of ops could not be read: {type(problem).__name__}: {problem}"
                if error is None:  # else a device in trouble hides what the block raised
                    raise
            finally:
                self._entered = None

    @property
    def fallbacks(self) -> tuple[Finding, ...]:
        """Ops that ran on the CPU (NST101). Without ``trace`` they have a name and no line, phase, module or count."""
        device = self._opened()
        return merge(observations(self._evidence(), device.profile, self._policy))

    @property
    def host_syncs(self) -> tuple[Finding, ...] | None:
        """Lines where the host waits for the device (NST103); None without ``trace``: they were not looked for."""
        return merge(host_syncs(self._witness.calls, self._policy)) if self._witness is not None else None

    @property
    def hidden(self) -> tuple[Finding, ...] | None:
        """Lines with possible host work inside native ops (NST102); None without ``trace``."""
        if self._witness is None:
            return None
        calls = self._witness.calls
        return merge([*hidden.doubles(calls, self._policy), *hidden.host_arguments(calls, self._policy)])

    @property
    def device_kind(self) -> Kind:
        """``emulated`` or ``neuron``: whether what is told is a prediction, or was measured."""
        return self._opened().kind

    @property
    def clean(self) -> bool | None:
        """Whether no op fell back. None: nobody can tell.

        That is so where the device has no tracker and gave no warning, where its list could not be read, and where
        nothing ran on the device at all. Host synchronisation does not count here, as it is a warning in a report.
        """
        if self.fallbacks:
            return False
        told = self._opened().fallback_names() is not None and self._unread is None
        return True if told and self._anything_ran() else None

    @property
    def not_checked(self) -> tuple[NotChecked, ...]:
        """What nobody looked at, and why."""
        return tuple(NotChecked(what=what, why=why) for what, why in self._not_checked())

    def _not_checked(self) -> Iterator[tuple[str, str]]:
        device = self._opened()
        yield "fallbacks that only the backend's C++ prints", "output is not read here; `smoketest run` reads it"
        yield "why ops that have a kernel ran on the CPU", "that takes a process of its own, as in `smoketest run`"
        if device.kind == "neuron":
            yield "copies to the host inside native ops", "that takes a step of its own, as in `smoketest run`"
        if device.fallback_names() is None:
            yield "fallbacks the device does not warn about", "this torch-neuronx has no op tracker"
        if self._unread is not None:
            yield "fallbacks of the block", self._unread
        elif not self._anything_ran():
            yield "fallbacks", "nothing ran on the device: are model and inputs moved to it?"
        if self._witness is None:
            yield "lines, modules, counts and host synchronisation", "watch(trace=True) looks for them"
            return
        if self._kernels is not None and (threads := self._kernels.threads - self._witness.threads):
            why = f"the dispatch mode does not see them; ops ran in {len(threads)} of them"
            yield "lines and counts of ops in threads that the block started", why
        unseen = hidden.summary(self._witness.calls)
        if unseen is not None:
            yield (
                "host work hidden in native ops, 64-bit floats apart",
                f"no witness sees into kernels, and in a pre-release of April 2026 {unseen}",
            )

    def _anything_ran(self) -> bool:
        """Whether an op ran on the device or fell back from it; where the device does not say, that is assumed."""
        if self._entered is None:
            return self._ran
        if self._witness is not None and any(key.on_device for key in self._witness.calls):
            return True
        device = self._opened()
        if isinstance(device, EmulatedAdapter):
            return bool(device.device.get_executed_ops() or device.fallback_names())
        executed = neuron_compat.function(neuron_compat.EXECUTED)
        return True if executed is None else bool(executed() or device.fallback_names())

    def _start_tracing(self, device: Device, tracker: Tracker, context: Context, stack: ExitStack) -> None:
        modules = stack.enter_context(ModuleStack(self._model))
        origins = Origins(StackWalker(self._policy), modules)
        if isinstance(device, EmulatedAdapter):
            self._kernels = stack.enter_context(Kernels(device.device))
        taken = self._kernels.take if self._kernels is not None else tracker.take
        waited = self._kernels.waited if self._kernels is not None else None
        self._witness = DispatchWitness(origins, context, device.torch_device, taken, waited=waited)
        stack.enter_context(Prints(self._witness))
        stack.enter_context(self._witness)

    def _evidence(self) -> Evidence:
        names = self._names() if self._entered is not None else self._tracked
        traced = self._witness.calls if self._witness is not None else {}
        met = {name for key in traced for name in key.fell_back}
        strays = self._witness.strays if self._witness is not None else set()
        return Evidence(
            tracked={(name, None) for name in names - met} | strays,
            warned=self._warned.seen if self._warned is not None else (),
            traced=traced,
            counted_by="kernels" if self._kernels is not None else "tracker",
            timed=self._opened().kind == "neuron",
        )

    def _names(self) -> frozenset[str]:
        """What the tracker holds now; not cleared, for others may want to read it."""
        device = self._opened()
        device.synchronize()
        return frozenset(device.fallback_names() or ())

    def _opened(self) -> Device:
        if self._device is None:
            raise RuntimeError("nothing was watched yet: use `with smoketest.watch() as seen:`")
        return self._device


def _device() -> Device:
    """The device of this process: the emulated one where it was asked for, else the real one."""
    try:
        return EmulatedAdapter(the_device())
    except DeviceUnavailable:
        if neuron_available():
            return open_device("neuron")
        raise
