# ruff: noqa: N999
"""The private extension module of the backend, as far as anybody looks at it. [PRE] internals 2.9 and section 5"""

from torch_neuronx._build_config import BEHAVIOUR

if BEHAVIOUR["statistics"]:

    def _get_compilation_cache_stats():
        from torch_neuronx._runtime import RUNTIME

        return {
            "total_entries": len(RUNTIME.compiled),
            "total_compilations": len(RUNTIME.compiled),
            "total_compilation_time_ms": RUNTIME.compilation_ms,
        }


if BEHAVIOUR["copies"]:

    def _nrt_copy_neuron_to_cpu_tensor(*args):
        raise NotImplementedError

    def _nrt_copy_cpu_to_neuron_tensor(*args):
        raise NotImplementedError
