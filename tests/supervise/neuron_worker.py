"""The real worker, driven as on a real device: the adapter for torch-neuronx over the emulated device.

Started as ``python -m tests.supervise.neuron_worker REQUEST.json``. What no double can be asked is what a real backend
prints; the user's code of the test prints it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from smoketest.devices import neuron
from smoketest.worker import __main__ as worker


def open_stand_in(before_use: Callable[[], None] | None = None) -> neuron.NeuronDevice:
    import torch

    from smoketest.devices.emulated.device import emulate

    device = emulate(None, warn=False)
    if before_use is not None:
        before_use()
    return neuron.NeuronDevice(
        "stand-in",
        device.get_fallback_ops if "TRACKER" in os.environ else None,
        device.clear_op_tracking,
        torch.neuron.synchronize,  # type: ignore[attr-defined]
    )


if __name__ == "__main__":
    neuron.open_neuron = open_stand_in
    worker.find_problem = lambda: None
    sys.exit(worker.main(sys.argv[1:]))
