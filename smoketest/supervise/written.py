"""A report in its folder: as JSON, and as pages for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from smoketest.errors import InternalError
from smoketest.findings import Report
from smoketest.supervise.files import write_atomically

__all__ = ["write_report"]

_PAGES: Mapping[str, Literal["markdown", "html"]] = {"report.md": "markdown", "report.html": "html"}


def write_report(report: Report, folder: Path) -> None:
    """Write ``report.json``, ``report.md`` and ``report.html`` into a folder, each whole or not at all.

    Where a page cannot be made, the JSON is there all the same, and no page of an earlier run beside it.

    Raises:
        InternalError: one of them could not be made, or nothing be written.
    """
    from smoketest.render import render

    texts, problem = {"report.json": render(report, "json")}, None
    for name, form in _PAGES.items():
        try:
            texts[name] = render(report, form)
        except Exception as error:  # no memory left, or a fault of ours: what was found must not be lost by it
            said = " ".join(str(error).split())[:300]
            problem = f"{name} cannot be made: {type(error).__name__}{f': {said}' if said else ''}"
    try:
        folder.mkdir(parents=True, exist_ok=True)  # user code may have removed it
        for name, text in texts.items():
            write_atomically(folder / name, text)
        for name in _PAGES.keys() - texts.keys():
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise InternalError(f"the report cannot be written to {folder}: {error.strerror}") from None
    if problem is not None:
        raise InternalError(f"{problem}; what was found is in {folder / 'report.json'}")
