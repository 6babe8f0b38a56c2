"""Which part of a batch a rank gets."""

from __future__ import annotations

import pytest
import torch

from smoketest.errors import UserCodeError
from smoketest.workload.parts import how_split, part_of

BATCH = {"x": torch.arange(16).view(4, 4), "mask": torch.ones(4, 4), "bias": torch.ones(1, 4)}


def test_what_is_named_is_split_and_the_rest_is_whole() -> None:
    part = part_of(BATCH, 1, 2, ["x"])
    assert part["x"].tolist() == [[8, 9, 10, 11], [12, 13, 14, 15]]
    assert part["mask"].shape == (4, 4)
    assert how_split(BATCH, ["x"]) == (["x"], ["mask", "bias"])


def test_without_names_all_with_a_first_dimension_of_more_than_1_are_split() -> None:
    assert part_of(BATCH, 0, 2)["mask"].shape == (2, 4)
    assert how_split(BATCH) == (["x", "mask"], ["bias"])


def test_in_a_tuple_positions_are_names() -> None:
    x, mask = part_of((BATCH["x"], BATCH["mask"]), 0, 2, ["0"])
    assert (x.shape, mask.shape) == ((2, 4), (4, 4))


def test_a_batch_of_one_sample_is_refused() -> None:
    for split in (None, ["x"]):
        with pytest.raises(UserCodeError, match="for 2 ranks: its first dimension, 1, is no multiple of 2"):
            part_of({"x": torch.ones(1, 4), "y": torch.ones(1)}, 0, 2, split)


def test_a_name_that_the_batch_does_not_have_is_refused() -> None:
    with pytest.raises(UserCodeError, match=r"parallel.split names 'z', which the batch does not have: it has x, mask"):
        part_of(BATCH, 0, 2, ["z"])
