"""What a benchmark measures, how two sides are measured fairly, and how figures are told and kept.

A figure is a number with its unit, the most it may be where the design sets a limit, and the parts it is made of. A
script gives its figures one by one; `told` prints them as they come and adds them as JSON lines to a file, from which
``python -m benchmarks`` makes ``results.json``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, computed_field

__all__ = [
    "BROKEN",
    "MISSED",
    "Figure",
    "Part",
    "Setting",
    "best",
    "interleaved",
    "median",
    "number",
    "seconds",
    "told",
]

MISSED, BROKEN = 1, 2
"""Exit codes: a figure is over its limit; not everything was measured."""


class Part(BaseModel):
    """One of the numbers that a figure is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    value: float
    unit: str


class Figure(BaseModel):
    """One measured number.

    Attributes:
        table: which table of benchmarks/README.md it stands in.
        name: what was measured, unique in its table.
        value: in `unit`; an empty unit is a ratio.
        limit: the most it may be; None where nothing is promised.
        made_of: what it was computed from, or is the sum of.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    table: str
    name: str
    value: float
    unit: str = ""
    limit: float | None = None
    made_of: tuple[Part, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ok(self) -> bool:
        """Whether it is within its limit, or has none."""
        return self.limit is None or self.value <= self.limit


@dataclass(frozen=True)
class Setting:
    """How much is measured.

    Attributes:
        quick: tiny sizes and one round: whether the script works, not what anything costs.
        rounds: how often each side is measured; None for what the script finds enough.
    """

    quick: bool = False
    rounds: int | None = None

    def turns(self, enough: int) -> int:
        """The number of rounds, where a script finds `enough` enough."""
        return self.rounds or (1 if self.quick else enough)


def interleaved(
    sides: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    before: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds that each side took in each round; every round calls every side once, so that load meets all alike.

    Args:
        sides: what is measured, by name, in the order of the calls.
        rounds: how often.
        clock: gives seconds: of the wall, or ``time.process_time`` of this process's CPU.
        before: called before each side, untimed.
    """
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            before()
            started = clock()
            side()
            taken[name].append(clock() - started)
    return taken


def best(taken: Mapping[str, list[float]]) -> dict[str, float]:
    """The least of each: what else the machine does can only add."""
    return {name: min(times) for name, times in taken.items()}


def median(taken: Mapping[str, list[float]]) -> dict[str, float]:
    """The median of each: for what differs from call to call by itself."""
    return {name: statistics.median(times) for name, times in taken.items()}


def told(measure: Callable[[Setting], Iterable[Figure]], arguments: list[str] | None = None) -> int:
    """Run one script's measurements, print its figures, and keep them where the command line says.

    Args:
        measure: gives the figures as they are measured.
        arguments: of the command line; the process's own when None.

    Returns:
        0; `MISSED` where a figure is over its limit; `BROKEN` where the script did not come to its end.
    """
    parser = argparse.ArgumentParser(description=sys.modules[measure.__module__].__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes and one round, to try the script")
    parser.add_argument("--rounds", type=int, help="how often each side is measured")
    parser.add_argument("--lines", type=Path, help="a file that gets one JSON line per figure")
    given = parser.parse_args(arguments)
    missed, names = False, set[tuple[str, str]]()
    try:
        for figure in measure(Setting(given.quick, given.rounds)):
            if (figure.table, figure.name) in names:
                raise ValueError(f"two figures of {figure.table} are called {figure.name}")
            names.add((figure.table, figure.name))
            missed |= not figure.ok
            print(_line(figure), flush=True)
            if given.lines is not None:
                with given.lines.open("a", encoding="utf-8") as file:
                    file.write(figure.model_dump_json() + "\n")
    except Exception:
        traceback.print_exc()
        return BROKEN
    return MISSED if missed else 0


def number(value: float, unit: str) -> str:
    """A number with as many digits as say something, and its unit."""
    digits = 3 if abs(value) < 2 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f} {unit}".rstrip()


def _line(figure: Figure) -> str:
    most = "" if figure.limit is None else f" (at most {figure.limit:g}{'' if figure.ok else ', MISSED'})"
    parts = "; ".join(_parts(figure.made_of))
    return f"{figure.table}: {figure.name}: {number(figure.value, figure.unit)}{most}{': ' if parts else ''}{parts}"


def _parts(made_of: Iterable[Part]) -> Iterator[str]:
    return (f"{part.name} {number(part.value, part.unit)}" for part in made_of)


def seconds(times: Mapping[str, float], unit: str = "s") -> tuple[Part, ...]:
    """Parts for seconds by name, told in another unit (``ms``, ``us``) where that reads better."""
    scale: dict[str, Any] = {"s": 1, "ms": 1e3, "us": 1e6}
    return tuple(Part(name=name, value=taken * scale[unit], unit=unit) for name, taken in times.items())
