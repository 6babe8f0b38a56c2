"""The lowering process says how far a graph gets, and costs one result when torch-mlir takes it down."""

from __future__ import annotations

import sys

import pytest
import torch

from smoketest.probe import lower
from smoketest.probe.graphs import TensorSpec
from smoketest.probe.lower import Crashed, LoweringProcess, TimedOut, missing_reason
from smoketest.probe.lowering_worker import Answer

from .build import op

F, INT = torch.float32, torch.int64
X = TensorSpec((3, 5), F)
ADD = op("aten::add.Tensor", X, X, value=X)
# Known faults of torch-mlir 20261001: the first dies of a null pointer, the second fills memory for a minute.
SEGFAULT = op(
    "aten::nll_loss_forward", X, TensorSpec((3,), INT), None, 1, -100, value=(TensorSpec((), F), TensorSpec((), F))
)
HANG = op("aten::slice_scatter", TensorSpec((2, 1, 16, 16), F), TensorSpec((2, 1, 16, 8), F), 3, 8, 2**63 - 1,
          value=TensorSpec((2, 1, 16, 16), F))  # fmt: skip


def test_an_op_that_lowers_reaches_stablehlo(lowering: LoweringProcess) -> None:
    assert lowering.lower(ADD, 30) == Answer("stablehlo")
    assert lowering.lower(op("aten::mm", X, TensorSpec((5, 2), F), value=TensorSpec((3, 2), F)), 30).lowers


def test_a_dtype_that_the_importer_does_not_take_is_named(lowering: LoweringProcess) -> None:
    unsigned = TensorSpec((3, 5), torch.uint16)
    answer = lowering.lower(op("aten::add.Tensor", unsigned, unsigned, value=unsigned), 30)
    assert answer == Answer("captured", "the importer has no type for tensors of torch.uint16")


def test_an_op_the_dialect_does_not_know_is_named(lowering: LoweringProcess) -> None:
    answer = lowering.lower(op("aten::lgamma", X, value=X), 30)
    assert answer == Answer(
        stage="imported",
        sentence="failed to legalize operation 'torch.operator' that was explicitly marked illegal (torch.aten.lgamma)",
        node="op",
        unknown=("torch.aten.lgamma",),
    )


def test_an_op_without_stablehlo_pattern_ends_a_stage_later(lowering: LoweringProcess) -> None:
    answer = lowering.lower(op("aten::erfinv", X, value=X), 30)
    assert answer == Answer("torch-backend", "failed to legalize operation 'torch.aten.erfinv'", "op")


def test_a_matmul_of_two_dtypes_gives_the_reason_before_the_refusal(lowering: LoweringProcess) -> None:
    other = TensorSpec((5, 2), torch.bfloat16)
    answer = lowering.lower(op("aten::mm", X, other, value=TensorSpec((3, 2), F)), 30)
    sentence = "matmul: input datatypes mismatched; failed to perform matmul operation"
    assert answer == Answer("torch-backend", sentence, "op")


def test_a_crash_and_a_hang_cost_one_result_each_and_the_sweep_goes_on() -> None:
    with LoweringProcess() as process:
        assert process.lower(SEGFAULT, 60) == Crashed("SIGSEGV")
        assert process.lower(ADD, 60) == Answer("stablehlo")
        assert process.lower(HANG, 0.5) == TimedOut(0.5)
        assert process.lower(ADD, 60) == Answer("stablehlo")
        assert process.started == 3


def test_a_process_that_does_not_start_is_an_error_that_says_how_it_ended() -> None:
    command = (sys.executable, "-c", "raise SystemExit(7)")
    with LoweringProcess(command) as process, pytest.raises(RuntimeError, match=r"does not start \(exit status 7\)"):
        process.lower(ADD, 30)


def test_a_process_started_early_is_the_one_that_lowers() -> None:
    with LoweringProcess() as process:
        process.start()
        assert process.lower(ADD, 60) == Answer("stablehlo")
        assert process.started == 1


def test_what_to_type_is_said_where_torch_mlir_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_reason() is None
    monkeypatch.setattr(lower.importlib.util, "find_spec", lambda name: None)
    assert missing_reason() == 'torch-mlir is not installed: pip install ".[lowering]" in a clone of smoketest'
