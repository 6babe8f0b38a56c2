"""Fake distributions, with the metadata and the modules an installer would leave behind."""

from __future__ import annotations

import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Site", "bare_environment"]


@dataclass(frozen=True)
class Site:
    """A folder on some interpreter's path."""

    folder: Path

    def add(
        self,
        name: str,
        version: str,
        files: Mapping[str, str] | None = None,
        entry_points: Mapping[str, Mapping[str, str]] | None = None,
        requires: Sequence[str] = (),
    ) -> None:
        """Install a distribution: `files` maps paths below the folder to their text; `requires` are requirements."""
        files = files or {}
        self.write(files)
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        points = "".join(
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in members.items())
            for group, members in (entry_points or {}).items()
        )
        self.write(
            {
                f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                + "".join(f"Requires-Dist: {one}\n" for one in requires),
                f"{info}/entry_points.txt": points,
                f"{info}/RECORD": "".join(f"{path},,\n" for path in files),
                f"{info}/INSTALLER": "double\n",
            }
        )

    def write(self, files: Mapping[str, str]) -> None:
        """Put files there that belong to no distribution."""
        for path, text in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")


def bare_environment(folder: Path) -> tuple[str, Site]:
    """A virtual environment with nothing in it: its interpreter, and its folder of packages."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    return str(folder / "bin" / "python"), Site(packages)
