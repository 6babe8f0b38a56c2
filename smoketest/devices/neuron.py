"""The real device, driven through the documented interface of torch-neuronx wherever there is one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib import metadata
from typing import Any, Literal

from smoketest.devices import neuron_compat
from smoketest.devices.installed import BUSY, find_problem
from smoketest.errors import DeviceUnavailable
from smoketest.findings.wordings import TRIED_OP
from smoketest.operators.profile import OperatorProfile

__all__ = ["NeuronDevice", "open_neuron"]


class NeuronDevice:
    """A Trainium device in this process.

    Args:
        version: of the distribution torch-neuronx.
        get_fallback_ops: reads the tracker; None where this release has none.
        clear_op_tracking: empties it.
        synchronize: waits for the device; None where no way to do so is known.
        deaf: whether the tracker was seen to miss an op that has no kernel.

    The device is asked for as ``neuron``, without an index: a process has one, and under a process group ``neuron:0``
    is another rank's ([USER-B4]).
    """

    kind: Literal["neuron"] = "neuron"
    torch_device = "neuron"
    profile: OperatorProfile | None = None

    def __init__(
        self,
        version: str,
        get_fallback_ops: Callable[[], list[str]] | None,
        clear_op_tracking: Callable[[], Any] | None,
        synchronize: Callable[[], Any] | None,
        *,
        deaf: bool = False,
    ) -> None:
        self._version = version
        self._get_fallback_ops = get_fallback_ops
        self._clear_op_tracking = clear_op_tracking
        self._synchronize = synchronize
        self._deaf = deaf

    @property
    def untracked(self) -> str | None:
        """Why this release cannot tell which ops fell back, one clause; None where it can."""
        if self._get_fallback_ops is None or self._clear_op_tracking is None:
            return "this torch-neuronx has no op tracker"
        if self._synchronize is None:
            return "this torch-neuronx cannot be waited for, and what its op tracker holds lags behind"
        if self._deaf:
            return "the op tracker of this torch-neuronx missed an op that it has no kernel for"
        return None

    def synchronize(self) -> None:
        """Wait for the device: execution may be asynchronous, and tracker and errors lag behind it."""
        if self._synchronize is not None:
            self._synchronize()

    def fallback_names(self) -> list[str] | None:
        """Names the device's tracker holds; None where this release cannot tell (`untracked`)."""
        if self.untracked is not None or self._get_fallback_ops is None:
            return None
        self.synchronize()
        return list(self._get_fallback_ops())

    def clear_tracking(self) -> None:
        """Empty the device's tracker."""
        if self._clear_op_tracking is not None:
            self.synchronize()
            self._clear_op_tracking()

    def continued_past(self) -> list[str]:
        """Nothing: on the device an op that raises ends the step."""
        return []

    def compilations(self) -> int | None:
        """How often the device compiled in this process; None where this release does not count."""
        return neuron_compat.compilations()

    def test_tracker(self, torch: Any) -> None:
        """Have an op without a kernel run, once: a tracker that misses it can be trusted with none.

        A pre-release's own tests use the op for the same ([PRE] internals, section 4). Where the device has a kernel
        for it, or PyTorch has another one than the CPU's, or it raises, nothing is learnt, and the tracker is believed.
        """
        if self.untracked is not None or not neuron_compat.only_on_cpu(TRIED_OP):
            return
        self.clear_tracking()
        try:
            torch.ops.aten._test_optional_intlist(torch.zeros(1, dtype=torch.int32).to(self.torch_device), [1])
        except Exception:  # an op of PyTorch's tests: a release may lack it or refuse it
            return
        self._deaf = TRIED_OP not in {name.partition(".")[0] for name in self.fallback_names() or ()}
        self.clear_tracking()

    def note(self) -> str:
        """What this device is."""
        untracked = f"; {self.untracked}" if self.untracked is not None else ""
        return f"measured on a Neuron device, torch-neuronx {self._version}{untracked}"


def open_neuron(before_use: Callable[[], None] | None = None) -> NeuronDevice:
    """Load torch-neuronx and make sure its device answers.

    A process group is joined before the first use ([USER-B4]: ``Neuron runtime should not be initialized before the
    init_process_group.``), by `before_use`.

    A device that hangs hangs this call: whoever calls it limits the time. No torch may have been imported before, where
    the variables of `smoketest.devices.settings` are to count.

    Raises:
        DeviceUnavailable: it is absent, the placeholder, another product or release, does not load, has no device, or
            its device does not work.
    """
    problem = find_problem()
    if problem is not None:
        raise problem
    version = metadata.version("torch-neuronx")
    try:
        # torch first: it loads torch-neuronx by its entry point, which is not there yet while the package itself loads.
        torch = importlib.import_module("torch")
        importlib.import_module("torch_neuronx")  # where TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from it
    except Exception as error:  # a broken driver or runtime raises whatever it likes on import
        raise DeviceUnavailable(
            f"torch-neuronx {version} does not load: {_innermost(error)}",
            hint="check `neuron-ls`, and that torch and torch-neuronx are of the same release",
        ) from error
    module = getattr(torch, "neuron", None)
    if module is None:
        raise DeviceUnavailable(
            f"torch-neuronx {version} loaded, but did not register torch.neuron",
            hint="check that torch and torch-neuronx are of the same release",
        )
    try:
        if before_use is not None:
            before_use()
        available = bool(module.is_available())
        if available:
            _use(torch)
    except Exception as error:
        raise _unusable(version, error) from error
    if not available:
        raise DeviceUnavailable(
            f"torch-neuronx {version} finds no Neuron device",
            hint="check that `neuron-ls` lists one; in a container give it the devices",
        )
    device = NeuronDevice(
        version,
        neuron_compat.function(neuron_compat.FALLBACKS),
        neuron_compat.function(neuron_compat.CLEAR),
        neuron_compat.synchronizer(),
    )
    device.test_tracker(torch)
    return device


def _use(torch: Any) -> None:
    """One number to the device and back: the runtime starts with the first use, not before. Compiles nothing."""
    there = torch.zeros(1).to("neuron")
    wait = neuron_compat.synchronizer()
    if wait is not None:
        wait()
    back = there.cpu()
    if back.item() != 0:
        raise RuntimeError("a zero copied to the device comes back as another number")


def _unusable(version: str, error: Exception) -> DeviceUnavailable:
    text = _innermost(error)
    if BUSY.search(text):
        return DeviceUnavailable(
            f"the Neuron cores are busy: {text}",
            hint="a core serves one process: `neuron-ls` names who has it; wait, or end it",
        )
    return DeviceUnavailable(
        f"the device of torch-neuronx {version} does not work: {text}",
        hint="check `neuron-ls`; another process may hold the cores",
    )


def _innermost(error: BaseException) -> str:
    """The text of what an exception was raised from, on one line: PyTorch wraps what a backend raises on loading."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:600] or type(error).__name__
