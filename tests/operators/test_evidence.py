"""A prediction denies only on firm grounds."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest
import torch
from make_composites import table

from smoketest.operators import evidence
from smoketest.operators.evidence import base_name, cannot_lower, grounds_for, reports
from smoketest.operators.profile import load_profile

PROFILE = load_profile()


@pytest.mark.parametrize(
    ("op", "base"),
    [
        ("aten::sort.values_stable", "aten::sort"),
        ("aten::index_fill_.int_Scalar", "aten::index_fill"),
        ("aten::uniform_", "aten::uniform"),
        ("aten::__iand__.Tensor", "aten::__iand__"),
        ("aten::_foreach_add_.List", "aten::_foreach_add"),
    ],
)
def test_the_base_name_leaves_overload_and_underscore_out(op: str, base: str) -> None:
    assert base_name(op) == base


@pytest.mark.parametrize(
    "op",
    [
        "aten::atan2.out",
        "aten::acos.out",
        "aten::linalg_cross.out",
        "aten::sort.values_stable",
        "aten::scatter_reduce.two_out",
        "aten::index_fill_.int_Scalar",
        "aten::uniform_",
        "aten::normal_",
    ],
)
def test_an_op_seen_on_a_real_device_is_reported(op: str) -> None:
    assert grounds_for(op, PROFILE) == "reported"


@pytest.mark.parametrize(
    "op",
    [
        "aten::native_batch_norm",
        "aten::native_batch_norm_backward",
        "aten::max_pool2d_with_indices.out",
        "aten::_adaptive_avg_pool2d",
        "aten::maximum.out",
        "aten::mse_loss.out",
        "aten::argmax.out",
        "aten::bernoulli_.float",
        "aten::var.correction",
        "aten::leaky_relu.out",
        "aten::_amp_update_scale_",
    ],
)
def test_ordinary_models_are_not_denied_for_want_of_a_kernel_in_an_old_list(op: str) -> None:
    assert grounds_for(op, PROFILE) == "no_kernel_known"


def test_every_report_names_its_source_release_and_the_names_seen() -> None:
    assert len(reports()) >= 12
    for report in reports().values():
        assert report.source
        assert report.release
        assert {base_name(name) for name in report.names} == {report.op}


def test_a_table_of_ops_that_cannot_be_lowered_is_used_when_it_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cannot_lower.json").write_text(json.dumps({"ops": {"aten::lgamma": {}, "aten::erfinv": {}}}))
    (tmp_path / "data" / "reported.yaml").write_text("[]")
    monkeypatch.setattr(evidence.resources, "files", lambda package: tmp_path)
    cannot_lower.cache_clear()
    try:
        assert grounds_for("aten::lgamma.out", PROFILE) == "cannot_lower"
        # native in the profile: the backend has a lowering of its own, public torch-mlir proves nothing
        assert grounds_for("aten::erfinv.out", PROFILE) == "no_kernel_known"
    finally:
        cannot_lower.cache_clear()


def test_the_composites_are_those_of_the_pytorch_that_they_were_asked_of() -> None:
    data = json.loads((resources.files("smoketest.operators") / "data" / "aten_ops.json").read_text(encoding="utf-8"))
    if data["torch"] != torch.__version__.partition("+")[0]:
        pytest.skip(f"the table is of PyTorch {data['torch']}")
    assert data == table()
