"""PyTorch's own operator samples: forward and backward on the device agree with the CPU."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

from smoketest.devices.emulated import EmulatedDevice

EXCLUDED = {
    "jiterator_": "CUDA only: no sample runs on the CPU",
    "sparse.": "sparse layouts: the device has none",
    "to_sparse": "sparse layouts: the device has none",
    "tensor_split": "a device tensor as split points is refused by PyTorch itself, as on CUDA",
    "empty": "uninitialised memory",
    "new_empty": "uninitialised memory",
}
SAMPLES = 1

Outcome = tuple[list[Any], list[Tensor | None]] | Exception


def outcome(op: Any, sample: Any, where: str, backward: bool) -> Outcome:
    """Results and gradients of one sample, or the error it ends in."""

    def move(x: Any) -> Any:
        if isinstance(x, Tensor):
            return x.detach().clone().to(where).requires_grad_(x.requires_grad)
        return where if x == "cpu" else torch.device(where) if isinstance(x, torch.device) else x

    torch.manual_seed(0)
    value, args, kwargs = tree_map(move, (sample.input, sample.args, sample.kwargs))
    try:
        out = tree_leaves(op(value, *args, **kwargs))
        differentiable = [t for t in out if isinstance(t, Tensor) and t.requires_grad]
        if not (backward and differentiable):
            return out, []
        total = sum((t.abs() if t.is_complex() else t).sum() for t in differentiable)
        inputs = [t for t in tree_leaves((value, args, kwargs)) if isinstance(t, Tensor) and t.requires_grad]
        return out, list(torch.autograd.grad(total, inputs, allow_unused=True))  # type: ignore[arg-type]
    except Exception as error:  # compared with the CPU's
        return error


def difference(cpu: Outcome, device: Outcome) -> str | None:
    if isinstance(cpu, Exception):
        return None if isinstance(device, type(cpu)) else f"the CPU raises {type(cpu).__name__}, the device does not"
    if isinstance(device, Exception):
        return f"{type(device).__name__}: {device}"
    for expected, seen in zip(cpu[0] + cpu[1], device[0] + device[1], strict=True):
        if not isinstance(expected, Tensor):
            if not (seen == expected or seen is None):
                return f"{seen} is not {expected}"
            continue
        if seen.device.type != "neuron":
            return f"a result is on {seen.device}"
        try:
            torch.testing.assert_close(seen.detach().cpu(), expected.detach(), equal_nan=True)
        except AssertionError as error:
            return str(error).replace("\n", " ")
    return None


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64])
def test_every_sample_agrees_with_the_cpu(dtype: torch.dtype, device: EmulatedDevice) -> None:
    compared, differing = 0, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, about deprecated or experimental ops
        for op in op_db:
            if dtype not in op.supported_dtypes("cpu") or op.name.startswith(tuple(EXCLUDED)):
                continue
            backward = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
            samples = op.sample_inputs("cpu", dtype, requires_grad=backward)
            for sample in itertools.islice(samples, SAMPLES):
                pair = [outcome(op, sample, where, backward) for where in ("cpu", "neuron")]
                found = difference(*pair)
                if found is not None:
                    differing[f"{op.name} {op.variant_test_name}".strip()] = found
            compared += 1
    assert differing == {}
    assert compared > {torch.float32: 600, torch.int64: 400, torch.complex64: 300}[dtype]
