"""A step in a fresh process in which the device may not recover on the CPU.

It is started as ``python -m smoketest.worker.strict TASK RESULT``, two files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from smoketest.config.models import Check
from smoketest.devices.base import Kind as DeviceKind
from smoketest.findings.report import Kind

__all__ = ["ask", "main"]

VARIABLE = "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS"  # witness.strict says what it does; it imports torch


def ask(check: Check, device: DeviceKind, continue_past_errors: bool, timeout: float) -> dict[str, Kind] | str:
    """Make a step of `check` in a fresh process, and tell which ops with a kernel would have fallen back, and why.

    Args:
        check: what to run.
        device: on which device.
        continue_past_errors: as in `smoketest.devices.base.open_device`.
        timeout: seconds for all of it.

    Returns:
        Kinds by functional base name, or why it could not be told.
    """
    with tempfile.TemporaryDirectory() as folder:
        task, result = Path(folder) / "task.json", Path(folder) / "result.json"
        told = {"check": check.model_dump(mode="json"), "device": device, "continue_past_errors": continue_past_errors}
        task.write_text(json.dumps(told), encoding="utf-8")
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "smoketest.worker.strict", str(task), str(result)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the user's code prints what it printed already
                stderr=subprocess.DEVNULL,
                env=os.environ | {VARIABLE: "1"},
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"the process was not done after {timeout:.0f} s"
        if not result.exists():
            return f"the process ended with code {ended.returncode}"
        answer = json.loads(result.read_text(encoding="utf-8"))
    if answer["error"]:
        return f"the step raised there: {answer['error']}"
    kinds: dict[str, Kind] = answer["kinds"]
    return kinds


def main(task: Path, result: Path) -> None:
    """Run the task in the first file and write what was seen to the second."""
    told = json.loads(task.read_text(encoding="utf-8"))
    if told["device"] != "neuron":
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    # From here on torch is imported.
    from smoketest.devices.base import open_device
    from smoketest.witness.strict import StrictWitness
    from smoketest.workload import build
    from smoketest.workload.usercode import summary_of

    check = Check.model_validate(told["check"])
    witness = StrictWitness()
    problem = None
    try:
        device = open_device(told["device"], check.profile, continue_past_errors=told["continue_past_errors"])
        work = build(check, device)
        with witness:
            work.step(0)
            device.synchronize()
    except BaseException as error:
        problem = None if witness.note_error(error) else summary_of(error)
    result.write_text(json.dumps({"kinds": witness.kinds, "error": problem}), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
