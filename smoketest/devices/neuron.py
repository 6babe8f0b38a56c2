"""The real device, driven through the documented interface of torch-neuronx only."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib import metadata
from typing import Any, Literal

from smoketest.devices.installed import find_problem
from smoketest.errors import DeviceUnavailable
from smoketest.operators.profile import OperatorProfile

__all__ = ["NeuronDevice", "open_neuron"]


class NeuronDevice:
    """A Trainium device in this process.

    Args:
        package: the module ``torch_neuronx``.
        module: the module ``torch.neuron``.
        version: of the distribution.

    The tracker functions are looked for, not assumed: ``get_fallback_ops`` and ``clear_op_tracking`` were seen up to
    beta 4 ([USER-B4] xpu-perf) and are unconfirmed for 2.14.
    """

    kind: Literal["neuron"] = "neuron"
    torch_device = "neuron"
    profile: OperatorProfile | None = None

    def __init__(self, package: Any, module: Any, version: str) -> None:
        self._module = module
        self._version = version
        self._get_fallback_ops: Callable[[], list[str]] | None = getattr(package, "get_fallback_ops", None)
        self._clear_op_tracking: Callable[[], None] | None = getattr(package, "clear_op_tracking", None)

    @property
    def has_tracker(self) -> bool:
        """Whether this release says which ops fell back, and can be told to forget them."""
        return self._get_fallback_ops is not None and self._clear_op_tracking is not None

    def synchronize(self) -> None:
        """Wait for the device: execution may be asynchronous, and the tracker lags behind it."""
        self._module.synchronize()

    def fallback_names(self) -> list[str] | None:
        """Names the device's tracker holds; None when this release has none."""
        if self._get_fallback_ops is None or self._clear_op_tracking is None:
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

    def note(self) -> str:
        """What this device is."""
        tracker = "" if self.has_tracker else "; this release has no op tracker"
        return f"measured on a Neuron device, torch-neuronx {self._version}{tracker}"


def open_neuron() -> NeuronDevice:
    """Load torch-neuronx and make sure its device answers.

    Raises:
        DeviceUnavailable: it is absent, the placeholder, another product or release, does not load, or has no device.
    """
    problem = find_problem()
    if problem is not None:
        raise problem
    version = metadata.version("torch-neuronx")
    try:
        package = importlib.import_module("torch_neuronx")
    except Exception as error:  # a broken driver or runtime raises whatever it likes on import
        raise DeviceUnavailable(
            f"torch-neuronx {version} does not load: {error}",
            hint="check `neuron-ls`, and that torch and torch-neuronx are of the same release",
        ) from error
    module = getattr(importlib.import_module("torch"), "neuron", None)
    if module is None:
        raise DeviceUnavailable(
            f"torch-neuronx {version} loaded, but did not register torch.neuron",
            hint="check that torch and torch-neuronx are of the same release",
        )
    if not module.is_available():
        raise DeviceUnavailable(
            f"torch-neuronx {version} finds no Neuron device",
            hint="check `neuron-ls`; another process may hold the cores",
        )
    return NeuronDevice(package, module, version)
