"""The training step compiled and run on a real device: which graphs its compiler takes, how fast, with which results.

Each graph that Dynamo finds goes to the device's own backend, through a wrapper that waits for the device before and
after every graph. The compiler works in the background, so that its errors surface at any later call that touches the
device; waiting pins them to the graph that caused them. A graph that fails runs op by op from then on, and so
every failing graph is found, not only the first. Nothing here runs on the emulated device, which has no compiler.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from smoketest.findings import NotChecked, Observation, SitePolicy
from smoketest.probe import compat
from smoketest.probe.capture import Direction, Frames, RunStep, frames_of, unchanged
from smoketest.probe.compared import Comparison, Values, coarsest, differences, perturbed, without_dropout
from smoketest.probe.compiler_errors import Failure, read_failure, remedy_for
from smoketest.probe.repro import Key
from smoketest.probe.terminal import Overheard, overheard

__all__ = ["WITNESS", "CannotWrap", "DeviceRun", "GraphRun", "Refusal", "run_on_device"]

WITNESS = frozenset({"device_compile"})
_STEADY_RUNS = 3
_MOST_ATTEMPTS = 20


class CannotWrap(Exception):
    """torch.compile does not take the model: it raises before any step, and says this."""


@dataclass(frozen=True)
class GraphRun:
    """One graph as the device compiled and ran it.

    Attributes:
        id: ``0.forward``, numbered as the compile probe numbers them.
        direction: forward or backward.
        first_ms: compilation and first run, until the device was done; None where it did not get there.
        steady_ms: median of later runs; None where there was none.
        failed: whether the device's compiler refused it, or its execution failed.
    """

    id: str
    direction: Direction
    first_ms: float | None
    steady_ms: float | None
    failed: bool


@dataclass(frozen=True)
class Refusal:
    """A graph that the device's compiler refused, or that failed to run: enough for a file that shows it again.

    Attributes:
        key: of the finding.
        graph: id of the graph.
        stage: the last one reached.
        sentence: the compiler's own.
        trouble: what became of it, a verb and what goes with it.
    """

    key: Key
    graph: str
    stage: str
    sentence: str
    trouble: str


@dataclass(frozen=True)
class DeviceRun:
    """What came of compiling and running the step on the device.

    Attributes:
        graphs: every graph that was compiled, in order.
        observations: for `smoketest.findings.merge`; measured.
        compared: how many tensors of the compiled step were compared with the eager one.
        not_checked: what this says nothing about.
        refused: the graphs that failed.
    """

    graphs: tuple[GraphRun, ...] = ()
    observations: tuple[Observation, ...] = ()
    compared: int = 0
    not_checked: tuple[NotChecked, ...] = ()
    refused: tuple[Refusal, ...] = ()

    @property
    def all_ran(self) -> bool:
        """Whether there were graphs, and each was executed."""
        return bool(self.graphs) and all(graph.first_ms is not None and not graph.failed for graph in self.graphs)


def run_on_device(
    model: nn.Module,
    run_step: RunStep,
    *,
    backend: Callable[..., Any],
    synchronize: Callable[[], None],
    site_policy: SitePolicy,
    steps: int = 1,
    fullgraph: bool = False,
    repeatable: bool = True,
    entering: Callable[[str], None] = lambda where: None,
) -> DeviceRun:
    """Compile the step of `model` with the device's backend, run it, and compare it with the eager one.

    The model's gradients and buffers and the random state are afterwards what they were, and Dynamo is reset.

    Args:
        model: on the device.
        run_step: called with the compiled model and the index of a step; does forward, loss and backward.
        backend: the device's, as torch.compile calls it.
        synchronize: waits for the device; errors of work in the background surface in it.
        site_policy: chooses the user's line among frames.
        steps: how many batches are run, each once; the first is then repeated for steady times.
        fullgraph: as for torch.compile.
        repeatable: False where a step changes what it starts from (a step of the user's own): nothing is compared.
        entering: told which graph is being compiled or run, before it is: the process may not survive it.

    Raises:
        CannotWrap: torch.compile raises as soon as it is given the model.
    """
    with overheard() as heard:
        watch = _Watch(model, backend, synchronize, entering, heard)
        run = _Runs(model, run_step, watch, fullgraph)
        comparison = run.run(steps, repeatable)
    graphs = tuple(part.result() for graph in watch.graphs for part in graph.parts() if part.began)
    seen = [_observation(failed, site_policy) for failed in watch.failures]
    refused = [_refusal(one, failed) for one, failed in zip(seen, watch.failures, strict=True)]
    if comparison.first is not None:
        seen.append(_differs(comparison, watch.graphs, site_policy))
    why = [NotChecked(what=_COMPARED, why=why) for why in comparison.not_checked]
    return DeviceRun(graphs, tuple(seen), comparison.compared, (*run.not_checked, *why), tuple(refused))


_COMPARED = "whether the compiled step gives what the eager one gives"


# --- the graphs ------------------------------------------------------------------------------------------------------


@dataclass
class _Part:
    """The forward or the backward of one graph."""

    graph: _Graph
    direction: Direction
    took: list[float] = field(default_factory=list)
    compiling: float = 0.0
    began: bool = False
    failed: bool = False

    @property
    def id(self) -> str:
        return f"{self.graph.number}.{self.direction}"

    def result(self) -> GraphRun:
        first = (self.compiling + self.took[0]) * 1e3 if self.took else None
        steady = statistics.median(self.took[1:]) * 1e3 if len(self.took) > 1 else None
        return GraphRun(self.id, self.direction, first, steady, self.failed)


@dataclass
class _Graph:
    """One graph of Dynamo's, its lines innermost first, and what it runs as."""

    number: int
    module: fx.GraphModule
    frames: tuple[Frames, ...]
    name: str | None
    forward: _Part = field(init=False)
    backward: _Part = field(init=False)

    def __post_init__(self) -> None:
        self.forward, self.backward = _Part(self, "forward"), _Part(self, "backward")

    def parts(self) -> tuple[_Part, _Part]:
        return self.forward, self.backward

    @property
    def fails(self) -> bool:
        return self.forward.failed or self.backward.failed

    def frames_at(self, place: tuple[str, int] | None) -> Frames:
        """The frames of the node a compiler speaks of; those of the first node where it names no line."""
        innermost = (frames for frames in self.frames if place is not None and place in frames)
        return next(innermost, self.frames[0] if self.frames else ())


@dataclass(frozen=True)
class _Failed:
    """One failure and the part of a graph at work when it surfaced."""

    part: _Part
    failure: Failure


class _Watch:
    """Around the device's backend: waits before and after each graph, takes times, and knows which one is at work.

    Attributes:
        graphs: in the order Dynamo found them.
        failures: each part's first.
        at_work: the part that runs or is compiled; None between graphs.
        comparing: where given, called with each forward graph, its results, and what it gives op by op.
    """

    __name__ = "neuron"  # what torch.compile calls the backend in its errors

    def __init__(
        self,
        model: nn.Module,
        backend: Callable[..., Any],
        synchronize: Callable[[], None],
        entering: Callable[[str], None],
        heard: Overheard,
    ) -> None:
        self.graphs: list[_Graph] = []
        self.failures: list[_Failed] = []
        self.at_work: _Part | None = None
        self.comparing: Callable[[_Graph, Sequence[Any], Sequence[Any]], None] | None = None
        self.synchronize = synchronize
        self._heard = heard
        self._backend = backend
        self._entering = entering
        self._names = {id(module): name or type(model).__name__ for name, module in model.named_modules()}

    def __call__(self, module: fx.GraphModule, inputs: list[Any], **kwargs: Any) -> Callable[..., Any]:
        """Have a graph compiled; what fails is written down, and the graph runs op by op instead."""
        self.synchronize()  # what came before is not this graph's: it surfaces outside of it
        graph = _Graph(len(self.graphs), module, _lines(module), self._module_of(module))
        self.graphs.append(graph)
        began = time.perf_counter()
        compiled: Callable[..., Any] = module.forward
        with self._working(graph.forward):
            try:
                compiled = self._backend(module, inputs, **kwargs)
                self.synchronize()
            except Exception as error:
                self.write_down(error)
        graph.forward.compiling = time.perf_counter() - began
        return lambda *args: self._run(graph, compiled, args)

    def _run(self, graph: _Graph, compiled: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if graph.fails:
            return graph.module.forward(*args)
        self.synchronize()
        expected = self._op_by_op(graph, args) if self.comparing is not None else None
        with self._working(graph.forward):
            began = time.perf_counter()
            results = compiled(*args)
            self.synchronize()
            graph.forward.took.append(time.perf_counter() - began)
        if self.comparing is not None and expected is not None:
            self.comparing(graph, tree_leaves(results), expected)
        self._watch_backward(graph, results)
        return results

    def _op_by_op(self, graph: _Graph, args: tuple[Any, ...]) -> Sequence[Any] | None:
        """What the graph gives eagerly for copies of its inputs, under the random numbers it is about to draw."""
        state = torch.get_rng_state()
        copies = [value.detach().clone() if isinstance(value, Tensor) else value for value in args]
        try:
            with torch.no_grad():
                return tree_leaves(graph.module.forward(*copies))
        except Exception:  # such as an in-place change of what only autograd lets be changed
            return None
        finally:
            torch.set_rng_state(state)

    def _watch_backward(self, graph: _Graph, results: Any) -> None:
        """Wait before and after the backward of these results, and take its time."""
        part = graph.backward
        began = [0.0]

        def before(_: Any) -> None:
            self.synchronize()
            self._enter(part)
            began[0] = time.perf_counter()

        def after(*_: Any) -> None:
            self.synchronize()
            part.took.append(time.perf_counter() - began[0])
            self.at_work = None

        for node in compat.compiled_backwards(results):
            node.register_prehook(before)
            node.register_hook(after)

    @contextmanager
    def _working(self, part: _Part) -> Iterator[None]:
        """While a part is compiled or run; it stays at work where that raises, so that the error is its own."""
        self._enter(part)
        yield
        self.at_work = None

    def _enter(self, part: _Part) -> None:
        part.began = True
        self.at_work = part
        self._entering(f"compiled graph {part.id}")

    def write_down(self, error: BaseException) -> bool:
        """Keep a failure of the part at work; whether it is one of compiling or running a graph, and a new one."""
        failure = read_failure(_chain_text(error), self._heard.text())
        part, self.at_work = self.at_work, None
        if failure is None or part is None or part.failed:
            return False
        part.failed = True
        self.failures.append(_Failed(part, failure))
        return True

    def again(self) -> _Watch:
        """Another one around the same backend, which knows of no graph."""
        watch = copy.copy(self)
        watch.graphs, watch.failures, watch.at_work = [], [], None
        return watch

    def coarsest_dtype(self) -> torch.dtype:
        """The coarsest floating-point dtype of all graphs."""
        nodes = (node for graph in self.graphs for node in graph.module.graph.nodes)
        values = (leaf for node in nodes for leaf in tree_leaves(node.meta.get("example_value")))
        return coarsest(value.dtype for value in values if isinstance(value, Tensor))

    def _module_of(self, module: fx.GraphModule) -> str | None:
        for node in module.graph.nodes:
            for key in reversed(list(node.meta.get("nn_module_stack") or {})):
                if str(key).isdigit() and int(key) in self._names:
                    return self._names[int(key)]
        return None


def _lines(module: fx.GraphModule) -> tuple[Frames, ...]:
    traces = (node.meta.get("stack_trace") for node in module.graph.nodes if node.op.startswith("call"))
    return tuple(dict.fromkeys(frames for trace in traces if (frames := frames_of(trace))))


def _chain_text(error: BaseException) -> str:
    """The texts of an exception and of what it came of, the outermost first."""
    texts: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        if str(seen) not in "\n".join(texts):
            texts.append(str(seen))
        seen = getattr(seen, "inner_exception", None) or seen.__cause__ or seen.__context__
    return "\n".join(texts)


def _raised(error: BaseException) -> str:
    """One clause on an exception; on the one that Dynamo wrapped, where it did."""
    inner = getattr(error, "inner_exception", error)
    return f"it raised {type(inner).__name__}: {' '.join(str(inner).split())[:300]}"


# --- the runs --------------------------------------------------------------------------------------------------------


class _Runs:
    """Runs of the step, compiled and eager.

    Attributes:
        not_checked: what kept the compiled step from its end, where that was no failure of a graph.
    """

    def __init__(self, model: nn.Module, run_step: RunStep, watch: _Watch, fullgraph: bool) -> None:
        self.not_checked: list[NotChecked] = []
        self._model = model
        self._run_step = run_step
        self._watch = watch
        self._fullgraph = fullgraph

    def run(self, steps: int, repeatable: bool) -> Comparison:
        """Compile and run all batches, the first one several times, and compare that one with the eager one."""
        with self._compiled(self._watch) as call:
            for index in [*range(steps), *([0] * _STEADY_RUNS)]:
                if not self._step(call, index):
                    return Comparison(not_checked=("the compiled step does not run to its end",))
            if self._watch.failures:
                return Comparison(not_checked=("a graph of the step fails on the device",))
            if not self._watch.graphs:
                return Comparison(not_checked=("Dynamo captured no graph of it",))
            if not repeatable:
                return Comparison(not_checked=("a step of the user's own starts from another state each time",))
            found = self._compared(call, self._watch)
        return self._without_dropout() if found.differences and self._draws_random_numbers() else found

    def _step(self, call: Callable[..., Any], index: int) -> bool:
        """Run one batch to its end, again after each new failure: one in a backward graph ends the step."""
        for _ in range(_MOST_ATTEMPTS):
            try:
                with unchanged(self._model):
                    self._run_step(call, index)
                    self._watch.synchronize()
                return True
            except Exception as error:
                if not self._watch.write_down(error):
                    self.not_checked.append(NotChecked(what="the rest of the compiled step", why=_raised(error)))
                    return False
        return False

    @contextmanager
    def _compiled(self, watch: _Watch) -> Iterator[Callable[..., Any]]:
        with (
            compat.not_compiled_already(self._model),
            compat.fresh_dynamo(),
            compat.kept_out_of_dynamo("smoketest"),
        ):
            try:
                call = torch.compile(self._model, backend=watch, dynamic=False, fullgraph=self._fullgraph)
            except Exception as error:  # it sets an attribute of the model, which can be code of the user's
                raise CannotWrap(_raised(error)) from error
            yield call

    def _without_dropout(self) -> Comparison:
        """Compiled and eager step once more: they may draw other random numbers, which is no fault."""
        with without_dropout(self._model):
            if self._draws_random_numbers():
                why = "the step draws random numbers, and compiled code may draw others than eager code"
                return Comparison(not_checked=(why,))
            watch = self._watch.again()
            with self._compiled(watch) as call:
                return self._compared(call, watch)

    def _compared(self, call: Callable[..., Any], watch: _Watch) -> Comparison:
        eager = self._values(self._model)
        by_graph: list[tuple[int, Values, Values]] = []

        def compare_graph(graph: _Graph, results: Sequence[Any], expected: Sequence[Any]) -> None:
            by_graph.append((graph.number, _tensors("result", expected), _tensors("result", results)))

        watch.comparing = compare_graph
        compiled = self._values(call)
        watch.comparing = None
        dtype = watch.coarsest_dtype()
        found = differences(eager, compiled, dtype)
        if found:
            found = differences(eager, compiled, dtype, list(self._rounded(dtype)))
        graphs = tuple(number for number, right, other in by_graph if differences(right, other, dtype))
        return Comparison(len(eager), found, graphs)

    def _rounded(self, dtype: torch.dtype) -> Iterator[Values]:
        """What the eager step gives where every parameter is off by a rounding error, twice."""
        for seed in range(2):
            with perturbed(self._model, dtype, seed):
                yield self._values(self._model)

    def _draws_random_numbers(self) -> bool:
        """Whether the eager step gives other values under another seed."""
        dtype = self._watch.coarsest_dtype()
        return bool(differences(self._values(self._model), self._values(self._model, seed=1), dtype))

    def _values(self, call: Callable[..., Any], seed: int = 0) -> Values:
        """Outputs of the model and gradients of its parameters after one step, on the CPU."""
        outputs: list[Any] = []

        def recorded(*args: Any, **kwargs: Any) -> Any:
            outputs.append(call(*args, **kwargs))
            return outputs[-1]

        with unchanged(self._model):
            torch.manual_seed(seed)
            self._run_step(recorded, 0)
            self._watch.synchronize()
            gradients = {name: p.grad for name, p in self._model.named_parameters() if p.grad is not None}
            copies = {f"gradient {name}": grad.detach().cpu().clone() for name, grad in gradients.items()}
            return {**_tensors("output", tree_leaves(outputs)), **copies}


def _tensors(what: str, leaves: Sequence[Any]) -> Values:
    return {f"{what} {n}": x.detach().cpu().clone() for n, x in enumerate(leaves) if isinstance(x, Tensor)}


# --- what is said ----------------------------------------------------------------------------------------------------


def _observation(failed: _Failed, policy: SitePolicy) -> Observation:
    part, failure = failed.part, failed.failure
    graph = part.graph
    codes = "".join(f" [{code}]" for code in failure.codes)
    process = f" (exit code {failure.exit_code})" if failure.exit_code is not None else ""
    what = failure.op if failure.rule == "NST201" and failure.op else f"graph {part.id}"
    return Observation(
        rule=failure.rule,
        op=failure.op or "graph",
        grounds="measured",
        phase=part.direction,
        site=policy.choose(graph.frames_at(failure.place)),
        module=graph.name,
        calls=1,
        exact=True,
        witnesses=WITNESS,
        stage=failure.stage,
        message=f"{what} {_trouble(failure)}{codes}{process}: {failure.sentence}",
        remedy=remedy_for(failure.codes),
    )


def _trouble(failure: Failure) -> str:
    return {
        "NST201": "does not lower on the device",
        "NST202": "cannot be imported on the device",
        "NST203": "fails to run on the device" if failure.stage == "compiled" else "is rejected by the Neuron compiler",
        "NST206": "has a dynamic shape, which the device's backend refuses",
    }[failure.rule]


def _refusal(seen: Observation, failed: _Failed) -> Refusal:
    key = (seen.rule, seen.op, seen.phase, seen.site)
    failure = failed.failure
    return Refusal(key, failed.part.id, failure.stage, failure.sentence, _trouble(failure))


def _differs(comparison: Comparison, graphs: list[_Graph], policy: SitePolicy) -> Observation:
    found = comparison.first
    assert found is not None
    direction: Direction = "forward" if found.what.startswith("output") else "backward"
    numbers = comparison.graphs or ((graphs[0].number,) if len(graphs) == 1 else ())
    graph = next((graph for graph in graphs if numbers and graph.number == numbers[0]), None)
    of = f"graph {graph.number}.{direction}" if graph is not None else "the compiled step"
    return Observation(
        rule="NST208",
        op="graph",
        grounds="measured",
        phase=direction,
        site=policy.choose(graph.frames_at(None)) if graph is not None else None,
        module=found.module or (graph.name if graph is not None else None),
        calls=1,
        exact=True,
        witnesses=WITNESS,
        stage="executed",
        message=f"{of}: {found.sentence(len(comparison.differences) - 1)}",
    )
