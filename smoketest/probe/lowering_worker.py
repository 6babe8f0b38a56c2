"""The lowering process: takes graphs, answers how far torch-mlir gets them, and may be killed by them.

Started as ``python -m smoketest.probe.lowering_worker`` by `smoketest.probe.lower`. Requests come in on stdin and
answers go out on stdout, both as pickles with a length in front; whatever else writes to stdout is sent to stderr.
One process serves a whole probe: importing torch and torch-mlir costs seconds, an op costs milliseconds.
"""

from __future__ import annotations

import os
import pickle
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from smoketest.probe.limits import Hit, hits, limits
from smoketest.process import end_with_parent
from smoketest.uncollected import uncollected

__all__ = [
    "STAGES",
    "Answer",
    "Hello",
    "Imported",
    "main",
    "read_message",
    "write_message",
]

STAGES = ("captured", "imported", "torch-backend", "stablehlo")

# The pipelines of torch_mlir.fx, run one after the other so that the stage reached is known.
_PIPELINES = {
    "torch-backend": "builtin.module(func.func(torch-match-quantized-custom-ops), "
    "torchdynamo-export-to-torch-backend-pipeline)",
    "stablehlo": "builtin.module(torch-backend-to-stablehlo-backend-pipeline)",
}


@dataclass(frozen=True)
class Hello:
    """First message of the process: what is installed, and which higher-order ops its importer knows."""

    torch_mlir: str
    higher_order: frozenset[str]


@dataclass(frozen=True)
class Imported:
    """The graph is in the torch dialect; `unknown` names ops that dialect does not have (``torch.aten.lgamma``)."""

    unknown: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """How far a graph got.

    Attributes:
        stage: the last stage it reached; ``stablehlo`` means that it lowers.
        sentence: the compiler's own first error; empty where it lowers.
        node: name of the node it speaks of, where it says so.
        unknown: as in `Imported`.
        limits: of the Neuron compiler, that the StableHLO meets.
    """

    stage: str
    sentence: str = ""
    node: str | None = None
    unknown: tuple[str, ...] = ()
    limits: tuple[Hit, ...] = ()

    @property
    def lowers(self) -> bool:
        """Whether StableHLO was reached."""
        return self.stage == "stablehlo"


def write_message(stream: IO[bytes], message: object) -> None:
    """Send one message."""
    data = pickle.dumps(message)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def read_message(read: Callable[[int], bytes]) -> Any:
    """The next message, read by a function that gives as many bytes as asked for, fewer only at the end.

    Raises EOFError at the end of the stream.
    """
    head = read(8)
    size = int.from_bytes(head, "little")
    data = read(size)
    if len(head) < 8 or len(data) < size:
        raise EOFError
    return pickle.loads(data)


def main() -> None:
    """Serve requests until stdin ends."""
    end_with_parent()
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    write_message(answers, _hello())
    with tempfile.TemporaryFile() as diagnostics:
        while True:
            try:
                spec = read_message(requests.read)
            except EOFError:
                return
            write_message(answers, _lower(spec, answers, diagnostics))


def _hello() -> Hello:
    import importlib.metadata

    with uncollected():
        import torch
        from torch_mlir import fx, passmanager  # noqa: F401  (all imports before the clock of the first graph runs)
        from torch_mlir.extras.fx_importer import GraphNodeImporter

        import smoketest.probe.graphs  # noqa: F401
        from smoketest.operators.compat import fake_tensors

    limits()
    with fake_tensors():
        torch.empty(1)
    torch.set_num_threads(1)
    try:
        version = importlib.metadata.version("torch-mlir")
    except importlib.metadata.PackageNotFoundError:  # the one that torch-neuronx brings is no distribution
        version = "unknown"
    prefix = "_import_hop_"
    known = frozenset(name.removeprefix(prefix) for name in dir(GraphNodeImporter) if name.startswith(prefix))
    return Hello(version, known)


def _lower(spec: Any, answers: IO[bytes], diagnostics: IO[bytes]) -> Answer:
    """Import the graph and run the pipelines on it, telling the parent when it is imported.

    The parent keeps what came before a crash: an op the dialect does not know fails even if the process dies of it.
    """
    from torch_mlir import fx
    from torch_mlir.compiler_utils import OutputType
    from torch_mlir.passmanager import PassManager

    stage = "captured"
    unknown: tuple[str, ...] = ()
    foreign = _of_a_library(spec)
    if foreign is not None:
        name = foreign.target.replace("::", ".")
        sentence = (
            f"{foreign.target} is an op of a library's own (torch.library), which the torch dialect does not have"
        )
        return Answer(stage, sentence, foreign.name, (f"torch.{name}",))
    with _stderr_into(diagnostics):
        try:
            module = fx.stateless_fx_import(_rebuild(spec), output_type=OutputType.RAW)
            stage = "imported"
            unknown = _unknown_ops(module)
            write_message(answers, Imported(unknown))
            for next_stage, pipeline in _PIPELINES.items():
                with module.context:
                    # Without this a pass may report an error and go on to an assertion in native code.
                    module.context.emit_error_diagnostics = True
                    PassManager.parse(pipeline).run(module.operation)
                stage = next_stage
        except Exception as error:
            os.fsync(2)
            diagnostics.seek(0)
            printed = diagnostics.read().decode(errors="replace")
            sentence, node = _first_error(printed, error)
            return Answer(stage, sentence, node, unknown)
    return Answer(stage, unknown=unknown, limits=hits(module))


def _of_a_library(spec: Any) -> Any:
    """The first node that calls an op registered only where the model runs; None where there is none."""
    from smoketest.probe.graphs import overload

    for node in spec.nodes:
        if node.is_op:
            try:
                overload(str(node.target))
            except AttributeError:
                return node
    return None


@contextmanager
def _stderr_into(file: IO[bytes]) -> Iterator[None]:
    """Send file descriptor 2 to `file`: MLIR's diagnostics do not pass through Python's sys.stderr."""
    file.seek(0)
    file.truncate()
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _unknown_ops(module: Any) -> tuple[str, ...]:
    names = re.findall(r'torch\.operator "([^"]+)"', module.operation.get_asm(large_elements_limit=4))
    return tuple(dict.fromkeys(names))


_ERROR = re.compile(r"^(?:loc\((?P<loc>.*?)\): )?error: (?P<sentence>.+)$", re.MULTILINE)
_NODE = re.compile(r'"node:([^"]+)"')
_OPERATOR_NAME = re.compile(r'"torch\.operator".*?<\{name = "([^"]+)"')


def _first_error(printed: str, error: Exception) -> tuple[str, str | None]:
    """What the compiler said, else the exception's own text; and the node it is at, where it says so.

    A lowering that fails often prints why before it prints what, so the first two different errors are given.
    """
    found = list(_ERROR.finditer(printed)) or list(_ERROR.finditer(str(error)))
    if not found and isinstance(error, KeyError) and str(error).startswith("torch."):
        return f"the importer has no type for tensors of {error}", None
    if not found:
        return f"{type(error).__name__}: {error}".strip().splitlines()[0], None
    sentences = list(dict.fromkeys(m["sentence"].split(": %")[0].strip() for m in found))
    if "'torch.operator'" in sentences[-1] and (name := _OPERATOR_NAME.search(printed)):
        sentences[-1] += f" ({name[1]})"
    nodes = [node[1] for m in found if (node := _NODE.search(m["loc"] or ""))]
    return "; ".join(sentences[:2]), nodes[-1] if nodes else None


def _rebuild(spec: Any) -> Any:
    """A graph module with fake values from a `GraphSpec`; each node's location is its own name."""
    import operator

    import torch

    from smoketest.operators.compat import fake_tensors
    from smoketest.probe.graphs import HigherOrder, NodeSpec, Ref, TensorSpec, overload

    graph = torch.fx.Graph()
    made: dict[str, Any] = {}
    fake = fake_tensors()

    def argument(value: Any) -> Any:
        if isinstance(value, tuple):
            return [argument(item) for item in value]
        return made[value.name] if isinstance(value, Ref) else value

    def meta(value: Any) -> Any:
        if isinstance(value, TensorSpec):
            with fake:
                return torch.empty(value.shape, dtype=value.dtype)
        return [meta(item) for item in value] if isinstance(value, tuple) else value

    def add(node: NodeSpec) -> Any:
        if node.target == "placeholder":
            return graph.placeholder(node.name)
        if node.target == "output":
            # A backward graph gives None for inputs without gradient; the backend drops those (its pass
            # RemoveNoneOutputs [PRE]).
            return graph.output(tuple(argument(value) for value in node.args[0] if value is not None))
        args = tuple(argument(value) for value in node.args)
        if node.target == "getitem":
            return graph.call_function(operator.getitem, args)
        if isinstance(node.target, HigherOrder):
            return graph.call_function(getattr(torch.ops.higher_order, node.target.name), args)
        kwargs = {name: argument(value) for name, value in node.kwargs}
        return graph.call_function(overload(node.target), args, kwargs)

    for node in spec.nodes:
        made[node.name] = add(node)
        made[node.name].meta["val"] = meta(node.value)
        made[node.name].meta["stack_trace"] = f'File "node:{node.name}", line 1, in graph'
    return torch.fx.GraphModule(torch.nn.Module(), graph)


if __name__ == "__main__":
    # Under -m this module is __main__, and its messages would be pickled as classes of __main__.
    from smoketest.probe.lowering_worker import main as serve

    serve()
