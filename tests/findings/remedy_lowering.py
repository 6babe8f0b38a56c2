"""Runs the compile probe over all rewrites of `smoketest.findings.remedies` at once, as one model.

``python remedy_lowering.py FOLDER EACH`` takes every EACH-th rewrite (1: all of them), writes the model's source to
FOLDER, one function per rewrite, and prints what was found, by op, as one JSON object. A process of its own,
since the probe compiles.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from remedy_cases import CASES, Case, Names, snippet
from torch import nn

from smoketest.findings import SitePolicy
from smoketest.operators.profile import load_profile
from smoketest.probe.probe import probe

Tensors = dict[str, torch.Tensor]
CONDITIONS = {"equal"}  # what they give is for Python's `if`, never part of a graph


def function(op: str, case: Case, names: Names, inputs: Tensors) -> list[str]:
    """Source of ``f_<op>(t)``, taking its tensors from the dict `t`; they are added to `inputs`."""
    lines = [f"def f_{op}(t):"]
    for name, value in names.items():
        if isinstance(value, torch.Tensor):
            inputs[f"{op}.{name}"] = value.detach().requires_grad_(value.requires_grad)
            lines.append(f"    {name} = t['{op}.{name}']")
        elif isinstance(value, list):
            pairs = [[f"{op}.{name}.{i}.{j}" for j in range(len(pair))] for i, pair in enumerate(value)]
            inputs.update(
                {key: v for keys, pair in zip(pairs, value, strict=True) for key, v in zip(keys, pair, strict=True)}
            )
            lines.append(
                f"    {name} = [" + ", ".join("(" + ", ".join(f"t['{k}']" for k in keys) + ")" for keys in pairs) + "]"
            )
        else:
            lines.append(f"    {name} = {value!r}")
    lines += [f"    {part.strip()}" for part in case.prepare.split(";") if part.strip()]
    return [*lines, f"    return {snippet(op)}", ""]


def source(inputs: Tensors, each: int) -> str:
    """A module whose ``total(t)`` adds up every `each`-th rewrite."""
    lines = ["import math", "import torch", "import torch.nn.functional as F", ""]
    ops = [op for op in CASES if op not in CONDITIONS][::each]
    for op in ops:
        lines += function(op, CASES[op], CASES[op].make(), inputs)
    lines += ["def total(t):", "    result = 0.0"]
    lines += [f"    result = result + f_{op}(t).float().sum()" for op in ops]
    return "\n".join([*lines, "    return result", ""])


class Everything(nn.Module):
    def __init__(self, total: Callable[[Tensors], torch.Tensor]) -> None:
        super().__init__()
        self.total = total
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, tensors: Tensors) -> torch.Tensor:
        return self.total(tensors) + self.weight.sum()


def main(folder: Path, each: int) -> None:
    """Print {"probed": number, "refused": {op of the remedy: [text]}, "around": [text]}."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    inputs: Tensors = {}
    text = source(inputs, each)
    (folder / "rewrites.py").write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    model = Everything(importlib.import_module("rewrites").total)

    def step(compiled: Any, index: int) -> None:
        compiled(inputs).backward()

    result = probe(model, step, profile=load_profile(None), site_policy=SitePolicy(folder))
    refused: dict[str, list[str]] = {}
    for seen in result.observations:
        above = text.splitlines()[: seen.site.line] if seen.site else []
        inside = next((line[6:-4] for line in reversed(above) if line.startswith("def f_")), "?")
        refused.setdefault(inside, []).append(f"{seen.rule} {seen.op} {seen.phase}: {seen.message}")
    json.dump({"probed": result.ops_probed, "graphs": len(result.graphs), "refused": refused}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
