"""``torch.compile(backend="neuron")`` of the double: that of the emulated device, for behaviour to be put around it."""

from smoketest.devices.emulated import compiler

_register = compiler.register_compile_backend
_emulated = []


def neuron_backend_wrapper(graph, example_inputs, **kwargs):
    """What Dynamo calls with a graph; kwargs are options and mode. [PRE] entry point torch_dynamo_backends"""
    return _emulated[0](graph, example_inputs, **kwargs)


def _register_wrapped(name, backend):
    _emulated.append(backend)
    _register(name, neuron_backend_wrapper)


def start():
    """Take the place of the emulated device's backend, which is registered when Dynamo is imported."""
    compiler.register_compile_backend = _register_wrapped
