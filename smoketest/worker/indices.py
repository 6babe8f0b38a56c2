"""Device indices in the user's source, which several ranks cannot share: ``torch.device("neuron:0")``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from smoketest.devices.base import Device
from smoketest.devices.emulated.distributed import rules

__all__ = ["lines_with_an_index", "written_indices"]

_TEXT = re.compile(r"neuron:\d+")
_MOST = 5


def written_indices(device: Device, files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """(what, why) where the user's files name a device by its index; on the real device that itself tells.

    Args:
        device: of the run.
        files: Python files that the check or the command names; what they import is not looked at.
    """
    if device.kind != "emulated":
        return
    rule = rules.named("device_index")
    found = [f"{file.name}:{line}" for file in files for line in lines_with_an_index(file)]
    if found:
        more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
        where = ", ".join(found[:_MOST]) + more
        yield (
            f"process groups of the device: {rule.what}",
            f"{where} names one, which is right on one rank only, and passes here as a torch.device; {rule.effect}",
        )


def lines_with_an_index(file: Path) -> list[int]:
    """The lines that have ``"neuron:0"`` or ``torch.device("neuron", 0)``; none of a file that is no Python."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    return sorted(
        {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.Call) and _names_one(node)}
    )


def _names_one(node: ast.Constant | ast.Call) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and _TEXT.fullmatch(node.value) is not None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    values = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    return name == "device" and len(values) == 2 and values[0] == "neuron" and isinstance(values[1], int)
