"""Make the table of ops that cannot be lowered: ``python -m smoketest.probe.sweep FILE``.

The table that ships is ``smoketest/operators/data/cannot_lower.json``. Every functional op that PyTorch's own OpInfo
samples reach, forward and backward, is lowered alone. Those go into the table that run on the CPU by the packaged
profile and that, after the backend's and PyTorch's core decompositions, the torch dialect does not know. It takes a
minute or two.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from smoketest.operators.evidence import base_name
from smoketest.operators.profile import load_profile
from smoketest.probe.from_fx import graph_spec
from smoketest.probe.graphs import GraphSpec, NodeSpec, Symbolic, inputs_of, one_op, overload, values
from smoketest.probe.lower import LoweringProcess
from smoketest.probe.prepare import lowerable
from smoketest.probe.verdict import Judge

__all__ = ["main", "reached", "table"]

_TIMEOUT = 30.0


def reached(function: Callable[..., Any], inputs: list[torch.Tensor]) -> Iterator[tuple[GraphSpec, NodeSpec]]:
    """The ops that `function` and its backward dispatch on `inputs`, each in its graph; none where tracing fails."""
    for traced in (function, _with_backward(function)):
        try:
            graph = make_fx(traced, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
        except Exception:  # samples that cannot be traced, ops without backward
            continue
        spec = lowerable(graph_spec(graph.graph))
        for node in spec.nodes:
            given = (*inputs_of(node), *values(node.value))
            if node.is_op and not any(isinstance(value, Symbolic) for value in given):
                yield spec, node


def _with_backward(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*tensors: torch.Tensor) -> Any:
        leaves = [t.detach().requires_grad_() if t.is_floating_point() else t for t in tensors]
        outputs = function(*leaves)
        outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
        tensors_out = [value for value in outputs if isinstance(value, torch.Tensor) and value.requires_grad]
        if not tensors_out:
            raise ValueError("nothing to differentiate")
        total = torch.stack([value.abs().sum() for value in tensors_out]).sum()
        return torch.autograd.grad(total, [leaf for leaf in leaves if leaf.requires_grad], allow_unused=True)

    return run


def samples() -> Iterator[tuple[Callable[..., Any], list[torch.Tensor]]]:
    """One float32 sample of every OpInfo, as a function of the tensors in it."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if torch.float32 not in info.dtypes:
            continue
        try:
            sample = next(iter(info.sample_inputs("cpu", torch.float32)))  # type: ignore[no-untyped-call]
        except Exception:  # a sample may need what is not installed
            continue
        flat, shape = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        places = [place for place, value in enumerate(flat) if isinstance(value, torch.Tensor)]

        yield partial(_call, info.op, flat, shape, places), [flat[place] for place in places]


def _call(op: Callable[..., Any], flat: list[Any], shape: Any, places: list[int], *tensors: torch.Tensor) -> Any:
    """Call `op` on a flattened sample with other tensors in the places of its own."""
    given = list(flat)
    for place, tensor in zip(places, tensors, strict=True):
        given[place] = tensor
    args, kwargs = pytree.tree_unflatten(given, shape)
    return op(*args, **kwargs)


def table(judge: Judge) -> dict[str, dict[str, str]]:
    """By base name, how torch-mlir calls what it does not know."""
    seen: set[str] = set()
    found: dict[str, dict[str, str]] = {}
    for function, inputs in samples():
        for spec, node in reached(function, inputs):
            op = str(node.target)
            if op in seen or not (judge.falls_back(op) and is_function(overload(op))):
                continue
            seen.add(op)
            verdict = judge.op(op, one_op(spec, node))
            if verdict.grounds == "cannot_lower":
                found[base_name(op)] = {"seen_as": verdict.unknown[0]}
    kernels = {base_name(name) for name in load_profile(None).native}
    return {op: how for op, how in sorted(found.items()) if op not in kernels}


def is_function(op: torch._ops.OpOverload) -> bool:
    """Whether `op` gives new tensors, from tensors, the same ones every time.

    Random ops are sampled by other means on the device ([PRE]: RandomOpLegalization), views and factories compute
    nothing, and what writes to its arguments has a functional form of its own.
    """
    arguments, returns = op._schema.arguments, op._schema.returns
    aliases = any(value.alias_info is not None for value in (*arguments, *returns))
    takes_tensors = any("Tensor" in str(argument.type) for argument in arguments)
    return bool(returns) and takes_tensors and not aliases and torch.Tag.nondeterministic_seeded not in op.tags


def main(arguments: list[str]) -> None:
    """Write the table to the file named by the only argument."""
    warnings.simplefilter("ignore")
    profile = load_profile(None)
    with LoweringProcess() as process:
        ops = table(Judge(process, profile, _TIMEOUT))
    content = {
        "generated_by": "python -m smoketest.probe.sweep",
        "profile": profile.name,
        "torch": torch.__version__.partition("+")[0],
        "torch_mlir": importlib.metadata.version("torch-mlir"),
        "ops": ops,
    }
    Path(arguments[0]).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
