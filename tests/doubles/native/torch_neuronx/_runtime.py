"""The device's runtime: what is recorded when, what fails how, and who has the core."""

import fcntl
import os
import signal
import subprocess
import threading
import time
import warnings
from pathlib import Path

from smoketest.devices.emulated import neuron_module
from smoketest.devices.emulated.device import emulate
from torch_neuronx._build_config import BEHAVIOUR

STRICT = "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS"
_HERE = Path(__file__).parent
_COMPILER = _HERE.parent / "bin" / "neuronx-cc"

# Read once, where the backend's C++ does. [PRE] internals 2.5
_BLOCKING = os.environ["NEURON_LAUNCH_BLOCKING"] == "1"
_LATE_STRICT = os.environ[STRICT] == "1" or os.environ.get("NEURON_FALLBACK_ENABLED", "1").lower() not in ("1", "true")
ASYNCHRONOUS = BEHAVIOUR["asynchronous"] == "always" or not _BLOCKING


class Runtime:
    """The state of the process's device. [PRE] NeuronOpTracking.cpp: process-wide sets of names"""

    def __init__(self):
        self.executed = set()
        self.fallen_back = set()
        self.pending = []  # (name, whether on the CPU), of work that the device has not been waited for
        self.errors = []
        self.warned = set()
        self.compiled = set()
        self.compilation_ms = 0
        self.core = None
        self.lock = threading.RLock()

    def observe(self, name, fell_back):
        """Called by the emulated device before each of its kernels runs."""
        self.initialize()
        failure = BEHAVIOUR["failing"].get(name)
        if not fell_back or failure == "child":
            self.compile(name, failure)
        if failure in ("late", "lost"):
            fell_back = self.fail(name, failure)
        if ASYNCHRONOUS:
            with self.lock:
                self.pending.append((name, fell_back))
        else:
            self.record(name, fell_back)

    def record(self, name, fell_back):
        with self.lock:
            if not fell_back:
                self.executed.add(name)
            elif BEHAVIOUR["records"]:
                self.fallen_back.add(name)
        if fell_back and BEHAVIOUR["warns"] and name not in self.warned:
            self.warned.add(name)
            # In the words that a pre-release has and never prints. [PRE] neuron_cpu_fallback
            warnings.warn(f"Operator ' {name} ' fell back to CPU", UserWarning, stacklevel=4)

    def compile(self, name, failure):
        """The first call of an op compiles it; a process of its own where that takes time, or fails in there."""
        if name in self.compiled:
            return
        self.compiled.add(name)
        seconds = BEHAVIOUR["slow"].get(name, 0)
        if seconds or failure == "child":
            started = time.monotonic()
            subprocess.run([_COMPILER, str(seconds), "70" if failure == "child" else "0"], check=False)
            self.compilation_ms += round((time.monotonic() - started) * 1000)

    def fail(self, name, failure):
        """A failure that shows when the device is waited for; whether the CPU takes over."""
        if failure == "lost":
            # [PRE] internals 2.6
            self.errors.append(
                f"NRT Execution error occurred on Neuron for operation={name};\n"
                'error message="NRT EXECUTION FAILED: status code 1"\npython stack trace=\n'
            )
            return False
        if _LATE_STRICT:
            self.errors.append(f"CPU fallback is disabled for operation={name}")  # [PRE] CPUFallbackExecutor.cpp
            return False
        return True

    def synchronize(self):
        self.initialize()
        with self.lock:
            pending, self.pending = self.pending, []
            errors, self.errors = self.errors, []
        for name, fell_back in pending:
            self.record(name, fell_back)
        if errors:
            raise RuntimeError(errors[0])  # only the first of each stream. [PRE] internals 2.6

    def initialize(self):
        """The first use of the device in this process."""
        if self.core is not None:
            return
        if BEHAVIOUR["device"] == "absent":
            raise RuntimeError("Failed to initialize Neuron Runtime: status code 1")  # [PRE] internals, section 5
        if BEHAVIOUR["device"] == "hangs":
            time.sleep(3600)
        if BEHAVIOUR["device"] == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        rank = os.environ.get("LOCAL_RANK", "0")  # the core of a rank is that of its number. [USER-B4]
        core = (_HERE / ("core.lock" if rank == "0" else f"core{rank}.lock")).open("w")
        try:
            fcntl.flock(core, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            core.close()
            # In the words of [USER-B4].
            raise RuntimeError(
                "Logical Neuron Core(s) not available - Requested:lnc0-lnc0 Available:0 (cores busy, ret=-16)"
            ) from None
        self.core = core


RUNTIME = Runtime()


def get_fallback_ops():
    """Names without counts or order. Does not wait for the device. [PRE]"""
    return list(RUNTIME.fallen_back)


def get_executed_ops():
    return list(RUNTIME.executed)


def clear_op_tracking():
    """Does not wait for the device either: what is on its way is recorded afterwards. [PRE] internals 2.6"""
    RUNTIME.executed.clear()
    RUNTIME.fallen_back.clear()


def synchronize(device=None):
    RUNTIME.synchronize()


def device_count():
    return 0 if BEHAVIOUR["device"] == "absent" else 1


def start():
    """Give this process the device, under the backend's names."""
    device = emulate(None, warn=False)
    device.observe(RUNTIME.observe)
    for name, failure in BEHAVIOUR["failing"].items():
        if failure in ("early", "child"):
            device.inject_failure(name)
    neuron_module.synchronize = synchronize
    neuron_module.device_count = device_count
    neuron_module.is_available = lambda: device_count() > 0
    neuron_module.is_initialized = lambda: RUNTIME.core is not None
