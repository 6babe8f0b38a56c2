"""The table of ops that cannot be lowered says so of those only that torch-mlir does not know."""

from __future__ import annotations

import json
from importlib import resources

import pytest
import torch

from smoketest.operators.evidence import base_name
from smoketest.operators.profile import load_profile
from smoketest.probe.graphs import TensorSpec, overload
from smoketest.probe.lower import LoweringProcess
from smoketest.probe.sweep import is_function, reached
from smoketest.probe.verdict import Judge

from .build import op

TABLE = json.loads((resources.files("smoketest.operators") / "data" / "cannot_lower.json").read_text())
X = TensorSpec((3, 5), torch.float32)


def test_the_table_names_its_engine_and_has_sixty_ops_or_more() -> None:
    assert TABLE["generated_by"] == "python -m smoketest.probe.sweep"
    assert {"torch", "torch_mlir", "profile"} < TABLE.keys()
    assert len(TABLE["ops"]) >= 60
    assert TABLE["ops"]["aten::lgamma"] == {"seen_as": "torch.aten.lgamma"}


@pytest.mark.parametrize(
    "fine",
    [
        "erfinv",
        "native_batch_norm",
        "max_pool2d_with_indices",
        "native_dropout",
        "normal",
        "floor",
        "mse_loss",
        "diagonal",
    ],
)
def test_what_may_well_lower_is_not_in_the_table(fine: str) -> None:
    assert f"aten::{fine}" not in TABLE["ops"]


def test_no_op_of_the_table_has_a_kernel_in_the_profile() -> None:
    kernels = {base_name(name) for name in load_profile(None).native}
    assert kernels.isdisjoint(TABLE["ops"])


@pytest.mark.parametrize("name", ["aten::lgamma", "aten::digamma", "aten::special_i1", "aten::erfc"])
def test_an_op_of_the_table_fails_here_and_now(name: str, lowering: LoweringProcess) -> None:
    verdict = Judge(lowering, load_profile(None), 60).op(name, op(name, X, value=X))
    assert (verdict.outcome, verdict.unknown) == ("fails", (TABLE["ops"][name]["seen_as"],))


def test_an_op_that_pytorch_makes_of_its_own_out_form_has_no_more_of_a_kernel_than_that(
    lowering: LoweringProcess,
) -> None:
    graph = op("aten::kthvalue", X, 2, value=(TensorSpec((3,), torch.float32), TensorSpec((3,), torch.int64)))
    verdict = Judge(lowering, load_profile(None), 60).op("aten::kthvalue", graph)
    assert (verdict.outcome, verdict.grounds) == ("fails", "no_kernel_known")
    assert "has no kernel for it, and no decomposition avoids it" in verdict.why


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::lgamma", True),
        ("aten::sort", True),
        ("aten::lgamma_", False),
        ("aten::lgamma.out", False),
        ("aten::diagonal", False),
        ("aten::empty_permuted", False),
        ("aten::bernoulli.p", False),
    ],
)
def test_only_functions_of_tensors_are_swept(name: str, expected: bool) -> None:
    assert is_function(overload(name)) is expected


def test_a_sample_reaches_the_ops_of_its_backward_too() -> None:
    found = {node.target for _, node in reached(torch.lgamma, [torch.rand(3)])}
    assert {"aten::lgamma", "aten::digamma", "aten::mul.Tensor"} <= found
