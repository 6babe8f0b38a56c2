"""Options that take one of a few words, or a number of a kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

import typer

__all__ = ["metavar", "one_of", "price"]

Words = TypeVar("Words", bound=StrEnum)


def one_of(words: type[Words]) -> Callable[[str], Words]:
    """What reads such an option: typer's own message speaks of a "value error", and differs between its releases."""

    def read(text: str) -> Words:
        try:
            return words(text)
        except ValueError:
            *first, last = [word.value for word in words]
            raise typer.BadParameter(f"expected {', '.join(first)} or {last}, found {text!r}") from None

    return read


def metavar(words: type[Words]) -> str:
    """The words as ``--help`` shows them."""
    return f"[{'|'.join(words)}]"


def price(text: str) -> float:
    """An amount of money: a finite number that is not negative."""
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not (math.isfinite(amount) and amount >= 0):
        raise typer.BadParameter(f"expected an amount such as 21.50, found {text!r}")
    return amount
