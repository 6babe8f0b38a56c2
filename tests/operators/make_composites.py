"""Writes ``smoketest/operators/data/aten_ops.json``: which ops PyTorch has, which of them are composites,
and which have no kernel for the CPU.

``python make_composites.py`` asks the dispatcher of the PyTorch that is installed; no op is run.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import torch

from smoketest.operators.evidence import base_name

COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")

ON_CPU = ("CPU", "SparseCPU", "SparseCsrCPU", "QuantizedCPU", "MkldnnCPU", "NestedTensorCPU")
STRUCTURED = "CompositeExplicitAutogradNonFunctional"


def has(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def table() -> dict[str, object]:
    """Base names without the namespace. Of a composite, each overload that makes a new tensor is one by itself."""
    composite: dict[str, bool] = {}
    on_cpu: set[str] = set()
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, op = name.partition("::")
        if namespace != "aten":
            continue
        base = base_name(name).removeprefix("aten::")
        composite.setdefault(base, True)
        # PyTorch makes an out variant of any op by calling the op itself, which is no kernel.
        if any(has(name, key) for key in ON_CPU) or (
            not op.endswith("out") and any(has(name, key) for key in (*COMPOSITES, STRUCTURED))
        ):
            on_cpu.add(base)
        if op.partition(".")[0] == base and not op.endswith("out"):
            composite[base] &= any(has(name, key) for key in COMPOSITES) or (
                # A structured op has this kernel too; what tells it apart is that its out variant is no composite.
                has(name, STRUCTURED) and has(f"aten::{base}.out", COMPOSITES[1])
            )
    return {
        "torch": torch.__version__.partition("+")[0],
        "composite": sorted(op for op, whole in composite.items() if whole),
        "other": sorted(op for op, whole in composite.items() if not whole),
        "no_cpu": sorted(op for op in composite if op not in on_cpu),
    }


if __name__ == "__main__":
    file = Path(str(resources.files("smoketest.operators") / "data" / "aten_ops.json"))
    file.write_text(json.dumps(table(), indent=0) + "\n", encoding="utf-8")
