"""Every public case trains three steps on the device with the CPU's losses, or is refused as its header expects.

The findings on them are tested with the worker (tests/worker/test_cases.py).
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from smoketest.config.models import Check
from smoketest.devices.base import open_device
from smoketest.devices.emulated import EmulatedDevice
from smoketest.workload import build
from smoketest.workload.workload import loss_value

CASES = sorted((Path(__file__).parents[1] / "cases").glob("0*.py"))

REFUSED = {
    "031_sparse_grad_embedding_sparseadam": (
        r"Could not run 'aten::_sparse_coo_tensor_with_dims_and_tensors' with arguments from the 'Sparseneuron' backend"
    ),
    "068_stray_cpu_tensor_attribute": r"Non-scalar tensor arg1 is on cpu device, expected neuron",
}


def _losses(case: Path, where: str) -> list[float | None]:
    torch.manual_seed(0)
    check = Check.model_validate({"name": case.stem, "workload": str(case)})
    device = open_device(where, warn=False, continue_past_errors=True)  # type: ignore[arg-type]
    made = build(check, device)
    return [loss_value(made.step(index)) for index in range(3)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_case_trains_with_the_losses_of_the_cpu_or_is_refused(case: Path, device: EmulatedDevice) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whatever the case itself warns of
        on_cpu = _losses(case, "cpu")
        if case.stem in REFUSED:
            with pytest.raises((RuntimeError, NotImplementedError), match=REFUSED[case.stem]):
                _losses(case, "emulated")
            return
        assert _losses(case, "emulated") == pytest.approx(on_cpu, rel=1e-3, abs=1e-6)
    assert len(set(on_cpu)) > 1, "a training that changes nothing proves nothing"


def test_all_cases_are_here() -> None:
    assert len(CASES) == 30
