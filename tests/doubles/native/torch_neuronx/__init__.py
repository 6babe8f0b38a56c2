"""A double of the native torch-neuronx, on smoketest's emulated device. It is no evidence about Trainium.

Its public names are those of a pre-release ([PRE] internals, section 5); what it does is in behaviour.json.
"""

# ruff: noqa: E402, F401, I001


def _autoload():
    """What ``import torch`` calls, before all else: where this package is imported first, torch is imported below.

    [PRE] entry point ``torch.backends: torch_neuronx:_autoload``
    """


from torch_neuronx import _build_config  # first: it decides variables that the rest reads
from torch_neuronx import _runtime
from torch_neuronx import neuron_dynamo_backend
from torch_neuronx._runtime import device_count, synchronize

if _runtime.BEHAVIOUR["tracker"]:
    from torch_neuronx._runtime import clear_op_tracking, get_executed_ops, get_fallback_ops

_runtime.start()
neuron_dynamo_backend.start()
