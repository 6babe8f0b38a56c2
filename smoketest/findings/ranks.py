"""Ranks in words."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ranks_text"]


def ranks_text(ranks: Sequence[int]) -> str:
    """``rank 1``, or ``ranks 0, 2 and 3``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
