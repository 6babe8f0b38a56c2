"""Renderers: functions from one frozen `Report` to a string. None of them touches a file or a terminal.

``json``, ``markdown``, ``html``, ``sarif`` and ``terminal`` render one report, ``summary`` a table over several checks,
and ``scrub`` takes the names of people and machines out of a report before any of them sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from smoketest.findings.report import Report

__all__ = ["FORMATS", "Format", "render"]

Format = Literal["terminal", "json", "markdown", "html", "sarif"]
FORMATS: tuple[Format, ...] = get_args(Format)


def render(report: Report, form: Format, *, width: int = 80, color: bool = False) -> str:
    """The report in one of `FORMATS`, ending in a newline.

    Args:
        report: as judged and scrubbed.
        form: which format.
        width: columns of the terminal; no other format looks at it.
        color: whether the terminal's text may have colours.
    """
    if form == "json":
        from smoketest.render import json

        return json.render(report)
    if form == "markdown":
        from smoketest.render import markdown

        return markdown.render(report)
    if form == "html":
        from smoketest.render import html

        return html.render(report)
    if form == "sarif":
        from smoketest.render import sarif

        return sarif.render(report)
    from smoketest.render import terminal

    return terminal.render(report, width=width, color=color)
