"""Options that take one of a few words, or a number of a kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

import typer

__all__ = ["completing", "metavar", "one_of", "price"]

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


def completing(words: type[Words]) -> Callable[[str], list[str]]:
    """What a shell is offered for such an option."""

    def offered(incomplete: str) -> list[str]:
        return [word.value for word in words if word.value.startswith(incomplete)]

    return offered


def price(text: str) -> float:
    """An amount of money: a finite number that is not negative."""
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not (math.isfinite(amount) and amount >= 0):
        raise typer.BadParameter(f"expected an amount such as 21.50, found {text!r}")
    return amount
