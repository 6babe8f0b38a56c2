"""PyTorch's own operator samples: forward and backward on the device agree with the CPU.

A part of them, with the packaged profile; ``make conformance`` runs all, each op in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import opinfo
import pytest
import torch

from smoketest.devices.emulated import EmulatedDevice

SCRIPT = Path(opinfo.__file__)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_samples_agree_with_the_cpu(dtype: torch.dtype, device: EmulatedDevice) -> None:
    compared, differing = 0, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, about deprecated or experimental ops
        for op in opinfo.op_db:
            if opinfo.excluded(op) is None:
                found = list(opinfo.differences(op, dtype, samples=1))
                differing |= {opinfo.title(op): text for text in found if text is not None}
                compared += len(found)
    assert differing == {}
    assert compared > 300 if dtype != torch.int64 and not dtype.is_complex else compared > 100


def test_the_whole_suite_counts_and_says_so() -> None:
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--samples", "2", "sort", "matmul", "squeeze", "sgn", "to_sparse"],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert ran.stdout.splitlines() == [
        "excluded to_sparse: sparse layouts: the device has none",
        "5 agree, 1 excluded, 0 differ, 0 crash",
    ]


CHECKS_OF_THE_SUITE = f"""
import sys; sys.path.insert(0, {str(SCRIPT.parent)!r})
import os, opinfo, smoketest, torch
smoketest.emulate(warn=False)

class Op:
    variant_test_name, supports_autograd = "", False
    supported_dtypes = lambda self, device: {{torch.float32}}
    def __init__(self, name, call): self.name, self.call = name, call
    def __call__(self, x): return self.call(x)
    def sample_inputs(self, *_, **__): yield Sample()

class Sample:
    input, args, kwargs = torch.ones(2), (), {{}}

ops = [
    Op("crashes", lambda x: os.abort() if x.device.type == "neuron" else x),
    Op("differs", lambda x: x + (x.device.type == "neuron")),
    Op("raises", lambda x: x.cpu() if x.device.type == "cpu" else 1 / 0),
    Op("strays", lambda x: x.cpu()),
]
for line in sorted(opinfo.judge(ops, None, 2)):
    print(*line, sep=" | ")
"""


def test_what_crashes_differs_or_raises_does_not_pass() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CHECKS_OF_THE_SUITE], capture_output=True, text=True, timeout=200, check=True
    )
    crashed, differs, raises, strays = ran.stdout.splitlines()
    assert crashed == "crashes | crash | exit code -6"
    assert differs.startswith("differs | differ | torch.float32: Tensor-likes are not close!")
    assert raises == "raises | differ | torch.float32: ZeroDivisionError: division by zero"
    assert strays == "strays | differ | torch.float32: a result is on cpu"
