"""A failing op or graph as one runnable file, to go into a ticket.

It is written from shapes, dtypes and scalars: no value of a tensor, and no name of the user's, is in it.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Literal

import torch

from smoketest.findings import Finding, Site
from smoketest.probe.graphs import GraphSpec, HigherOrder, NodeSpec, Other, Ref, Symbolic, TensorSpec, inputs_of, values

__all__ = ["FailingGraph", "Key", "key_of", "script", "write"]

Backend = Literal["torch-mlir", "neuron"]
_PYTORCHS_OWN = ("aten", "prims", "_c10d_functional")
"""Namespaces whose ops are there in every process that imports torch."""

Key = tuple[str, str | None, str | None, Site | None]
"""Rule, op, phase and site: what a finding is one of."""


@dataclass(frozen=True)
class FailingGraph:
    """A graph that the compiler refuses.

    Attributes:
        what: ``aten::lgamma``, or ``graph 0.forward as a whole``.
        graph: of one op, or whole.
        stage: the last stage of the lowering ladder it reached.
        sentence: the compiler's own.
        engine: what refused it, such as ``torch-mlir 20261001``.
        backend: of the file's, which it is tried with where none is named.
        trouble: what became of it, a verb and what goes with it.
    """

    what: str
    graph: GraphSpec
    stage: str
    sentence: str
    engine: str
    backend: Backend = "torch-mlir"
    trouble: str = "does not lower"


def key_of(finding: Finding) -> Key:
    """The key that a finding's failing graph is kept under."""
    return finding.rule, finding.op, finding.phase, finding.site


def write(findings: Iterable[Finding], failing: Mapping[Key, FailingGraph], folder: Path) -> tuple[Finding, ...]:
    """Write ``repro/<finding-id>.py`` into `folder` for every finding with a failing graph.

    Files of an earlier run are removed.

    Returns:
        The findings, with `repro` the path relative to `folder`.

    Raises:
        OSError: a file cannot be written.
    """
    place = folder / "repro"
    for old in place.glob("*.py"):
        old.unlink()
    return tuple(_written(finding, failing.get(key_of(finding)), place) for finding in findings)


def _written(finding: Finding, failing: FailingGraph | None, place: Path) -> Finding:
    if failing is None or not can_be_written(failing.graph):
        return finding
    name = f"{finding.id}.py"
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(script(failing, name), encoding="utf-8")
    return finding.model_copy(update={"repro": f"{place.name}/{name}"})


def can_be_written(graph: GraphSpec) -> bool:
    """Whether every call is of an operator of PyTorch's own, on values that are known beforehand, and none is sparse.

    An op of another library is registered by code of the user's, which the file does not have. A graph keeps no layout
    of its tensors, and fake ones of a sparse layout cannot be made again.
    """
    return not any(
        isinstance(node.target, HigherOrder)
        or (node.is_op and str(node.target).partition("::")[0] not in _PYTORCHS_OWN)
        or str(node.target).startswith("unknown:")
        or any(_is_unwritable(value) for value in (*inputs_of(node), *values(node.value)))
        for node in graph.nodes
    )


def _is_unwritable(value: Any) -> bool:
    return isinstance(value, (Symbolic, Other)) or (isinstance(value, torch.layout) and value != torch.strided)


def script(failing: FailingGraph, name: str) -> str:
    """The text of the file."""
    inputs = [node for node in failing.graph.nodes if node.target == "placeholder"]
    return _SCRIPT.substitute(
        what=failing.what,
        trouble=failing.trouble,
        backend=failing.backend,
        name=name,
        engine=failing.engine,
        stage=failing.stage,
        error="\n".join(f"#   {line}" for line in failing.sentence.splitlines() or [""]),
        parameters=", ".join(_name(node.name) for node in inputs),
        inputs="\n".join(f"        {_tensor(node.value)}," for node in inputs),
        body="\n".join(f"    {line}" for line in _body(failing.graph)),
    )


def _body(graph: GraphSpec) -> Iterator[str]:
    for node in graph.nodes:
        if node.target == "output":
            yield f"return [{', '.join(_literal(value) for value in node.args[0] if value is not None)}]"
        elif node.target == "getitem":
            yield f"{_name(node.name)} = {_literal(node.args[0])}[{node.args[1]}]"
        elif node.target != "placeholder":
            yield f"{_name(node.name)} = {_call(node)}"


def _call(node: NodeSpec) -> str:
    namespace, _, rest = str(node.target).partition("::")
    base, _, overload = rest.partition(".")
    given = [_literal(value) for value in node.args] + [f"{name}={_literal(value)}" for name, value in node.kwargs]
    return f"torch.ops.{namespace}.{base}.{overload or 'default'}({', '.join(given)})"


_TAKEN = {"torch", "DEVICE", "graph", "inputs", "torch_mlir", "neuron", "here", "alone", "main"}


def _name(node: str) -> str:
    return f"{node}_" if node in _TAKEN or keyword.iskeyword(node) else node


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, Ref):
        return _name(value.name)
    if isinstance(value, torch.device):
        return "DEVICE"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return repr(value)


def _tensor(spec: Any) -> str:
    """An input: random numbers, or zeros of an integer type, which are in range whatever they index."""
    if not isinstance(spec, TensorSpec):
        return _literal(spec)
    make = "rand" if spec.dtype.is_floating_point or spec.dtype.is_complex else "zeros"
    return f"torch.{make}({list(spec.shape)}, dtype={spec.dtype}, device=DEVICE)"


_SCRIPT = Template('''\
"""$what $trouble. Written by smoketest from shapes and dtypes alone.

    python $name [--backend torch-mlir|neuron] [--timeout SECONDS]

torch-mlir: needs torch and torch-mlir. neuron: needs a Trainium device and torch-neuronx. The default is $backend.
Exit code: 1 while the failure persists (a crash and a timeout of the compiler are failures too), 0 once it is gone, 2
where it cannot be tried: the backend is not there, or this PyTorch does not trace the graph.
"""

import argparse
import importlib.util
import os
import subprocess
import sys

# Expected with $engine, after stage $stage:
$error

DEVICE = "cpu"


def inputs():
    return [
$inputs
    ]


def graph($parameters):
$body


def torch_mlir():
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch_mlir import fx

    traced = make_fx(graph, tracing_mode="fake")(*inputs())
    return lambda: fx.stateless_fx_import(traced, output_type="stablehlo")


def neuron():
    global DEVICE
    DEVICE = "neuron"
    compiled, given = torch.compile(graph, backend="neuron", dynamic=False, fullgraph=True), inputs()
    return lambda: (compiled(*given), torch.neuron.synchronize())


def here(prepare):
    global torch
    # Without this torch-neuronx runs a graph it cannot compile op by op, and the failure passes unseen.
    os.environ["TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION"] = "1"
    try:
        import torch

        run = prepare()
    except Exception as error:
        print(f"cannot be tried here: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    try:
        run()
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print("the failure is gone")
    return 0


def alone(arguments, timeout):
    # In a process of its own: a compiler may crash it or hang.
    try:
        status = subprocess.run([sys.executable, __file__, *arguments, "--here"], timeout=timeout).returncode
    except subprocess.TimeoutExpired:
        print(f"no answer after {timeout:g} s", file=sys.stderr)
        return 1
    if status not in (0, 1, 2):
        print(f"the compiler ended the process: {status}", file=sys.stderr)
        return 1
    return status


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=["torch-mlir", "neuron"], default="$backend")
    parser.add_argument("--timeout", type=float, default=1800.0)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    package, prepare = {"torch-mlir": ("torch_mlir", torch_mlir), "neuron": ("torch_neuronx", neuron)}[given.backend]
    if given.here:
        return here(prepare)
    if importlib.util.find_spec(package) is None:
        print(f"{package} is not installed", file=sys.stderr)
        return 2
    return alone(["--backend", given.backend], given.timeout)


if __name__ == "__main__":
    sys.exit(main())
''')
