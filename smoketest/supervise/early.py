"""What a worker may import before its turn: what defines things and does nothing else."""

from __future__ import annotations

from smoketest.config import Check
from smoketest.supervise.protocol import PartName

__all__ = ["early_imports"]

_LIBRARIES = ("transformers",)
"""Libraries that checks name in `model.target` and `model.config`, and whose imports take seconds."""


def early_imports(check: Check, part: PartName) -> list[str]:
    """Modules, and names in modules (``module:name``), that a part of a check will need.

    Not the user's own: they are imported once in each part, when it is its turn.
    """
    model = check.model
    named = [] if model is None else [model.target, str((model.config or {}).get("class"))]
    return [f"smoketest.worker.{part}", *(name for name in named if name.partition(":")[0] in _LIBRARIES)]
