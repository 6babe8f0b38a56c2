"""Text of unknown origin inside Markdown: nothing in it may become markup, a link, a mention or a new row."""

from __future__ import annotations

import re
from collections.abc import Sequence

from smoketest.render.words import clean, pieces

__all__ = ["block", "code", "lines_block", "mixed", "prose"]

_PROSE = {
    **{ord(character): f"\\{character}" for character in "\\`*_[]|~$"},
    **{ord(character): f"&#{ord(character)};" for character in "@#"},
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",
}
_ENTITIES = {ord(character): f"&#{ord(character)};" for character in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"}


def prose(text: str, limit: int = 600) -> str:
    """Text for a paragraph, a heading, a list item or a table cell."""
    return clean(text, limit).translate(_PROSE)


def code(text: str, limit: int = 160) -> str:
    """Text as inline code, good in a table cell too; a dash where there is none."""
    line = clean(text, limit)
    if not line:
        return "-"
    if "`" in line or "|" in line:
        # Inside <code> Markdown still reads markup, and in a table the bar splits cells: entities do neither.
        return f"<code>{line.translate(_ENTITIES)}</code>"
    return f"`{line}`"


def mixed(text: str, limit: int = 600) -> str:
    """Prose with pieces of code between single backticks, as remedies and messages have them."""
    shown = []
    for part, is_code in pieces(text, limit):
        # `prose` would trim the blanks that keep prose and code apart.
        shown.append(code(part, limit) if is_code else part.translate(_PROSE))
    return "".join(shown)


def block(text: str, language: str, limit: int = 400) -> str:
    """One line of text as a fenced block, its fence longer than any in the text."""
    return _fenced(clean(text, limit), language)


def lines_block(lines: Sequence[str], limit: int, language: str = "text") -> str:
    """Clean lines as one fenced block of about `limit` characters: what is too long loses its middle."""
    text = "\n".join(lines)
    if len(text) > limit:
        text = f"{text[: limit // 4]}\n[…]\n{text[-limit * 3 // 4 :]}"
    return _fenced(text, language)


def _fenced(text: str, language: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
