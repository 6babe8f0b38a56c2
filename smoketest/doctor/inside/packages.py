"""Which distributions and modules there are, found without importing any of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import re
import sys
from pathlib import Path
from typing import Any


def find_distributions(names: list[str]) -> list[dict[str, Any]]:
    """Every distribution with one of these names, also those hidden by another of the same name."""
    wanted = set(names)
    found = []
    for distribution in importlib.metadata.distributions():
        name = name_of(distribution)
        if name not in wanted:
            continue
        files = [file.parts[0] for file in distribution.files or () if file.parts]
        found.append(
            {
                "name": name,
                "version": distribution.version or "",
                "entry_points": [[point.group, point.name] for point in distribution.entry_points],
                "folders": sorted(set(files)),
                "requires": required_by(distribution),
            }
        )
    return found


def required_by(distribution: importlib.metadata.Distribution) -> list[str]:
    """Normalised names of what it needs without any of its extras; nothing where the metadata is damaged."""
    try:
        wanted = [entry for entry in distribution.requires or () if "extra" not in entry.partition(";")[2]]
    except Exception:
        return []
    found = [re.match(r"[A-Za-z0-9._-]+", entry.strip()) for entry in wanted]
    return sorted({re.sub(r"[-_.]+", "-", name.group()).lower() for name in found if name})


def name_of(distribution: importlib.metadata.Distribution) -> str:
    """The normalised name; empty where the metadata is damaged, which is not for us to fail on."""
    try:
        return re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
    except Exception:
        return ""


def find_modules(names: list[str]) -> dict[str, list[str]]:
    """Top-level modules and the folders or files they would come from; a namespace folder has no file."""
    found = {}
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is None:
            continue
        folders = list(spec.submodule_search_locations or ())
        found[name] = folders or [spec.origin or ""]
    return found


def find_submodules(folders: list[str], names: list[str]) -> list[str]:
    """Which of these submodules are in a package's folders."""
    return [
        name
        for name in names
        if any((Path(folder) / name).is_dir() or any(Path(folder).glob(f"{name}.*")) for folder in folders)
    ]


def main() -> None:
    """Write one object."""
    question = json.loads(sys.argv[2])
    modules = find_modules(question["modules"])
    answer = {
        "python": list(sys.version_info[:3]),
        "implementation": platform.python_implementation(),
        "distributions": find_distributions(question["distributions"]),
        "modules": modules,
        "submodules": find_submodules(modules.get("torch_neuronx", []), question["submodules"]),
    }
    with Path(sys.argv[1]).open("a", encoding="utf-8") as out:
        out.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
