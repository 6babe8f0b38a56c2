"""Can these folders be written to, and how much is free there? Nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any


def look(path: Path) -> dict[str, Any]:
    """One folder; where it is not there yet, the nearest one above it that is."""
    exists = path.exists()
    nearest = path
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    return {
        "path": str(path),
        "exists": exists,
        "folder": nearest.is_dir(),
        "writable": os.access(nearest, os.W_OK | os.X_OK),
        "free": shutil.disk_usage(nearest).free,
    }


def main() -> None:
    """Write one object for each folder."""
    for name in json.loads(sys.argv[2]):
        with Path(sys.argv[1]).open("a", encoding="utf-8") as out:
            out.write(json.dumps(look(Path(name))) + "\n")


if __name__ == "__main__":
    main()
