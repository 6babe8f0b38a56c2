"""How the optional parts of this package are installed: it is on no package index, so from a clone."""

from __future__ import annotations

from typing import Literal

__all__ = ["Extra", "install"]

Extra = Literal["lowering", "hf", "neuron"]


def install(extra: Extra) -> str:
    """What to type for an optional part, and where; as the README has it."""
    return f'pip install ".[{extra}]" in a clone of smoketest'
