"""Independent evidence of where an op ran, and what it adds up to.

`warnings` records what the device warns about, `tracker` reads the device's own list of names, and `dispatch` sees
every call of the traced step with its phase, module and line. `reconcile` joins them to observations.
"""
