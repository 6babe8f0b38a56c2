"""Imports are not looked through by the garbage collector; what comes after them is."""

from __future__ import annotations

import gc
import weakref

from smoketest.uncollected import uncollected


class Knot:
    """Two of them hold each other."""

    other: Knot


def tied() -> weakref.ref[Knot]:
    one, two = Knot(), Knot()
    one.other, two.other = two, one
    return weakref.ref(one)


def test_what_is_made_inside_stays_and_what_comes_after_is_collected() -> None:
    gc.collect()
    try:
        with uncollected():
            assert not gc.isenabled()
            inside = tied()
        assert gc.isenabled()
        after = tied()
        gc.collect()
        assert (inside() is None, after() is None) == (False, True)
    finally:
        gc.unfreeze()
        gc.collect()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.unfreeze()
        gc.enable()
