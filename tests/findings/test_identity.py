from __future__ import annotations

from collections import Counter

import pytest

from smoketest.findings import Observation, Site, merge
from smoketest.findings.identity import finding_id, functional_base, module_patterns


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("aten::sort.values_stable", "aten::sort"),
        ("aten::sort", "aten::sort"),
        ("sort", "aten::sort"),
        ("aten::index_fill_.int_Scalar", "aten::index_fill"),
        ("aten::normal_", "aten::normal"),
        ("aten::_index_put_impl_", "aten::_index_put_impl"),
        ("aten::__ilshift__.Scalar", "aten::__ilshift__"),
        ("aten::mse_loss.out", "aten::mse_loss"),
        ("mylib::op_.default", "mylib::op"),
    ],
)
def test_functional_base_drops_overload_and_in_place_mark(name: str, base: str) -> None:
    assert functional_base(name) == base


# These ids are in the baselines of users: a change here loses every one of them.
GOLDEN = {
    ("NST101", "aten::atan2.out", "forward", "configs/workloads/equivariant.py", "azimuth = torch.atan2(y, x)", 0): (
        "c09d0205db7a"
    ),
    (
        "NST101",
        "aten::native_batch_norm_backward",
        "backward",
        "transformers/models/resnet/modeling_resnet.py",
        "x",
        1,
    ): ("75454354a630"),
    ("NST204", None, None, None, "", 0): "2c38fcb5f5dc",
    ("NST201", "aten::lgamma", "forward", "modèle.py", "x = torch.lgamma(x)  # é", 2): "5e6aaefde9b4",
}


@pytest.mark.parametrize(("parts", "identity"), GOLDEN.items())
def test_ids_never_change(parts: tuple[str, str | None, str | None, str | None, str, int], identity: str) -> None:
    assert finding_id(*parts) == identity


def test_the_id_ignores_overload_indentation_and_nothing_else() -> None:
    def one(rule="NST101", op="aten::sort", phase="forward", file="a.py", code="y = x.sort()", ordinal=0) -> str:
        return finding_id(rule, op, phase, file, code, ordinal)

    assert one() == one(op="aten::sort.values_stable") == one(op="sort") == one(code="    y = x.sort()\n")
    others = [
        one(rule="NST201"),
        one(op="aten::topk"),
        one(phase="backward"),
        one(file="b.py"),
        one(code="z = x.sort()"),
        one(ordinal=1),
    ]
    assert len({one(), *others}) == 7


def ids(*observations: Observation) -> list[str]:
    return [finding.id for finding in merge(observations)]


def seen(
    line: int, *, op: str = "aten::sort.values_stable", code: str = "y = x.sort()", **given: object
) -> Observation:
    return Observation("NST101", op=op, phase="forward", site=Site(file="m.py", line=line, code=code), **given)  # type: ignore[arg-type]


def test_the_id_survives_lines_added_above_other_witnesses_and_the_step_to_the_device() -> None:
    before = ids(seen(10, grounds="no_kernel_known", kind="unimplemented", module="h.0", calls=1))
    after = ids(seen(99, grounds="measured", kind="rejected", module="h.1", calls=7, witnesses=frozenset({"tracker"})))
    assert before == after


def test_equal_lines_are_told_apart_by_their_order() -> None:
    first, second = ids(seen(10), seen(20))
    assert first != second
    assert ids(seen(20), seen(10)) == [first, second]
    assert ids(seen(5), seen(7)) == [first, second]


def test_ids_of_one_report_are_distinct_even_for_overloads_of_one_op_on_one_line() -> None:
    assert len(set(ids(seen(10), seen(10, op="aten::sort.stable")))) == 2


@pytest.mark.parametrize(
    ("calls", "patterns"),
    [
        ({"h.0.attn": 2, "h.1.attn": 3}, [("h.*.attn", 5)]),
        ({"mlp.2": 1}, [("mlp.2", 1)]),
        ({"h.0.mlp.2": 1, "h.1.mlp.2": 1}, [("h.*.mlp.2", 2)]),
        ({"h.0.mlp.2": 1, "h.1.mlp.3": 1}, [("h.*.mlp.*", 2)]),
        ({"a.0": 1, "b.0": 4}, [("b.0", 4), ("a.0", 1)]),
        ({"": 3}, [("", 3)]),
        ({"encoder": 1, "encoder.layer.0": 1}, [("encoder", 1), ("encoder.layer.0", 1)]),
        ({}, []),
    ],
)
def test_modules_that_differ_in_numbers_only_are_joined(calls: dict[str, int], patterns: list[tuple[str, int]]) -> None:
    assert module_patterns(Counter(calls)) == patterns
