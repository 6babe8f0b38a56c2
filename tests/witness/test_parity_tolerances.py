"""What counts as a difference from plain CPU, and what as rounding."""

from __future__ import annotations

import math

import pytest
import torch

from smoketest.witness.digest import MOST_VALUES, Digest, digest_of, distance
from smoketest.witness.parity import Seen, differences, losses_apart, precision, relative_errors, tolerances_for

ONE = torch.linspace(1, 2, 8)
FLOAT = tolerances_for(torch.float32)


def digest(tensor: torch.Tensor) -> Digest:
    made = digest_of(tensor)
    assert made is not None
    return made


def seen(tensor: torch.Tensor, key: str = "a", kind: str = "value", stored: float = 0.0) -> Seen:
    return Seen(key, kind, f"the output of {key}", key, "forward", digest(tensor), stored=stored)


def test_one_percent_is_a_difference_in_float32_and_a_rounding_error_is_none() -> None:
    (found,) = differences({"a": digest(ONE * 1.01)}, [seen(ONE)], FLOAT)
    assert (found.error, found.tolerated) == (pytest.approx(0.01, rel=1e-3), pytest.approx(1e-4))
    assert differences({"a": digest(ONE * (1 + 1e-6))}, [seen(ONE)], FLOAT) == []


@pytest.mark.parametrize(
    ("dtype", "rtol"), [(torch.float32, 1e-4), (torch.float16, 4e-3), (torch.bfloat16, 2e-2), (torch.float64, 1e-4)]
)
def test_the_tolerance_is_that_of_the_coarsest_dtype(dtype: torch.dtype, rtol: float) -> None:
    assert (
        tolerances_for(precision({torch.float32, torch.int64, dtype} if dtype.itemsize < 8 else {dtype})).rtol == rtol
    )
    assert tolerances_for(dtype, rtol=0.5).rtol == 0.5


def test_what_rounding_does_to_a_tensor_is_tolerated_eight_times() -> None:
    noisy = {"a": digest(ONE + 1e-3)}
    assert len(differences({"a": digest(ONE + 7e-3)}, [seen(ONE)], FLOAT)) == 1
    assert differences({"a": digest(ONE + 7e-3)}, [seen(ONE)], FLOAT, [noisy]) == []
    assert len(differences({"a": digest(ONE + 9e-3)}, [seen(ONE)], FLOAT, [noisy])) == 1
    quiet = {"a": digest(ONE)}
    assert differences({"a": digest(ONE + 7e-3)}, [seen(ONE)], FLOAT, [quiet, noisy]) == []  # the larger of several


def test_what_is_nought_beside_its_kind_may_be_anything() -> None:
    reference = [seen(ONE * 1e3, "a", "gradient"), seen(ONE * 1e-9, "b", "gradient"), seen(ONE, "c", "value")]
    device = {"a": digest(ONE * 1e3), "b": digest(ONE * -1e-5), "c": digest(ONE)}
    assert differences(device, reference, FLOAT) == []
    (found,) = differences(device | {"b": digest(ONE * 1e-3)}, reference, FLOAT)
    assert found.seen.key == "b"


def test_an_update_is_known_to_a_unit_of_what_it_changes() -> None:
    change = ONE * 1e-6
    device = {"a": digest(change * 1.05)}
    assert len(differences(device, [seen(change, kind="update")], FLOAT)) == 1
    assert differences(device, [seen(change, kind="update", stored=8.0)], FLOAT) == []


def test_an_absolute_tolerance_is_added_for_each_value() -> None:
    tolerances = tolerances_for(torch.float32, rtol=0.0, atol=1e-2)
    assert differences({"a": digest(ONE + 0.9e-2)}, [seen(ONE)], tolerances) == []
    assert len(differences({"a": digest(ONE + 1.1e-2)}, [seen(ONE)], tolerances)) == 1


def test_differences_come_in_the_order_of_the_reference_and_what_only_one_side_has_is_left_out() -> None:
    reference = [seen(ONE, key) for key in "cabd"]
    device = {key: digest(ONE * 2) for key in "abcx"}
    assert [found.seen.key for found in differences(device, reference, FLOAT)] == ["c", "a", "b"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_finite_on_one_side_only_is_infinitely_far(value: float) -> None:
    bad = ONE.clone()
    bad[3] = value
    assert distance(digest(bad), digest(ONE)) == math.inf
    assert distance(digest(bad), digest(bad)) == 0
    assert distance(digest(ONE[:4]), digest(ONE)) == math.inf


def test_of_a_large_tensor_the_values_between_those_kept_count_by_the_norm() -> None:
    large = torch.ones(4 * MOST_VALUES)
    kept = digest(large)
    assert kept.values.numel() <= MOST_VALUES
    other = large.clone()
    other[1::5] = 2  # the step is odd: 5
    assert torch.equal(digest(other).values, kept.values)
    assert distance(digest(other), kept) > 0.2 * kept.size
    matrix = torch.ones(4096, 1024)
    matrix[:, 1] = 5
    assert digest(matrix).values.unique().tolist() == [1.0, 5.0]  # no walk down one column


def test_complex_values_are_compared_and_integers_are_not() -> None:
    assert digest_of(torch.ones(2, dtype=torch.int64)) is None
    assert digest(torch.tensor([1 + 2j])).values.tolist() == [1.0, 2.0]


def test_losses_differ_where_their_relative_error_is_not_allowed() -> None:
    assert relative_errors([1.0, 2.2, None, 1.0, None], [1.0, 2.0, 1.0, None, None]) == [
        0.0, pytest.approx(0.1), math.inf, math.inf, 0.0
    ]  # fmt: skip
    assert losses_apart([1.0, 2.2], [1.0, 2.0], [1e-4, 0.2]) is None
    assert losses_apart([1.0, 2.2], [1.0, 2.0], [1e-4, 0.05]) == 1
    assert losses_apart([None], [1.0], [10.0]) == 0
