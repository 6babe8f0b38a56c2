"""What the dispatcher tells of any backend agrees with the list that was read from the source tree."""

from __future__ import annotations

import torch

from smoketest.operators import derive
from smoketest.operators.profile import load_profile


def test_structured_overloads_reach_the_out_form_the_packaged_profile_names() -> None:
    derived, packaged = derive.reaches(), load_profile().reaches
    names = set(torch._C._dispatch_get_all_op_names())
    assert {op: derived.get(op) for op in packaged if op in names} == {
        op: out for op, out in packaged.items() if op in names
    }
    assert len(set(derived) - set(packaged) - load_profile().native) < 10  # ops younger than the list
    assert derived["aten::sort.stable"] == "aten::sort.values_stable"


def test_what_has_neither_kernel_nor_composite_is_what_the_packaged_profile_says() -> None:
    profile = load_profile()
    names = set(torch._C._dispatch_get_all_op_names())
    derived = set(derive.unimplemented(profile.native))
    assert profile.unimplemented & names <= derived
    # ops younger than the list, and of other backends
    assert len(derived - profile.unimplemented) < 40


def test_nothing_of_the_cpu_is_taken_for_a_kernel_of_the_device() -> None:
    assert "aten::add.out" in derive.registered("CPU")
    assert "aten::reshape" not in derive.registered("CPU")
