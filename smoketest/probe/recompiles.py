"""What made Dynamo compile a function again, how often a data loader would, and what to do about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from smoketest.findings.guards import about_guard
from smoketest.probe.capture import RESUMED, Compile, Frames, function_in_words, name_in_words

__all__ = ["LIMIT", "Recompiled", "bucket", "recompiled"]

LIMIT = 8
"""Dynamo's own default: after so many compiles of a function it runs that as plain Python and says so in a log only."""

_SIZE = re.compile(r"tensor '(.+)' size mismatch at index (\d+)\. expected (\d+), actual (\d+)")
_TENSOR = re.compile(r"tensor '(.+)' \w+ mismatch")
_OF_INSTANCE = re.compile(r"\bself\b|\b_(?:modules|parameters|buffers)\[")
_VALUE = re.compile(r"(\w+) == ")
_MOST_MODULES = 4

Place = tuple[str, int]
"""A tensor, in the user's words, and one of its dimensions."""


@dataclass(frozen=True)
class Recompiled:
    """A function that was compiled more than once.

    Attributes:
        compiles: all of them, in order.
        own_sizes: none of the sizes it was compiled for makes a function compile again that has no break before it:
            they come of the values, and not of the batch.
    """

    compiles: tuple[Compile, ...]
    own_sizes: bool = False

    @property
    def function(self) -> str:
        """Its name as Dynamo has it."""
        return self.compiles[0].function

    @property
    def frames(self) -> Frames:
        """Where it is defined; the line of the break for the rest of a function after one."""
        return self.compiles[0].frames

    @property
    def guards(self) -> tuple[str, ...]:
        """What had changed each time, in Dynamo's words and in order."""
        return tuple(one.guard for one in self.compiles if one.guard is not None)

    @cached_property
    def sizes(self) -> dict[Place, tuple[int, ...]]:
        """The sizes seen of what a guard names, in order."""
        return _sizes_in(self.compiles)

    @cached_property
    def within(self) -> tuple[Compile, ...]:
        """The compiles of one step, of that with the most; empty where no step compiled the function twice."""
        steps = Counter(one.step for one in self.compiles)
        step, most = steps.most_common(1)[0]
        return tuple(one for one in self.compiles if one.step == step) if most > 1 else ()

    @cached_property
    def between(self) -> tuple[Compile, ...]:
        """The first compile of each step: what differs between those comes with the batches."""
        return tuple({one.step: one for one in reversed(self.compiles)}.values())[::-1]

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules whose calls it was compiled for."""
        return tuple(dict.fromkeys(one.module for one in self.compiles if one.module is not None))

    @property
    def of_instances(self) -> bool:
        """Whether it is compiled again for another instance of its class, which holds other constants or weights."""
        named = any(_OF_INSTANCE.search(guard) for guard in self.guards)
        return len(self.modules) > 1 and (named or _weights_differ(self.compiles))

    @property
    def message(self) -> str:
        """One sentence: how often, which guard, which sizes, and what further batches would do."""
        rest = [guard for guard in dict.fromkeys(self.guards) if not _SIZE.search(guard)]
        of_instance = [guard for guard in rest if self.of_instances and _OF_INSTANCE.search(guard)]
        rest = [guard for guard in rest if guard not in of_instance]
        what = [*(_sizes(*entry) for entry in self.sizes.items()), *_causes(rest)]
        if self.of_instances:
            guards = f" (guard: {', '.join(of_instance)})" if of_instance else ""
            what.insert(0, f"the modules that it is of differ: {_named(self.modules)}{guards}")
        first = next((guard for guard in self.guards if _SIZE.search(guard)), None)
        guard = f" (guard: {first})" if first else ""
        outlook = f"; {self._outlook()}" if self.sizes and not self.within else ""
        return f"{function_in_words(self.function)} is compiled {self._often()}: {'; '.join(what)}{guard}{outlook}"

    def _often(self) -> str:
        times, within = len(self.compiles), len(self.within)
        if not within:
            return f"{times} times"
        return (
            f"{times} times within one step" if within == times else f"{times} times, {within} of them within one step"
        )

    def _outlook(self) -> str:
        most_sizes = max(self.sizes.values(), key=len)
        low, high = min(most_sizes), max(most_sizes)
        most = high - low + 1
        text = "every other size is one more compile"
        if most > len(self.compiles):
            text += f", up to {most} for sizes from {low} to {high}"
        return text + (f" (Dynamo gives up after {LIMIT} and runs plain Python)" if most > LIMIT else "")

    @property
    def remedy(self) -> str:
        """What to do, and how many compiles are left then."""
        if self.within or self.of_instances:
            return " ".join(self._remedies_in_a_step())
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

    def _remedies_in_a_step(self) -> Iterator[str]:
        """What fits where one step compiles the function more than once: nothing that a data loader could do."""
        told = self.within or self.compiles
        left = _compiles(_kinds_of_gradient(told))
        guards = [one.guard for one in told if one.guard is not None]
        values = dict.fromkeys(found[1] for guard in guards if (found := _VALUE.match(guard)))
        sizes = _sizes_in(told)
        if self.of_instances:
            yield _for_instances(told, left)
        if sizes and not _weights_differ(told):
            yield _for_sizes(max(sizes.values(), key=len), told, left)
        if values:
            yield (
                f"The number {', '.join(values)} changes within one step and is compiled in as a constant: pass it as "
                f"a tensor, which leaves {left}. {_accept(told, 'value')}"
            )
        if not (self.of_instances or sizes or values):
            yield from dict.fromkeys(_for_other(guard, told) for guard in guards)
        if not all(any(one.role == "argument" for one in compiled.inputs) for compiled in told):
            yield (
                "Each call is a frame of its own only because a graph break or a skipped function lies around it: "
                "without that the calls are traced into one graph."
            )
        batches = _sizes_in(self.between)
        if batches and self.within:
            seen = "; ".join(_sizes(*entry) for entry in batches.items())
            yield (
                f"Between steps it changes as well ({seen}): every size of a batch is compiled for anew; "
                "give the batches one size."
            )


def _for_instances(told: Sequence[Compile], left: str) -> str:
    if _weights_differ(told):
        return f"The modules' weights are of different sizes, whatever the data. {_accept(told, 'size', '')}"
    return (
        "What the guard names is a constant of the module, whatever the data: keep it as a tensor (register_buffer), "
        f"which leaves {left} for all of them. {_accept(told, 'value')}"
    )


def _for_sizes(sizes: tuple[int, ...], told: Sequence[Compile], left: str) -> str:
    largest, accept = max(sizes), _accept(told, "size")
    if all(any(one.role == "argument" for one in compiled.inputs) for compiled in told):
        return (
            f"The model is called with several sizes within one step: pad them to {largest} before the calls, which "
            f"leaves {left}. {accept}"
        )
    head = "The size changes within one step, so padding the batches does not help"
    if len(sizes) > 2 and list(sizes) == sorted(sizes):
        return (
            f"{head}: it grows from call to call. Allocate it in full, at least {largest}, and mask what is not filled "
            f"yet, which leaves {left}. {accept}"
        )
    return f"{head}: in the model pad it to {largest} and mask, which leaves {left}. {accept}"


def _for_other(guard: str, told: Sequence[Compile]) -> str:
    if "requires_grad mismatch" in guard:
        return (
            "Within one step it is called with a tensor that needs no gradient, such as the batch, and with one that "
            f"does: accept the {_compiles(len(told))}, which no further batch adds to, or detach the tensor always or "
            "never."
        )
    return about_guard(guard).remedy


def _accept(told: Sequence[Compile], per: str, otherwise: str = "otherwise ") -> str:
    if len(told) < LIMIT:
        text = f"accept one compile for each {per}: {_compiles(len(told))} are left, the same in every step."
    else:
        text = f"each {per} is one compile, and after {LIMIT} Dynamo gives up and runs plain Python."
    text = otherwise + text
    return text[0].upper() + text[1:]


def _compiles(count: int) -> str:
    return "one compile" if count == 1 else f"{count} compiles"


def _kinds_of_gradient(told: Sequence[Compile]) -> int:
    """How many compiles are left for tensors that need a gradient in one call and none in another."""
    taken = [{one.name: one.requires_grad for one in compiled.inputs} for compiled in told if compiled.inputs]
    names = set.intersection(*map(set, taken)) if taken else set()
    return max(1, len({tuple(sorted((name, one[name]) for name in names)) for one in taken}))


def _weights_differ(told: Iterable[Compile]) -> bool:
    """Whether a weight of the same name has other sizes in another compile, as in another instance of a class."""
    taken = {(one.name, one.value) for compiled in told for one in compiled.inputs if one.role == "weight"}
    return len({name for name, _ in taken}) < len(taken)


def _named(modules: Sequence[str]) -> str:
    rest = len(modules) - _MOST_MODULES
    return ", ".join(modules[:_MOST_MODULES]) + (f" and {rest} more" if rest > 0 else "")


def recompiled(seen: Iterable[Compile]) -> tuple[Recompiled, ...]:
    """The functions that were compiled more than once, each with all its compiles."""
    groups: dict[str, list[Compile]] = {}
    for one in seen:
        groups.setdefault(one.number, []).append(one)
    found = [Recompiled(tuple(group)) for group in groups.values() if any(one.guard for one in group)]
    given = {size for one in found if not RESUMED.fullmatch(one.function) for size in _all(one)}
    return tuple(
        Recompiled(one.compiles, RESUMED.fullmatch(one.function) is not None)
        if one.sizes and given.isdisjoint(_all(one))
        else one
        for one in found
    )


def _all(one: Recompiled) -> Iterator[int]:
    return (size for sizes in one.sizes.values() for size in sizes)


def _sizes_in(compiles: Sequence[Compile]) -> dict[Place, tuple[int, ...]]:
    """What the guards name and of which size it was: by the graphs' inputs, and where those do not tell by the guards.

    A guard names the first thing that differs only: behind that a tensor needs a gradient there can be another size.
    """
    sizes: dict[Place, dict[int, None]] = {}
    guards = [one.guard for one in compiles if one.guard is not None]
    for name in dict.fromkeys(_name(found[1]) for guard in guards if (found := _TENSOR.match(guard))):
        shapes = [i.value.shape for one in compiles for i in one.inputs if i.name == name and i.value is not None]
        if len({len(shape) for shape in shapes}) == 1:
            for dim, seen in enumerate(zip(*shapes, strict=True)):
                if len(set(seen)) > 1:
                    sizes[name, dim] = dict.fromkeys(seen)
    for guard in guards:
        found = _SIZE.search(guard)
        if found and (place := (_name(found[1]), int(found[2]))):
            sizes.setdefault(place, {}).update(dict.fromkeys((int(found[3]), int(found[4]))))
    return {place: tuple(values) for place, values in sizes.items()}


def _name(tensor: str) -> str:
    """As the inputs of graphs are named; what has no name keeps Dynamo's, which tells one from another."""
    return tensor if tensor.startswith("___stack") else name_in_words(tensor)


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
