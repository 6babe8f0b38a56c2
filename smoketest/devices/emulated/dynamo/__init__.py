"""``torch.compile(backend="neuron")`` on the emulated device.

What the backend does, in its order ([PRE] ``neuron_dynamo_backend``, internals 3.1): refuse dynamic shapes, capture
forward and backward with AOTAutograd and its decompositions, lower each graph, run it. A graph is lowered with the
public torch-mlir, in a process of its own, and refused in the backend's words where that stands on firm grounds
(`smoketest.probe.verdict`); what only the public compiler refuses is logged, and runs. A graph that lowers is computed
by the CPU on the device's memory.

neuronx-cc is not run: what it would refuse, how long it takes and what it computes cannot be seen here.

Loaded when the first graph is compiled, for it loads the compile probe and Dynamo.
"""
