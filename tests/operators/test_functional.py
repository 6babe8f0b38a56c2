"""Names of the dispatcher and the tracker lead back to the functional overload."""

from __future__ import annotations

import pytest

from smoketest.operators.functional import functional_overload, overload


@pytest.mark.parametrize(
    ("name", "functional"),
    [
        ("aten::atan2.out", "aten::atan2"),
        ("aten::sort.values_stable", "aten::sort.stable"),
        ("aten::index_fill_.int_Scalar", "aten::index_fill.int_Scalar"),
        ("aten::scatter_reduce.two_out", "aten::scatter_reduce.two"),
        ("aten::uniform_", "aten::uniform"),
        ("aten::add_.Tensor", "aten::add.Tensor"),
        ("aten::max.dim_max", "aten::max.dim"),
        ("aten::_foreach_add_.List", "aten::_foreach_add.List"),
        ("aten::linalg_cross.out", "aten::linalg_cross"),
    ],
)
def test_out_and_in_place_names_become_functional(name: str, functional: str) -> None:
    assert functional_overload(name) == functional


@pytest.mark.parametrize("name", ["aten::addmm", "aten::view", "aten::record_stream", "aten::no_such_op", "x::y.z"])
def test_a_name_without_a_functional_form_stays_as_it_is(name: str) -> None:
    assert functional_overload(name) == name


def test_an_unknown_overload_is_none() -> None:
    assert overload("aten::add.no_such") is None
    assert overload("no_such::op") is None
