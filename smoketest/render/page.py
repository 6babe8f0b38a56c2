"""A page of documentation as plain text: the Markdown that ``docs/rules`` is written in, and no more than that."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from rich.cells import cell_len

__all__ = ["plain"]

_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_ADDRESS = re.compile(r"<(https?://[^>]+)>")
_EMPHASIS = re.compile(r"(\*{1,2})(?=\S)(.+?)(?<=\S)\1")
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")


def plain(markdown: str, *, width: int = 80, color: bool = False) -> str:
    """The page as text of at most `width` columns, code and addresses apart, which stay whole.

    Headings, paragraphs, lists, tables and fenced code are read; links lose their mark-up.

    Args:
        markdown: the page.
        width: columns.
        color: whether headings may be bold.
    """
    blocks = [_shown(block, width, color) for block in _blocks(markdown)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _blocks(markdown: str) -> Iterator[list[str]]:
    """Runs of lines between blank ones; fenced code is one block whatever is in it."""
    block: list[str] = []
    fenced = False
    for line in markdown.splitlines():
        if line.startswith("```"):
            if not fenced:
                yield block
                block = []
            block.append(line)
            if fenced:
                yield block
                block = []
            fenced = not fenced
        elif line.strip() or fenced:
            block.append(line)
        else:
            yield block
            block = []
    yield block


def _shown(block: list[str], width: int, color: bool) -> str:
    if not block:
        return ""
    first = block[0]
    if first.startswith("```"):
        return "\n".join(f"    {line}".rstrip() for line in block[1:-1])
    if first.startswith("#"):
        text = _inline(first.lstrip("# "))
        return f"\x1b[1m{text}\x1b[0m" if color else text if first.startswith("# ") else f"{text}\n{'-' * len(text)}"
    if first.startswith("|"):
        return _table(block, width)
    if _ITEM.match(first):
        return "\n".join(_wrapped(item, width, "  ") for item in _items(block))
    return _wrapped(" ".join(block), width)


def _items(block: list[str]) -> Iterator[str]:
    item: list[str] = []
    for line in block:
        if _ITEM.match(line.lstrip()) and item:
            yield " ".join(item)
            item = []
        item.append(line.strip())
    yield " ".join(item)


def _table(block: list[str], width: int) -> str:
    """Columns side by side where they fit, else a row as lines under its first cell."""
    rows = [[_inline(cell.strip()) for cell in line.strip().strip("|").split("|")] for line in block]
    head, body = rows[0], rows[2:]
    widths = [max(cell_len(row[i]) for row in (head, *body)) for i in range(len(head))]
    if sum(widths) + 2 * (len(widths) - 1) <= width:
        lines = [head, ["-" * size for size in widths], *body]
        return "\n".join("  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip()
                         for line in lines)  # fmt: skip
    told: list[str] = []
    for row in body:
        named = zip(head[1:], row[1:], strict=True)
        told += [
            _wrapped(row[0], width, "    "),
            *(_wrapped(f"  {name}: {cell}", width, "    ") for name, cell in named),
        ]
    return "\n".join(told)


def _wrapped(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(_inline(text), width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _inline(text: str) -> str:
    """Without the mark-up of links and emphasis; code keeps its backticks."""
    text = _ADDRESS.sub(r"\1", _LINK.sub(lambda found: _link(found[1], found[2]), text))
    parts = text.split("`")
    parts[::2] = [_EMPHASIS.sub(r"\2", part) for part in parts[::2]]
    return "`".join(parts)


def _link(text: str, target: str) -> str:
    """The text, and where it leads unless that is a file of the documentation."""
    return f"{text} ({target})" if target.startswith("http") else text
