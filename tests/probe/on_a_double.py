"""Run in a process of its own by test_on_device_doubles.py, with a double of torch-neuronx on Python's path.

Runs the compile part of a check in FOLDER once for each ``model:compiler:direction`` of the command line, and prints
what it says as JSON, a line each.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from smoketest.devices.settings import apply_settings

apply_settings(os.environ)  # before torch, with which torch-neuronx loads

import torch  # noqa: E402
from torch import nn  # noqa: E402

from smoketest.config.load import load_check  # noqa: E402
from smoketest.devices.base import open_device  # noqa: E402
from smoketest.findings import SitePolicy  # noqa: E402
from smoketest.findings.report import Environment  # noqa: E402
from smoketest.supervise.protocol import FindingsSoFar, Message, Note, Result  # noqa: E402
from smoketest.worker import compile as compile_part  # noqa: E402
from smoketest.worker.breadcrumb import BreadcrumbFile  # noqa: E402
from smoketest.worker.job import Job  # noqa: E402


class Small(nn.Module):
    """Two graphs. The profile has no kernel for what the second one uses, and torch-mlir does not know it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).tanh()
        torch._dynamo.graph_break()
        return self.second(x)  # type: ignore[no-any-return]


class Refused(Small):
    """An op that fails lowering on the device as it does here."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.lgamma(self.first(x).abs() + 1)


def make_batch(step: int) -> tuple[Any, ...]:
    return (torch.ones(3, 4),), {}


def loss_fn(output: torch.Tensor, batch: Any) -> torch.Tensor:
    return output.sum()


CHECK = """
name: small
workload: {file}
model: {{target: "{file}:{model}"}}
optimizer: {{name: SGD, lr: 0.1}}
training: {{steps: 2}}
device: neuron
"""


def one(model: str, folder: Path, output: Path) -> dict[str, Any]:
    sent: list[Message] = []
    (folder / "check.yaml").write_text(CHECK.format(file=__file__, model=model))
    job = Job(
        check=load_check(folder / "check.yaml"),
        device=open_device("neuron"),
        policy=SitePolicy(Path(__file__).parent),
        environment=Environment(),
        emit=sent.append,
        breadcrumb=BreadcrumbFile(folder / "breadcrumb"),
        output=output,
    )
    compile_part.run(job)
    *_, findings = [message.findings for message in sent if isinstance(message, FindingsSoFar)]
    (result,) = [message.compile for message in sent if isinstance(message, Result)]
    assert result is not None
    return {
        "findings": [
            [f.rule, f.phase, f.op, f.grounds, f.site and f.site.code, f.message]
            for f in findings
            if f.rule != "NST204"
        ],
        "repros": [f.repro for f in findings if f.rule != "NST204"],
        "graphs": [[g.id, g.status, g.stage, g.first_ms, g.steady_ms] for g in result.graphs],
        "not_checked": [[m.not_checked.what, m.not_checked.why] for m in sent if isinstance(m, Note)],
    }


def main() -> None:
    from torch_neuronx._build_config import BEHAVIOUR

    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    for wanted in sys.argv[2:]:
        model, BEHAVIOUR["compiler"], BEHAVIOUR["compiler_at"] = wanted.split(":")
        sys.stdout.write("\n " + json.dumps({wanted: one(model, folder, folder / wanted)}) + "\n")
        sys.stdout.flush()  # at once: the next run may be the last


if __name__ == "__main__":
    main()
