"""Runs the eager part of one model under many settings of `witnesses`, in one process; prints what came of each.

For test_witness_switches.py. The device is the emulated one, or that one driven as a real one is.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from smoketest.config.models import Check
from smoketest.devices.base import open_device
from smoketest.devices.neuron import NeuronDevice
from smoketest.findings import SitePolicy
from smoketest.worker import eager
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.environment import read_environment
from smoketest.worker.job import Job

NET = """import torch
from torch import nn

library = torch.library.Library("switches", "FRAGMENT")
library.define("bounce(Tensor x) -> Tensor")
library.impl("bounce", lambda x: (x.cpu() * 2).to("neuron"), "PrivateUse1")
library.impl("bounce", lambda x: x * 2, "CPU")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.atan2(self.out(x), x)
        return y + y.detach().sum().item() + torch.ops.switches.bounce(y.detach())


def make_model():
    return Net()


def make_batch(step):
    return (torch.ones(2, 4),), {}


def loss_fn(output, batch):
    return output.square().mean()
"""


def outcome(file: Path, kind: str, off: tuple[str, ...]) -> dict[str, Any]:
    events: list[Any] = []
    emulated = open_device("emulated")
    emulated.clear_tracking()  # else an op that has warned in this process warns no more
    device: Any = emulated
    if kind == "neuron":
        device = NeuronDevice("stand-in", emulated.fallback_names, emulated.clear_tracking, emulated.synchronize)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            check=Check(
                name="net",
                workload=file,
                training={"steps": 1},  # type: ignore[arg-type]
                witnesses=dict.fromkeys(off, False),  # type: ignore[arg-type]
            ),
            device=device,
            policy=SitePolicy(file.parent),
            environment=read_environment({}),
            emit=events.append,
            breadcrumb=BreadcrumbFile(Path(folder) / "crumb"),
        )
        with contextlib.redirect_stdout(sys.stderr):
            eager.run(job)
    found = [event.findings for event in events if event.event == "findings"]
    (part,) = [event.eager for event in events if event.event == "result"]
    return {
        "status": part.status,
        "op_calls": part.op_calls,
        "phases": [event.name for event in events if event.event == "phase"],
        "findings": [finding.model_dump(by_alias=True) for finding in (found[-1] if found else ())],
        "not checked": {e.not_checked.what: e.not_checked.why for e in events if e.event == "note"},
    }


ALL = ("tracker", "registry", "dispatch", "kernels", "warnings", "copies", "strict")

if __name__ == "__main__":
    file = Path(sys.argv[1]) / "net.py"
    file.write_text(NET)
    settings = {"": (), "all": ALL} | {name: (name,) for name in ALL}
    told = {kind: {name: outcome(file, kind, off) for name, off in settings.items()} for kind in ("emulated", "neuron")}
    print(json.dumps(told))  # noqa: T201
