"""A text is taken for a fallback's only where it says so and names an op: C++ names and plain words are none."""

from __future__ import annotations

import time

import pytest
import torch

from smoketest.findings.wordings import op_named_as_fallback
from smoketest.workload.usercode import summary_of


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("[Neuron] [DEBUG] [at::neuron::run] Operator 'aten::add.Tensor' fell back to CPU", "aten::add.Tensor"),
        ("at::neuron::run(): std::bad_alloc, my_ops::roll fell back to CPU", "my_ops::roll"),
        ("Starting CPU fallback operation=aten::mul.Tensor", "aten::mul.Tensor"),
        ("Operator\t' aten::atan2.out '\nfell  back\nto CPU", "aten::atan2.out"),
        ("std::bad_alloc: falling back to CPU", None),
        ("c10::Error in torch::load: falling back to CPU", None),
        ("the data loading operation is falling back to CPU", None),
        ("this operator fell back to CPU", None),
        ("the operation failed. Falling back to CPU", None),
        ("CPU fallback is disabled for operation=aten::add", None),
    ],
)
def test_an_op_is_named_or_it_is_no_fallback(text: str, op: str | None) -> None:
    assert op_named_as_fallback(text) == op


@pytest.mark.parametrize("piece", ["operator", "operator ", "a::", "::", "=", " '", "Args: ", "a."])
def test_no_text_takes_long(piece: str) -> None:
    started = time.process_time()
    op_named_as_fallback("fell back to cpu " + piece * 20_000)
    assert time.process_time() - started < 5  # a search that tries all pairs takes minutes


def test_the_op_that_the_tracker_is_tried_with_is_no_news() -> None:
    assert op_named_as_fallback("Operator ' aten::_test_optional_intlist ' fell back to CPU") is None


def test_pytorchs_message_of_a_missing_kernel_ends_after_what_it_says_of_the_op() -> None:
    with pytest.raises(NotImplementedError) as raised:
        torch.ops.aten._coalesce(torch.ones(3))
    assert "fburl" in str(raised.value)
    said = summary_of(raised.value)
    assert said == "NotImplementedError: Could not run 'aten::_coalesce' with arguments from the 'CPU' backend."
