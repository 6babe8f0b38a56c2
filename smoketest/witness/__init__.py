"""Independent evidence of where an op ran, and what it adds up to.

One file per witness, each of which says what it can and cannot see: `tracker` (the device's own list of names),
`registry` (PyTorch's table of kernels), `dispatch` (every call of a step with phase, module and line, helped by
`threads` and `printing` where its mode is off), `kernels` (the emulated device's own), `warnings` with `logs` (what the
device says in Python; `smoketest.supervise.output` reads what it prints), `copies` (traffic inside native ops) and
`strict` (why an op with a kernel fell back). `reconcile` joins them to observations.
"""
