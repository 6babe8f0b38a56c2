"""The pages of the rules, as they are in ``docs/rules``: part of an installed package, read in place in a clone."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["rule_page"]


def rule_page(rule: str) -> str | None:
    """The page of a rule as Markdown; None where this installation has none.

    Args:
        rule: an id, such as ``NST101``.
    """
    name = f"{rule}.md"
    clone = Path(__file__).parents[2] / "docs" / "rules"
    for page in (files("smoketest.findings") / "rule_pages" / name, clone / name):
        if page.is_file():
            return page.read_text(encoding="utf-8")
    return None
