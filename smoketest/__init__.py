"""What in a PyTorch model will not run on AWS Trainium, where in the code it is, and what to write instead.

Importing this package imports no torch; the names below load what they need on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from smoketest.config import Check
    from smoketest.devices.emulated import EmulatedDevice
    from smoketest.findings import Report
    from smoketest.probe.probe import ProbeResult
    from smoketest.watching import Watch

__all__ = ["__version__", "emulate", "probe", "run", "watch"]
__version__ = "0.1.0"


def emulate(profile: str | None = None, *, warn: bool = True) -> EmulatedDevice:
    """Give this Python process an emulated ``neuron`` device.

    Args:
        profile: path of an operator profile; the packaged pre-release list of April 2026 when not given.
        warn: warn once per op that falls back to the CPU, as Neuron's documentation says the device does
            ([PUB] best-practices page). ``False`` is silent, as a pre-release was ([PRE] NeuronLogging.h).

    Returns:
        The device with its tracker: ``get_fallback_ops()``, ``get_executed_ops()``, ``clear_op_tracking()``.
    """
    from smoketest.devices import emulated

    return emulated.emulate(profile, warn=warn)


def probe(model: nn.Module, *args: Any, **kwargs: Any) -> ProbeResult:
    """What ``torch.compile(model, backend="neuron", dynamic=False)`` would make of one training step of `model`.

    The model is called with the arguments given, forward and backward: from the output's ``loss`` where it has one,
    else from the sum of all outputs that require a gradient, and not at all where none does. It runs on the device its
    tensors are on, the CPU included, and every op of its graphs is lowered with public torch-mlir. The model, its
    gradients and buffers, and the random state are afterwards what they were::

        print(smoketest.probe(model, input_ids, labels=labels))

    Args:
        model: in the mode (train or eval) it is meant to run in.
        *args: what it is called with.
        **kwargs: likewise.

    Returns:
        The result: ``findings``, ``operators``, ``graphs``, ``not_checked`` and counts; its text is a summary.
        Predictions stand on the packaged operator profile. Without torch-mlir ``lowering_skipped`` says so.

    Raises:
        Exception: whatever the model raises without torch.compile.
    """
    from smoketest.probe.api import probe

    return probe(model, *args, **kwargs)


def run(check: Check | Path | str, *, output: Path | str | None = None, compile: bool = True) -> Report:
    """Run a check in worker processes, as ``smoketest run`` does, and return its report.

    Args:
        check: a check, or the path of its YAML file.
        output: folder that gets ``<name>/report.json`` and the rest; nothing is kept if None.
        compile: whether to run the compile probe.

    Raises:
        ConfigError: the check is wrong, or the folder cannot be written. Everything else that goes wrong is in the
            report: see its ``status``, ``exit_code`` and ``headline``.
    """
    from smoketest.supervise.api import run

    return run(check, output=output, compile=compile)


def watch(model: Any = None, *, trace: bool = False) -> Watch:
    """Watch code on the device: ``with smoketest.watch() as seen: ...``, then ``seen.fallbacks`` and ``seen.clean``.

    Args:
        model: the ``nn.Module`` whose qualified names findings are to give; modules are called by their class if None.
        trace: also find line, module, phase and count of every fallback, and where the host waits for the device. It
            costs something per op; without it only the names of ops are told, and nothing is done per op.

    Raises:
        DeviceUnavailable: on entering, if this process has no Neuron device; call `emulate` first where there is none.
        RuntimeError: on entering, if another ``watch`` is active in this process.
    """
    from smoketest.watching import Watch

    return Watch(model, trace=trace)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'smoketest' has no attribute {name!r}")
