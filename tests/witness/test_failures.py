"""An exception is blamed on the op it came out of, on the line of code that raised it, or on nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from smoketest.findings import SitePolicy
from smoketest.witness.dispatch import FailedOp, OpKey
from smoketest.witness.failures import raised, raised_by_code
from smoketest.witness.reconcile import reached_the_device

HERE = Path(__file__)
POLICY = SitePolicy(HERE.parent)
LINE = (str(HERE), 1)


def caught(action: Callable[[], Any]) -> BaseException:
    try:
        action()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def by_raise() -> None:
    raise ValueError("mine")


def by_assert() -> None:
    assert torch.ones(1).device.type == "meta"


def again() -> None:
    try:
        by_raise()
    except ValueError as error:
        raise RuntimeError("other words") from error


@pytest.mark.parametrize("action", [by_raise, by_assert, again])
def test_a_raise_or_an_assert_is_code(action: Callable[[], None]) -> None:
    assert raised_by_code(caught(action))


@pytest.mark.parametrize(
    "action",
    [
        lambda: torch.ones(2) @ torch.ones(3),
        lambda: torch.ones(2).view(3),
        lambda: torch.nn.Linear(2, 2)(torch.ones(1, 3)),
    ],
)
def test_an_error_of_an_op_is_not_code(action: Callable[[], Any]) -> None:
    error = caught(action)
    assert isinstance(error, RuntimeError)
    assert not raised_by_code(error)


def test_an_exception_without_a_traceback_is_not_said_to_be_code() -> None:
    assert not raised_by_code(ValueError())


def test_the_op_a_witness_saw_failing_is_named_with_its_place() -> None:
    failed = FailedOp("aten::mul.Tensor", "backward", "a", LINE)
    seen = raised("RuntimeError: x is on cpu", failed, False, (str(HERE), 9), "forward", POLICY)
    assert (seen.op, seen.called_as, seen.phase, seen.module) == (
        "aten::mul.Tensor",
        "aten::mul.Tensor",
        "backward",
        "a",
    )
    assert seen.site is not None
    assert seen.site.line == 1
    assert seen.message == "aten::mul.Tensor raised on the device, and plain CPU runs it: RuntimeError: x is on cpu"


def test_the_op_that_an_error_of_pytorchs_names_is_named_where_no_witness_saw_it() -> None:
    seen = raised("NotImplementedError: Could not run 'aten::foo.out' with", None, False, LINE, "forward", POLICY)
    assert (seen.op, seen.called_as, seen.phase) == ("aten::foo.out", None, "forward")


def test_an_op_that_code_only_mentions_is_not_blamed() -> None:
    seen = raised("ValueError: no 'aten::foo.out' here", None, True, LINE, "forward", POLICY)
    assert seen.op is None
    assert seen.message.startswith("this line raised on the device")
    assert raised("ValueError: x", None, True, None, None, POLICY).message.startswith("the step raised on the device")


@pytest.mark.parametrize(
    ("op", "phase", "on_device", "fell_back", "reached"),
    [
        ("aten::mul.Tensor", "forward", True, "", True),
        ("aten::lgamma", "backward", True, "aten::lgamma.out", True),
        ("aten::mul.Tensor", None, True, "", True),
        ("aten::mul.Tensor", "forward", False, "", False),
        ("aten::mul.Tensor", "optimizer", True, "", False),
        ("aten::_to_copy", "forward", True, "", False),
        ("aten::view", "forward", True, "", False),
    ],
)
def test_only_work_of_forward_and_backward_reaches_the_device(
    op: str, phase: Any, on_device: bool, fell_back: str, reached: bool
) -> None:
    names = frozenset({fell_back} - {""})
    assert reached_the_device({OpKey(op, phase, None, None, names, on_device): None}) is reached  # type: ignore[dict-item]
