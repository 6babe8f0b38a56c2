"""Batches from the user's own data loader."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from smoketest.errors import UserCodeError
from smoketest.workload.moving import tensors_in
from smoketest.workload.usercode import blame_user

__all__ = ["LoaderBatches", "Shapes", "sampled_shapes"]

Shapes = tuple[tuple[str, str, tuple[int, ...]], ...]
"""(name, dtype, sizes) of every tensor of a batch: what decides whether a graph compiled for another one serves."""


class LoaderBatches:
    """The batches of an iterable, by number: the first epoch, then the next, as a training loop meets them.

    The loader draws from a random stream of its own, seeded by the check, so that every part of a check gets the same
    batches, whatever random numbers the model draws in between. A batch that was passed already is reached by
    beginning again.

    Args:
        make: gives the iterable; called once, when the first batch is asked for.
        name: of the loader, for messages.
        seed: of the stream.
        names: given to the items of a batch that is a list or tuple; they make it a dict.
    """

    def __init__(
        self, make: Callable[[], Iterable[Any]], name: str, seed: int, names: tuple[str, ...] | None = None
    ) -> None:
        self._make, self._name, self._seed, self._names = make, name, seed, names
        self._loader: Iterable[Any] | None = None
        self._batches: Iterator[Any] = iter(())
        self._next = 0  # number of the batch that comes next
        self._epoch_began = -1  # and of the first one in this epoch
        self._state: Any = None

    def __call__(self, step: int) -> Any:
        """Batch `step`, counted from 0 over all epochs.

        Raises:
            UserCodeError: the loader raises, ends before its first batch, or gives what holds no tensor.
        """
        with self._own_random_numbers(again=step < self._next or self._loader is None):
            while True:
                batch = self._advance()
                if self._next > step:
                    return self._named(batch)

    def epoch(self, most: int) -> Iterator[Any]:
        """The batches of one epoch from its beginning, at most `most`; what `__call__` gives afterwards begins anew."""
        with self._own_random_numbers(again=True):
            for _ in range(most):
                try:
                    batch = self._advance(wrap=False)
                except StopIteration:
                    break
                yield self._named(batch)
        self._restart()

    def _restart(self) -> None:
        self._batches, self._next, self._epoch_began = iter(()), 0, -1

    def _advance(self, *, wrap: bool = True) -> Any:
        try:
            if self._loader is None:
                self._loader = self._make()
            if self._epoch_began < 0:
                self._begin_epoch()
            while True:
                batch = next(self._batches, _END)
                if batch is not _END:
                    break
                if self._next == self._epoch_began:
                    raise UserCodeError(f"{self._name} gave no batch: its iteration ends at once", hint=_HINT)
                if not wrap:
                    raise StopIteration
                self._begin_epoch()
        except (UserCodeError, StopIteration):
            raise
        except BaseException as error:
            raise blame_user(error, f"taking batch {self._next} of {self._name}") from error
        self._next += 1
        if next(tensors_in(batch), None) is None:
            raise UserCodeError(f"{self._name} gave no tensor: a batch is a {type(batch).__name__}", hint=_HINT)
        return batch

    def _begin_epoch(self) -> None:
        assert self._loader is not None
        self._batches = iter(self._loader)
        if self._batches is self._loader:
            # A generator can be gone through once; what it gave is kept, so that it can begin again.
            kept = _Kept(self._batches)
            self._loader, self._batches = kept, iter(kept)
        self._epoch_began = self._next

    def _named(self, batch: Any) -> Any:
        if self._names is None:
            return batch
        if not isinstance(batch, (list, tuple)) or len(batch) != len(self._names):
            count = f" of {len(batch)}" if isinstance(batch, (list, tuple)) else ""
            raise UserCodeError(
                f"batch.names has {len(self._names)} names, and {self._name} gives a {type(batch).__name__}{count}",
                hint="names are for batches that are lists or tuples, one for each item",
            )
        return dict(zip(self._names, batch, strict=True))

    @contextmanager
    def _own_random_numbers(self, *, again: bool) -> Iterator[None]:
        before = _random_state()
        if again:
            self._restart()
            random.seed(self._seed)
            torch.default_generator.manual_seed(self._seed % 2**64)
            if (numpy := sys.modules.get("numpy")) is not None:
                numpy.random.seed(self._seed % 2**32)
        else:
            _put_random_state(self._state)
        try:
            yield
        finally:
            self._state = _random_state()
            _put_random_state(before)


class _Kept:
    """An iterator that can be iterated again: what it gave is kept."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source, self._given = source, list[Any]()

    def __iter__(self) -> Iterator[Any]:
        for place in itertools.count():
            if place == len(self._given):
                batch = next(self._source, _END)
                if batch is _END:
                    return
                self._given.append(batch)
            yield self._given[place]


_END = object()
_HINT = "a loader gives batches: tensors, or lists, tuples, dicts or dataclasses of tensors"


def _random_state() -> Any:
    numpy = sys.modules.get("numpy")
    return random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy is not None else None


def _put_random_state(state: Any) -> None:
    of_python, of_torch, of_numpy = state
    random.setstate(of_python)
    torch.set_rng_state(of_torch)
    if of_numpy is not None:
        sys.modules["numpy"].random.set_state(of_numpy)


def sampled_shapes(batches: Iterable[Any]) -> list[Shapes]:
    """Names, dtypes and sizes of every batch; values are not looked at."""
    return [tuple(_shapes(batch, "")) for batch in batches]


def _shapes(value: Any, path: str) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    if isinstance(value, torch.Tensor):
        yield path or "batch", str(value.dtype).removeprefix("torch."), tuple(value.shape)
    elif hasattr(value, "items"):
        for key, item in value.items():
            yield from _shapes(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _shapes(item, f"{path}[{place}]" if path else f"batch[{place}]")
    else:
        for place, tensor in enumerate(tensors_in(value)):
            yield from _shapes(tensor, f"{path or 'batch'}<{place}>")
