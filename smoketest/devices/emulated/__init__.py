"""An emulated ``neuron`` device: PyTorch's spare backend, on CPU memory, with the operator list of a profile.

Faithful in what runs where and under which name, because PyTorch's own dispatcher decides it. It cannot show failures
of the Neuron compiler, shape limits of kernels, numerics of the hardware, memory, or speed.
"""

from __future__ import annotations

from smoketest.devices.emulated.device import EmulatedDevice, emulate, the_device
from smoketest.devices.emulated.tracker import FallbackWarning

__all__ = [
    "EmulatedDevice",
    "FallbackWarning",
    "clear_op_tracking",
    "emulate",
    "get_executed_ops",
    "get_fallback_ops",
]


def get_fallback_ops() -> list[str]:
    """Names of the overloads that ran on the CPU, as ``torch_neuronx.get_fallback_ops()`` gives them ([PRE])."""
    return the_device().get_fallback_ops()


def get_executed_ops() -> list[str]:
    """Names of the overloads that ran on the device, as ``torch_neuronx.get_executed_ops()`` gives them ([PRE])."""
    return the_device().get_executed_ops()


def clear_op_tracking() -> None:
    """Forget both lists, as ``torch_neuronx.clear_op_tracking()`` does ([PRE])."""
    the_device().clear_op_tracking()
