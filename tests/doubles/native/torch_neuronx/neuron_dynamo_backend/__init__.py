"""``torch.compile(backend="neuron")`` of the double: that of the emulated device, with a compiler that may misbehave.

The compiler stands after the lowering, where neuronx-cc does. [PRE] internals 3.1, steps 5 and 6
"""

import signal
import subprocess
import time
from pathlib import Path

from smoketest.devices.emulated import compiler
from torch_neuronx._build_config import BEHAVIOUR

_register = compiler.register_compile_backend
_emulated = []
_COMPILER = Path(__file__).parents[2] / "bin" / "neuronx-cc"

_PREFIX = "Neuron backend NEFF execution setup failed with unexpected error: "
# [PRE] ErrorHandler.cpp, [USER-B3] a report of a sort that is refused
_REFUSED = (
    "Compilation error occurred on Neuron for operation=torch_compile;\n"
    'error message="COMPILATION FAILED: StableHLO to NEFF compilation failed for torch.compile: '
    'Command failed (neuronx-cc compilation) with exit code 70: {said}"\npython stack trace=\n'
)
_SAID = (
    "2026-10-20T08:11:02Z Compilation began\n"
    "2026-10-20T08:11:09Z [ERROR] [NCC_EVRF029] Operation sort is not supported on this target."
)


def neuron_backend_wrapper(graph, example_inputs, **kwargs):
    """What Dynamo calls with a graph; kwargs are options and mode. [PRE] entry point torch_dynamo_backends"""
    _put_compiler_in()
    return _emulated[0](graph, example_inputs, **kwargs)


def _put_compiler_in():
    """After each graph of AOTAutograd's was lowered comes the compiler."""
    from smoketest.devices.emulated.dynamo.backend import Backend

    lower = Backend._compile
    if lower is _with_compiler:
        return
    _lowering.append(lower)
    Backend._compile = _with_compiler


_lowering = []
_seen = []
_checks = {}


def _take_all(graph, taken_apart):
    """A lowering that refuses nothing."""


def _with_compiler(self, graph, kind, settings):
    wanted = BEHAVIOUR["compiler"]
    self._lowering.check = _take_all if wanted == "lowers" else _checks.setdefault(id(self), self._lowering.check)
    run = _lowering[0](self, graph, kind, settings)
    _seen.append(kind)
    direction = "backward" if kind == "backward" else "forward"
    number = sum(seen != "backward" for seen in _seen) - 1
    if wanted in ("works", "lowers") or direction != BEHAVIOUR["compiler_at"] or number < BEHAVIOUR["compiler_from"]:
        return run
    if wanted == "refuses":
        raise RuntimeError(_PREFIX + _REFUSED.format(said=_SAID))
    if wanted == "child":
        # The compiler's own words are on the terminal only.
        subprocess.run([_COMPILER, "0", "70"], check=False)
        raise RuntimeError(_PREFIX + _REFUSED.format(said=""))
    return _Misbehaving(run, wanted)


class _Misbehaving:
    """A compiled graph; what is wrong with it shows when it runs."""

    def __init__(self, run, wanted):
        self.run, self.wanted, self.calls = run, wanted, 0

    def __call__(self, args):
        self.calls += 1
        from torch_neuronx._runtime import RUNTIME

        if self.wanted == "dies":
            signal.raise_signal(signal.SIGSEGV)  # [USER] NCC_IBTN006: no exception to catch
        if self.wanted == "slow" and self.calls == 1:
            time.sleep(1.0)
        if self.wanted == "late" and self.calls == 1:
            # Compiled in the background: the error is told when the device is next waited for. [USER-B4]
            RUNTIME.errors.append(_REFUSED.format(said=_SAID))
        results = self.run(args)
        if self.wanted == "wrong":
            return [_off(result) for result in results]
        return results


def _off(result):
    """One percent too large, where it is a floating-point tensor."""
    import torch

    return result * 1.01 if isinstance(result, torch.Tensor) and result.is_floating_point() else result


def _register_wrapped(name, backend):
    _emulated.append(backend)
    _register(name, neuron_backend_wrapper)


def start():
    """Take the place of the emulated device's backend, which is registered when Dynamo is imported."""
    compiler.register_compile_backend = _register_wrapped
