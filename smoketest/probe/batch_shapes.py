"""What the shapes of a data loader's batches mean for a compiler that takes one shape at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from smoketest.findings import Observation
from smoketest.findings.report import Site
from smoketest.probe.recompiles import LIMIT, bucket

__all__ = ["Axis", "BatchShapes", "observation", "study"]

Shapes = tuple[tuple[str, str, tuple[int, ...]], ...]
_MOST_NAMES = 4


@dataclass(frozen=True)
class Axis:
    """A size that varies from batch to batch, and all dimensions that have it.

    Attributes:
        places: (tensor, dimension), whose sizes were equal in every batch.
        sizes: in the order of the batches.
        others: elements of these tensors for one unit of this size, by batch: what a padded unit costs.
    """

    places: tuple[tuple[str, int], ...]
    sizes: tuple[int, ...]
    others: tuple[int, ...]

    @property
    def is_last_batch(self) -> bool:
        """Whether it is the first dimension, and only the last batch is smaller."""
        return (
            all(dim == 0 for _, dim in self.places)
            and len(set(self.sizes[:-1])) == 1
            and self.sizes[-1] < self.sizes[0]
        )

    @property
    def buckets(self) -> tuple[int, ...]:
        """Powers of two that hold every size: few, and no size is padded to more than twice itself."""
        return tuple(sorted({bucket(size) for size in self.sizes}))

    def padding(self, buckets: Sequence[int]) -> float:
        """Elements added by padding every size to the next of `buckets`, as a share of those there are."""
        held = sum(size * other for size, other in zip(self.sizes, self.others, strict=True))
        padded = sum(
            min(b for b in buckets if b >= size) * other for size, other in zip(self.sizes, self.others, strict=True)
        )
        return padded / held - 1 if held else 0.0


@dataclass(frozen=True)
class BatchShapes:
    """What was seen of a loader.

    Attributes:
        batches: how many were looked at.
        distinct: how many of them differ in structure, dtype or size.
        axes: what varies; empty where structure or dtypes do.
        still_new: whether the last quarter of the batches had a shape that none had before.
    """

    batches: int
    distinct: int
    axes: tuple[Axis, ...]
    still_new: bool


def study(seen: Sequence[Shapes]) -> BatchShapes:
    """Count the shapes and find what varies."""
    late = max(1, len(seen) * 3 // 4)
    still_new = bool(set(seen[late:]) - set(seen[:late]))
    layouts = {tuple((name, dtype, len(shape)) for name, dtype, shape in batch) for batch in seen}
    axes = _axes(seen) if len(layouts) == 1 else ()
    return BatchShapes(len(seen), len(set(seen)), axes, still_new)


def _axes(seen: Sequence[Shapes]) -> tuple[Axis, ...]:
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for tensor, (_, _, shape) in enumerate(seen[0]):
        for dim in range(len(shape)):
            sizes = tuple(batch[tensor][2][dim] for batch in seen)
            if len(set(sizes)) > 1:
                groups.setdefault(sizes, []).append((tensor, dim))
    made = []
    for sizes, members in groups.items():
        places = tuple((seen[0][tensor][0], dim) for tensor, dim in members)
        others = tuple(sum(_others(batch[tensor][2], dim) for tensor, dim in members) for batch in seen)
        made.append(Axis(places, sizes, others))
    return tuple(made)


def _others(shape: tuple[int, ...], dim: int) -> int:
    return prod(size for place, size in enumerate(shape) if place != dim)


def observation(studied: BatchShapes, loader: str, site: Site | None) -> Observation | None:
    """The recompile finding (NST205) of a loader; None where every batch has one shape."""
    if studied.distinct < 2:
        return None
    many = f"{studied.distinct} distinct shapes in {studied.batches} batches"
    more = "; the last quarter still had new ones, so more are to be expected" if studied.still_new else ""
    gives_up = f" (Dynamo gives up after {LIMIT} and runs plain Python)" if studied.distinct > LIMIT else ""
    what = "; ".join(_seen(axis) for axis in studied.axes) or "tensors, dtypes or numbers of dimensions differ"
    return Observation(
        rule="NST205",
        site=site,
        calls=studied.distinct - 1,
        message=f"{loader} gives {many}: {studied.distinct} compiles of every graph{gives_up}{more}. {what}",
        remedy=" ".join(_advice(axis) for axis in studied.axes) or "Give all batches the same tensors and dtypes.",
        witnesses=frozenset({"loader"}),
    )


def _seen(axis: Axis) -> str:
    return f"{_places(axis)}: {len(set(axis.sizes))} sizes from {min(axis.sizes)} to {max(axis.sizes)}"


def _places(axis: Axis) -> str:
    shown = [f"{name} at index {dim}" for name, dim in axis.places[:_MOST_NAMES]]
    rest = len(axis.places) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _advice(axis: Axis) -> str:
    name = axis.places[0][0]
    if axis.is_last_batch:
        return f"Only the last batch of {name} is smaller: drop_last=True in the DataLoader leaves one compile."
    buckets, largest = axis.buckets, max(axis.sizes)
    whole = f"padded to {largest} throughout, one compile and {_percent(axis.padding([largest]))} more elements"
    if len(buckets) == 1:
        return f"Pad {_places(axis)}: {whole}."
    cost = _percent(axis.padding(buckets))
    return (
        f"Pad {_places(axis)} to the next of {', '.join(map(str, buckets))}: at most {len(buckets)} compiles, and"
        f" {cost} more elements in these batches; {whole}."
    )


def _percent(share: float) -> str:
    return f"{share:.0%}"
