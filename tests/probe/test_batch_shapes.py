"""What the shapes of a loader's batches mean: compiles to expect, buckets, and what padding costs."""

from __future__ import annotations

from smoketest.probe.batch_shapes import Shapes, observation, study


def texts(*lengths: int, batch: int = 2) -> list[Shapes]:
    return [
        (("ids", "int64", (batch, n)), ("mask", "int64", (batch, n)), ("label", "int64", (batch,))) for n in lengths
    ]


def test_one_shape_is_no_finding() -> None:
    assert observation(study(texts(7, 7, 7)), "loader", None) is None


def test_lengths_that_vary_together_are_one_axis_with_its_buckets_and_their_cost() -> None:
    studied = study(texts(10, 20, 30, 10))
    assert (studied.batches, studied.distinct) == (4, 3)
    (axis,) = studied.axes
    assert axis.places == (("ids", 1), ("mask", 1))
    assert axis.buckets == (16, 32)
    # 10, 20, 30, 10 are 70; padded to 16, 32, 32, 16 they are 96, and to 30 throughout 120.
    assert round(axis.padding(axis.buckets), 4) == round(96 / 70 - 1, 4)
    assert round(axis.padding([30]), 4) == round(120 / 70 - 1, 4)
    seen = observation(studied, "make_loader", None)
    assert seen is not None
    assert seen.rule == "NST205"
    assert seen.message == (
        "make_loader gives 3 distinct shapes in 4 batches: 3 compiles of every graph. "
        "ids at index 1, mask at index 1: 3 sizes from 10 to 30"
    )
    assert seen.remedy == (
        "Pad ids at index 1, mask at index 1 to the next of 16, 32: at most 2 compiles, and 37% more elements in these "
        "batches; padded to 30 throughout, one compile and 71% more elements."
    )


def test_a_last_batch_that_is_smaller_is_dropped_not_padded() -> None:
    shapes: list[Shapes] = [(("x", "float32", (size, 3)),) for size in (8, 8, 8, 5)]
    seen = observation(study(shapes), "loader", None)
    assert seen is not None
    assert seen.remedy == ("Only the last batch of x is smaller: drop_last=True in the DataLoader leaves one compile.")


def test_shapes_that_are_still_new_at_the_end_and_more_than_dynamo_takes_are_told() -> None:
    seen = observation(study(texts(*range(10, 22))), "loader", None)
    assert seen is not None
    assert "12 compiles of every graph (Dynamo gives up after 8 and runs plain Python)" in seen.message
    assert "more are to be expected" in seen.message


def test_batches_of_another_structure_have_no_axis_to_pad() -> None:
    shapes: list[Shapes] = [(("x", "float32", (2, 3)),), (("x", "float64", (2, 3)),)]
    seen = observation(study(shapes), "loader", None)
    assert seen is not None
    assert "tensors, dtypes or numbers of dimensions differ" in seen.message
    assert seen.remedy == "Give all batches the same tensors and dtypes."
