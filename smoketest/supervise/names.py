"""The names of this person and machine, which no report shows."""

from __future__ import annotations

import getpass
import os
import socket
from typing import TypedDict

__all__ = ["Names", "names_here"]


class Names(TypedDict):
    """Arguments of `smoketest.render.scrub.scrub`; empty where there is no such name."""

    home: str
    user: str
    host: str


def names_here() -> Names:
    """The home folder, the login name and the host name."""
    home = os.path.expanduser("~")  # noqa: PTH111  (Path.home raises where there is none)
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = ""
    return Names(home=home if home not in ("~", "/") else "", user=user, host=socket.gethostname())
