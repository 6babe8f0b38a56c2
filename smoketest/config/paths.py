"""Files that a check is, names or is reported in: what of them can be found out before anything runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

from smoketest.errors import ConfigError, Place

__all__ = ["profile_fault", "refuse_other_than_utf8"]

_MOST_OF_A_PROFILE = 64 * 2**20


def refuse_other_than_utf8(path: Path, *, shown: str | None = None) -> None:
    """See that a path can be written into JSON, which holds Unicode only.

    Args:
        path: of a file or a folder, which need not be there.
        shown: what to call it in the message.

    Raises:
        ConfigError: where its name, or that of a folder above it, has other bytes.
    """
    try:
        os.path.realpath(path).encode()  # unlike Path.resolve it ends, where links lead in a circle
    except UnicodeEncodeError:
        raise ConfigError(
            "this path has bytes that are not UTF-8, which no report can hold",
            place=Place(shown or str(path)),
            hint="rename the file or the folder, or work in another one",
        ) from None


def profile_fault(path: Path) -> str | None:
    """Why a file is no operator profile, as far as its outline tells: the worker reads it in full."""
    try:
        if path.stat().st_size > _MOST_OF_A_PROFILE:
            return f"it is larger than {_MOST_OF_A_PROFILE // 2**20} MiB, which no profile is"
        data = json.loads(path.read_bytes())
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    except RecursionError:
        return "it is nested too deeply"
    except json.JSONDecodeError as error:
        return f"it is not JSON: {error.msg} (line {error.lineno})"
    except ValueError as error:  # a number of thousands of digits
        return f"it is not JSON: {error}"
    if not isinstance(data, dict):
        return "it is not a JSON object"
    missing = [key for key, kind in (("name", str), ("native", dict)) if not isinstance(data.get(key), kind)]
    return f"it has no {' and no '.join(missing)}" if missing else None
