"""What made Dynamo compile a function again, how often a data loader would, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from smoketest.findings.guards import about_guard
from smoketest.probe.capture import Frames, Recompile

__all__ = ["LIMIT", "Recompiled", "bucket", "recompiled"]

LIMIT = 8
"""Dynamo's own default: after so many compiles of a function it runs that as plain Python and says so in a log only."""

_SIZE = re.compile(r"tensor '(.+)' size mismatch at index (\d+)\. expected (\d+), actual (\d+)")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")


@dataclass(frozen=True)
class Recompiled:
    """A function that was compiled more than once.

    Attributes:
        function: its name as Dynamo has it.
        frames: where it is defined; the line of the break for the rest of a function after one.
        guards: what had changed each time, in Dynamo's words and in order.
        sizes: by (tensor, dimension), the sizes seen, in order.
        own_sizes: none of these sizes makes a function compile again that has no break before it: they come of the
            values, and not of the batch.
    """

    function: str
    frames: Frames
    guards: tuple[str, ...]
    sizes: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    own_sizes: bool = False

    @property
    def compiles(self) -> int:
        """How often it was compiled in all."""
        return len(self.guards) + 1

    @property
    def message(self) -> str:
        """One sentence: how often, which guard, which sizes, and what further batches would do."""
        rest = [guard for guard in dict.fromkeys(self.guards) if not _SIZE.search(guard)]
        what = [*(_sizes(*entry) for entry in self.sizes.items()), *_causes(rest)]
        first = next((guard for guard in self.guards if _SIZE.search(guard)), None)
        guard = f" (guard: {first})" if first else ""
        outlook = f"; {self._outlook()}" if self.sizes else ""
        return f"{_called(self.function)} is compiled {self.compiles} times: {'; '.join(what)}{guard}{outlook}"

    def _outlook(self) -> str:
        low, high = self._range()
        most = high - low + 1
        text = "every other size is one more compile"
        if most > self.compiles:
            text += f", up to {most} for sizes from {low} to {high}"
        return text + (f" (Dynamo gives up after {LIMIT} and runs plain Python)" if most > LIMIT else "")

    def _range(self) -> tuple[int, int]:
        """Of the dimension with the most sizes."""
        most = max(self.sizes.values(), key=len)
        return min(most), max(most)

    @property
    def remedy(self) -> str:
        """What to do, and how many compiles are left then."""
        if not self.sizes:
            return " ".join(dict.fromkeys(about_guard(guard).remedy for guard in self.guards))
        if self.own_sizes:
            return (
                "The size does not come from the batch, so padding the batches does not help: give the tensor a fixed "
                "size (a mask instead of a selection, a cache allocated in full), which leaves one compile."
            )
        (_, dim), sizes = max(self.sizes.items(), key=lambda entry: len(entry[1]))
        pad = _padding(sizes)
        if dim == 0 and sizes[0] == max(sizes):
            return (
                f"If only last batches are smaller than {sizes[0]}: drop_last=True in the DataLoader leaves one "
                f"compile. Otherwise {pad}"
            )
        return pad[0].upper() + pad[1:]


def recompiled(seen: Iterable[Recompile]) -> tuple[Recompiled, ...]:
    """The recompiles of each function, joined."""
    groups: dict[tuple[str, Frames], list[str]] = {}
    for again in seen:
        groups.setdefault((again.function, again.frames), []).append(again.guard)
    found = [Recompiled(name, frames, tuple(g), _sizes_in(g)) for (name, frames), g in groups.items()]
    given = {size for one in found if not _RESUMED.fullmatch(one.function) for size in _all(one)}
    return tuple(
        Recompiled(one.function, one.frames, one.guards, one.sizes, _RESUMED.fullmatch(one.function) is not None)
        if one.sizes and given.isdisjoint(_all(one))
        else one
        for one in found
    )


def _all(one: Recompiled) -> Iterator[int]:
    return (size for sizes in one.sizes.values() for size in sizes)


def _sizes_in(guards: Iterable[str]) -> dict[tuple[str, int], tuple[int, ...]]:
    sizes: dict[tuple[str, int], dict[int, None]] = {}
    for guard in guards:
        found = _SIZE.search(guard)
        if found:
            values = sizes.setdefault((found[1], int(found[2])), {})
            values.update(dict.fromkeys((int(found[3]), int(found[4]))))
    return {place: tuple(values) for place, values in sizes.items()}


def _called(function: str) -> str:
    """A function as people know it; Dynamo makes one of what comes after a graph break."""
    found = _RESUMED.fullmatch(function)
    return f"the rest of {found[1]}() after line {found[2]}" if found else f"{function}()"


def _sizes(place: tuple[str, int], sizes: tuple[int, ...]) -> str:
    tensor, dim = place
    name = "the value of that line" if tensor.startswith("___stack") else f"tensor '{tensor}'"
    return f"size {', '.join(map(str, sizes))} of {name} at index {dim}"


def _causes(guards: Iterable[str]) -> Iterator[str]:
    """The guards by what they mean, each cause once with all its guards."""
    groups: dict[str, list[str]] = {}
    for guard in guards:
        groups.setdefault(about_guard(guard).cause, []).append(guard)
    return (f"{cause} (guard: {', '.join(named)})" for cause, named in groups.items())


def _padding(sizes: tuple[int, ...]) -> str:
    """Buckets that are powers of two: few, and none wastes more than half."""
    buckets, last = [bucket(min(sizes))], bucket(max(sizes))
    while buckets[-1] < last:
        buckets.append(2 * buckets[-1])
    if len(buckets) == 1:
        return f"pad to {last}: one compile is left, whatever size up to {last} comes."
    names = ", ".join(map(str, buckets))
    return (
        f"pad to the next of {names}: at most {len(buckets)} compiles are left, whatever size up to {last} comes; "
        f"padded to {last} throughout, one."
    )


def bucket(size: int) -> int:
    """The smallest power of two that holds `size`."""
    return 1 << max(size - 1, 0).bit_length()
