"""Does the real device answer? Asked in a process of its own, ``python -m smoketest.devices.probing``, for a while.

The first use of a device may hang, or kill the process ([USER-B4] hung runs; SIGSEGV in native code). A process that
has loaded torch-neuronx can be given no emulated device any more, either: PyTorch has room for one. Nobody else may use
the device meanwhile: a core serves one process ([USER-B4]).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from smoketest.devices.settings import apply_settings
from smoketest.errors import DeviceUnavailable
from smoketest.process import end_with_parent

__all__ = ["SECONDS", "ask_device", "main"]

SECONDS = 120.0
"""[OWN] how long the first use may take. Nothing is compiled for it; a large instance's runtime starts slowly."""


def ask_device(seconds: float = SECONDS) -> DeviceUnavailable | None:
    """What keeps the device from being used, as the error to raise; None where it answered.

    Args:
        seconds: after which the process that asks is killed, with all it started.
    """
    with tempfile.TemporaryDirectory(prefix="smoketest-probe-") as folder, tempfile.TemporaryFile() as printed:
        answer = Path(folder) / "answer.json"
        process = subprocess.Popen(
            [sys.executable, "-m", "smoketest.devices.probing", str(answer)],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return DeviceUnavailable(
                f"the Neuron device did not answer within {seconds:g} s",
                hint="look for another user of the device or a hung compiler (`neuron-ls`, `ps`), end it, or reboot",
            )
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)  # a driver can keep a process from dying
        if not answer.exists():
            return _died(code, _tail(printed))
        told = json.loads(answer.read_text(encoding="utf-8"))
    return None if told is None else DeviceUnavailable(told["message"], hint=told["hint"])


def _died(code: int, tail: str) -> DeviceUnavailable:
    what = f"with code {code}"
    if code < 0:
        with contextlib.suppress(ValueError):
            what = f"by {signal.Signals(-code).name}"
    said = f": {tail}" if tail else ""
    return DeviceUnavailable(
        f"the first use of the Neuron device ended the process {what}{said}",
        hint="reinstall torch and torch-neuronx as a documented pair, and see `sudo dmesg | tail` for the driver",
    )


def _tail(printed: object) -> str:
    """The last line that was printed."""
    printed.seek(0)  # type: ignore[attr-defined]
    lines = [line.strip() for line in printed.read()[-4000:].decode("utf-8", "replace").splitlines()]  # type: ignore[attr-defined]
    return next((line for line in reversed(lines) if line), "")[:300]


def main(answer: Path) -> None:
    """Use the device once, and write to a file what came of it: ``null``, or message and hint."""
    end_with_parent()
    apply_settings(os.environ)
    from smoketest.devices.neuron import open_neuron

    told = None
    try:
        open_neuron()
    except DeviceUnavailable as error:
        told = {"message": error.message, "hint": error.hint}
    written = answer.with_suffix(".part")
    written.write_text(json.dumps(told), encoding="utf-8")
    written.rename(answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
