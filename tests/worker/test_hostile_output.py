"""Whatever a model does to warnings, logging and its output, the findings are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NET = """import logging
import os
import sys
import warnings
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 4)

    def forward(self, x):
        with quietly():
            y = self.out(x)
            return torch.atan2(y, x)


def make_batch(step):
    return (torch.ones(2, 4),), {}


def loss_fn(output, batch):
    return output.square().mean()


def make_model():
    before_the_model()
    return Net()


"""

NOTHING = """def before_the_model():
    pass


def quietly():
    return warnings.catch_warnings()
"""

HOSTILE = {
    "catch_warnings": """def before_the_model():
    pass


class quietly(warnings.catch_warnings):
    def __init__(self):
        super().__init__(record=True)

    def __enter__(self):
        seen = super().__enter__()
        warnings.simplefilter("ignore")
        warnings.resetwarnings()
        return seen
""",
    "showwarning": """def before_the_model():
    warnings.showwarning = lambda *args, **kwargs: os._exit(9)
    warnings.simplefilter("ignore")


def quietly():
    return warnings.catch_warnings()
""",
    "a plain list of filters": """def before_the_model():
    warnings.filters = [("error", None, UserWarning, None, 0)]
    warnings._filters_mutated() if hasattr(warnings, "_filters_mutated") else None


def quietly():
    return warnings.catch_warnings()
""",
    "logging off": """def before_the_model():
    logging.disable(logging.CRITICAL)
    logging.getLogger().setLevel(logging.CRITICAL)


def quietly():
    return warnings.catch_warnings()
""",
    "closed stderr": """def before_the_model():
    os.close(2)
    sys.stderr = None


def quietly():
    return warnings.catch_warnings()
""",
    "a silent device": """def before_the_model():
    import smoketest
    smoketest.emulate(warn=False)


def quietly():
    return warnings.catch_warnings()
""",
    "redirected output": """def before_the_model():
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    sys.stdout = sys.stderr = open(os.devnull, "w")


def quietly():
    return warnings.catch_warnings()
""",
}


def findings(run_worker: Any, folder: Path, hostile: str, python: tuple[str, ...] = ()) -> list[Any]:
    """All of each finding but the list of the witnesses, which may be fewer."""
    file = folder / "net.py"
    file.write_text(NET + hostile)
    worker = run_worker({"workload": str(file), "training": {"steps": 1}}, python=python)
    assert worker.eager.status == "ran", worker.eager.reason
    return [finding.model_copy(update={"witnesses": ()}) for finding in worker.findings]


@pytest.fixture(scope="module")
def expected(run_worker: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    found = findings(run_worker, tmp_path_factory.mktemp("plain"), NOTHING)
    assert [(f.op, f.phase, f.site.code) for f in found] == [
        ("aten::atan2.out", "forward", "return torch.atan2(y, x)"),
    ]
    return found


@pytest.mark.parametrize("how", sorted(HOSTILE))
def test_findings_are_the_same_under(run_worker: Any, expected: list[Any], tmp_path: Path, how: str) -> None:
    assert findings(run_worker, tmp_path, HOSTILE[how]) == expected


def test_findings_are_the_same_in_a_python_started_with_errors_on_warnings(
    run_worker: Any, expected: list[Any], tmp_path: Path
) -> None:
    assert findings(run_worker, tmp_path, NOTHING, ("-W", "error::UserWarning")) == expected
