"""Writes ``smoketest/operators/data/aten_ops.json``: which ops PyTorch has, and which of them are composites.

``python make_composites.py`` asks the dispatcher of the PyTorch that is installed; no op is run.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import torch

from smoketest.operators.evidence import base_name

COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")


def has(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def table() -> dict[str, object]:
    """Base names without the namespace. Of a composite, each overload that makes a new tensor is one by itself."""
    composite: dict[str, bool] = {}
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, op = name.partition("::")
        if namespace != "aten":
            continue
        base = base_name(name).removeprefix("aten::")
        composite.setdefault(base, True)
        if op.partition(".")[0] == base and not op.endswith("out"):
            composite[base] &= any(has(name, key) for key in COMPOSITES) or (
                # A structured op has this kernel too; what tells it apart is that its out variant is no composite.
                has(name, "CompositeExplicitAutogradNonFunctional") and has(f"aten::{base}.out", COMPOSITES[1])
            )
    return {
        "torch": torch.__version__.partition("+")[0],
        "composite": sorted(op for op, whole in composite.items() if whole),
        "other": sorted(op for op, whole in composite.items() if not whole),
    }


if __name__ == "__main__":
    file = Path(str(resources.files("smoketest.operators") / "data" / "aten_ops.json"))
    file.write_text(json.dumps(table(), indent=0) + "\n", encoding="utf-8")
