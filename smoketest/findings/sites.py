"""Which line of a stack is the user's own, and how its file is called in a report."""

from __future__ import annotations

import linecache
import os
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from smoketest.findings.report import Site

__all__ = ["SitePolicy", "project_root", "real_path"]

_PACKAGE = Path(__file__).parent.parent
_PLUMBING = ("torch", "functorch", "torch_neuronx", "torch_mlir")
_ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")


def real_path(file: str | Path) -> Path:
    """An absolute path with its links followed; as it is where that cannot be: the current folder may be gone."""
    try:
        return Path(os.path.realpath(file))
    except (OSError, ValueError):  # a name with a NUL
        return Path(file)


def project_root(start: Path, files: Iterable[Path] = ()) -> Path:
    """The folder that file names in reports are relative to.

    The nearest folder at or above `start` that looks like a project's top. Where none does, it is the folder that
    `start` and `files` have in common, since that folder's own name (a checkout's) is no part of the project; and
    `start` itself where they share no more than a home folder or a disk, whose parts have names of their own.

    Args:
        start: where the check is.
        files: the user's files that it names.
    """
    start = real_path(start)
    if (marked := _marked(start)) is not None:
        return marked
    common = Path(os.path.commonpath([start, *(real_path(file).parent for file in files)]))
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  (Path.home raises where there is none)
    return start if common == common.parent or real_path(home).is_relative_to(common) else common


def _marked(start: Path) -> Path | None:
    """The nearest folder at or above `start` that looks like a project's top."""
    return next((folder for folder in (start, *start.parents) if _is_marked(folder)), None)


def _is_marked(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in _ROOT_MARKS)


class SitePolicy:
    """Chooses, from the frames of a call, the line to show.

    The innermost frame of the user's own code wins, and so does one in the model file of a library
    (``transformers/models/…``), since a model defined there has no other line. Else it is the innermost library
    frame outside PyTorch, the standard library and this package; None where there is none.

    Args:
        root: the project's top folder; files below it are shown relative to it, others without the way to them.
    """

    def __init__(self, root: Path) -> None:
        self.root = real_path(root)
        self._standard = tuple(str(real_path(sysconfig.get_path(name))) + "/" for name in ("stdlib", "platstdlib"))
        self.rank = lru_cache(maxsize=None)(self._rank)
        self.display = lru_cache(maxsize=None)(self._display)

    def choose(self, frames: Iterable[tuple[str, int]]) -> Site | None:
        """The site among `frames`, given innermost first as (absolute file name, line from 1)."""
        library: tuple[str, int] | None = None
        for file, line in frames:
            rank = self.rank(file)
            if rank == 2:
                return self.site(file, line)
            if rank == 1 and library is None:
                library = (file, line)
        return self.site(*library) if library else None

    def site(self, file: str, line: int) -> Site:
        """The site of one line, its text stripped; empty text where the source cannot be read."""
        return Site(file=self.display(file), line=line, code=linecache.getline(file, line).strip())

    def library(self, file: str) -> str | None:
        """The installed package that a file is of; None for the user's own."""
        inside = _inside_site_packages(real_path(file))
        return inside.parts[0].removesuffix(".py") if inside is not None else None

    def _rank(self, file: str) -> int:
        """0: plumbing, never shown; 1: a library; 2: the user's file or a library's model file."""
        if file.startswith("<"):
            return 0
        path = real_path(file)
        if path.is_relative_to(_PACKAGE):
            return 0
        inside = _inside_site_packages(path)
        if inside is not None:
            if inside.parts[0] in _PLUMBING:
                return 0
            return 2 if "models" in inside.parts[1:-1] else 1
        return 0 if str(path).startswith(self._standard) else 2

    def _display(self, file: str) -> str:
        return _printable(self._relative(file))

    def _relative(self, file: str) -> str:
        path = real_path(file)
        inside = _inside_site_packages(path)
        if inside is not None:
            return inside.as_posix()
        if path.is_relative_to(self.root):
            return path.relative_to(self.root).as_posix()
        return path.relative_to(_top_outside(path.parent)).as_posix()


def _top_outside(folder: Path) -> Path:
    """What a file outside the root is named relative to: never a folder that is called otherwise elsewhere.

    A package is named as it is where it is installed, another file as its own project does, and a file of neither
    kind by its name alone.
    """
    top = folder
    while top != top.parent and (top / "__init__.py").is_file() and not _is_marked(top):
        top = top.parent
    return top if top != folder else _marked(folder) or folder


def _inside_site_packages(path: Path) -> Path | None:
    for folder in path.parents:
        if folder.name in ("site-packages", "dist-packages"):
            return path.relative_to(folder)
    return None


def _printable(name: str) -> str:
    """File names may hold bytes that are no UTF-8, which JSON cannot."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
