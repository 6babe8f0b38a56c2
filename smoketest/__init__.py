"""What in a PyTorch model will not run on AWS Trainium, where in the code it is, and what to write instead.

Importing this package imports no torch; the names below load what they need on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoketest.devices.emulated import EmulatedDevice

__all__ = ["__version__", "emulate"]
__version__ = "0.1.0"


def emulate(profile: str | None = None, *, warn: bool = True) -> EmulatedDevice:
    """Give this Python process an emulated ``neuron`` device.

    Args:
        profile: path of an operator profile; the packaged pre-release list of April 2026 when not given.
        warn: warn once per op that falls back to the CPU, as Neuron's documentation says the device does
            ([PUB] best-practices page). ``False`` is silent, as a pre-release was ([PRE] NeuronLogging.h).

    Returns:
        The device with its tracker: ``get_fallback_ops()``, ``get_executed_ops()``, ``clear_op_tracking()``.
    """
    from smoketest.devices import emulated

    return emulated.emulate(profile, warn=warn)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'smoketest' has no attribute {name!r}")
