"""The graphs of a training step, as torch.compile with ``backend="neuron", dynamic=False`` would get them.

Every forward and backward graph after AOTAutograd, with the backend's decompositions, and for every node the line of
the model and the module it comes from; a node of a backward graph is given the forward line that caused it. The graphs
are run as they are, op by op, on whatever device the tensors are on.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import fx, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from smoketest.errors import without_boilerplate
from smoketest.operators.decompositions import decomposition_table
from smoketest.probe import compat
from smoketest.probe.from_fx import graph_spec, value_spec
from smoketest.probe.graphs import GraphSpec, TensorSpec, name_of

__all__ = [
    "HANDED_ON",
    "RESUMED",
    "Capture",
    "CaptureError",
    "CapturedGraph",
    "Compile",
    "GraphBreak",
    "GraphInput",
    "Origin",
    "RunStep",
    "SkippedFrame",
    "capture",
    "function_in_words",
    "name_in_words",
    "unchanged",
]

Direction = Literal["forward", "backward"]
Frames = tuple[tuple[str, int], ...]
RunStep = Callable[[Callable[..., Any], int], None]
Role = Literal["weight", "argument", "intermediate", "other"]

RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")
"""Dynamo's name of the rest of a function, by the function and the line of the graph break before it."""


@dataclass(frozen=True)
class Origin:
    """Where a node comes from.

    Attributes:
        frames: of the forward line, innermost first.
        module: qualified name of the module that was called.
        called_as: the operator before decomposition (``aten::silu``); None where the node stands for no other.
    """

    frames: Frames = ()
    module: str | None = None
    called_as: str | None = None


@dataclass(frozen=True)
class CapturedGraph:
    """One graph after AOTAutograd.

    Attributes:
        id: ``0.forward``; the backward graph of the same code is ``0.backward``.
        direction: forward or backward.
        spec: its nodes.
        origins: of every node that calls something, by node name.
        again: whether the code it is of was compiled before, for other inputs.
        frames: of the first line that Dynamo put in the graph, innermost first; it may be gone after AOTAutograd.
        runs: how often it ran in the last step that came to its end; None where none did.
    """

    id: str
    direction: Direction
    spec: GraphSpec
    origins: dict[str, Origin]
    again: bool = False
    frames: Frames = ()
    runs: int | None = None


@dataclass(frozen=True)
class GraphInput:
    """A tensor that a graph takes from outside.

    Attributes:
        name: in the user's words (``self.window``, ``batch['x']``).
        device: type of its device (``cpu``, ``neuron``).
        contiguous: whether it lies in memory in the order of its dimensions.
        value: shape and dtype; None where its shape is not known beforehand.
        frames: of the line that takes it first, innermost first.
        module: that takes it first.
        role: a parameter or buffer; an argument that the model was called with; a local that is neither, so that the
            step made it before this graph; or something else, such as an attribute that is no buffer.
        source: where Dynamo took it from, in its words (``L['y']``); None where it does not say.
        after_line: of the graph break that the graph comes after, where it is the rest of a function.
        requires_grad: whether it takes part in the backward.
    """

    name: str
    device: str
    contiguous: bool
    value: TensorSpec | None
    frames: Frames = ()
    module: str | None = None
    role: Role = "other"
    source: str | None = None
    after_line: int | None = None
    requires_grad: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class GraphBreak:
    """Dynamo ended one graph and began another. `id` is PyTorch's own (``GB0124``) where the reason has one.

    With `rest_skipped` it began no other: the rest of the function runs as plain Python.
    """

    reason: str
    id: str | None
    frames: Frames
    rest_skipped: bool = False


@dataclass(frozen=True)
class SkippedFrame:
    """Dynamo gave a whole function up: it ran as plain Python, in no graph."""

    function: str
    reason: str
    id: str | None
    frames: Frames


@dataclass(frozen=True)
class Compile:
    """A function was compiled.

    Attributes:
        number: Dynamo's own of the function; every instance of a class shares the functions of the class.
        function: its name as Dynamo has it.
        frames: where it is defined.
        step: index of the step that it was compiled in.
        guard: what had changed since it was compiled before, in Dynamo's words; None the first time.
        module: whose call was running; None where that is not known, as of a function that left no graph.
        inputs: the tensors that its graph takes.
    """

    number: str
    function: str
    frames: Frames
    step: int = 0
    guard: str | None = None
    module: str | None = None
    inputs: tuple[GraphInput, ...] = ()


@dataclass(frozen=True)
class CaptureError:
    """A step raised under torch.compile: where `fullgraph` forbids a break, or where AOTAutograd refuses.

    Attributes:
        type: name of the exception's class.
        message: its first sentence.
        id: PyTorch's own id of the graph break, where it is one.
        frames: innermost first.
        eager: what the same step raised without torch.compile, type and text; None where it came to its end.
        step: index of the step; -1 where torch.compile does not take the model, before any step.
        own_run: it was raised while a captured graph was run op by op. The backend would have compiled it instead.
    """

    type: str
    message: str
    id: str | None
    frames: Frames
    eager: str | None = None
    step: int = 0
    own_run: bool = False

    @property
    def eager_too(self) -> bool:
        """Whether the same step raises without torch.compile too, so that it is no matter of compiling."""
        return self.eager is not None


@dataclass(frozen=True)
class Capture:
    """All that torch.compile made of the steps; `inputs` are those of its forward graphs, each once.

    `compiles` are of functions as Dynamo sees them, in order, and hold no frame that it skipped. `recurrent` is what
    Dynamo gave up for a recurrent module (``nn.LSTM``) as it was set; all else was captured with
    ``torch._dynamo.config.allow_rnn = True`` then.
    """

    graphs: tuple[CapturedGraph, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    skipped: tuple[SkippedFrame, ...] = ()
    compiles: tuple[Compile, ...] = ()
    error: CaptureError | None = None
    inputs: tuple[GraphInput, ...] = ()
    recurrent: tuple[SkippedFrame | GraphBreak, ...] = ()

    @property
    def recompiles(self) -> tuple[Compile, ...]:
        """The compiles of a function that had been compiled before."""
        return tuple(one for one in self.compiles if one.guard is not None)


def capture(
    model: nn.Module,
    run_step: RunStep,
    *,
    steps: int,
    fullgraph: bool = False,
    decompositions: dict[Any, Callable[..., Any]] | None = None,
) -> Capture:
    """Run `steps` steps of `model` under torch.compile and write down its graphs.

    The model's gradients and buffers, the random state and Dynamo's are afterwards what they were.

    Args:
        model: on its device, in the mode (train or eval) it is meant to run in.
        run_step: called with the compiled model and the index of the step; does forward, loss and backward.
        steps: how many, from index 0.
        fullgraph: as for torch.compile.
        decompositions: applied by AOTAutograd; the default is the backend's table.
    """
    table = decomposition_table() if decompositions is None else decompositions
    with compat.not_compiled_already(model):
        seen = _captured(model, run_step, steps, fullgraph, table)
        recurrent = tuple(_for_recurrence(seen))
        if recurrent:
            # One nn.LSTM can leave all that is called beside it in no graph: what comes after it is looked at as well.
            with compat.recurrence_allowed():
                seen = replace(_captured(model, run_step, steps, fullgraph, table), recurrent=recurrent)
    return seen


def _captured(
    model: nn.Module,
    run_step: RunStep,
    steps: int,
    fullgraph: bool,
    table: dict[Any, Callable[..., Any]],
) -> Capture:
    seen = _capture(model, run_step, steps, fullgraph, table)
    if seen.error is not None and seen.error.own_run:
        # A graph that cannot be run gives nothing to go backward from, so its backward graph is asked for with it.
        seen = _capture(model, run_step, steps, fullgraph, table, eager_backward=True)
    if not seen.graphs and not seen.skipped and seen.error is None:
        # The step never calls the model itself: a GAN's calls its two networks. Each is compiled by itself then.
        parts = _called_from_outside(model, run_step)
        seen = _capture(model, run_step, steps, fullgraph, table, parts=parts) if parts else seen
    return seen


def _for_recurrence(seen: Capture) -> Iterator[SkippedFrame | GraphBreak]:
    """What Dynamo gave up since it does not look into recurrent modules; the same with fullgraph, where it raises."""
    error = seen.error
    raised = (GraphBreak(error.message, error.id, error.frames),) if error is not None and error.id is not None else ()
    return (one for one in (*seen.skipped, *seen.breaks, *raised) if _RECURRENT in one.reason)


_RECURRENT = "RNN, GRU, or LSTM"
"""In Dynamo's sentence of the modules that it does not trace unless ``allow_rnn`` is set."""


def _capture(
    model: nn.Module,
    run_step: RunStep,
    steps: int,
    fullgraph: bool,
    decompositions: dict[Any, Callable[..., Any]],
    eager_backward: bool = False,
    parts: tuple[nn.Module, ...] = (),
) -> Capture:
    recorder = _Recorder(model, decompositions)
    error = None
    runs: Counter[str] | None = None
    ends: list[int] = []
    options: dict[str, Any] = {"dynamic": False, "fullgraph": fullgraph}
    backends = {part: (name := recorder.name_of(part), partial(recorder.backend, root=name)) for part in parts}
    with (
        compat.fresh_dynamo(eager_backward),
        compat.kept_out_of_dynamo("smoketest"),
        unchanged(model),
        compat.compiled_in_place(backends, options),
    ):
        try:
            compiled = model if parts else torch.compile(model, backend=recorder.backend, **options)
        except Exception as raised:  # it sets an attribute of the model, which can be code of the user's
            message = f"it cannot wrap the model: {_first_paragraph(_text_of(raised))}"
            return Capture(error=CaptureError(type(raised).__name__, message, None, _traceback(raised), step=-1))
        # The backend's fused attention is decomposed to plain matmuls; the math path is what it comes to.
        with sdpa_kernel(SDPBackend.MATH):
            for index in range(steps):
                error = _run(run_step, compiled, model, index, recorder)
                if error is not None:
                    break
                runs, recorder.runs = recorder.runs, Counter()
                ends.append(len(compat.frame_records()))
        graphs = (replace(graph, runs=None if runs is None else runs[graph.id]) for graph in recorder.graphs)
        tried = compat.frame_records()
        steps_of = [bisect_right(ends, place) for place in range(len(tried))]
        compiles = tuple(_compiles(zip(tried, steps_of, strict=True), recorder.compiled))
        inputs = tuple(dict.fromkeys(_inputs(tried, recorder.compiled)))
        return Capture(tuple(graphs), _breaks(), tuple(_skipped(tried)), compiles, error, inputs)


def _called_from_outside(model: nn.Module, run_step: RunStep) -> tuple[nn.Module, ...]:
    """The modules within `model` that a step calls by themselves, not from the forward of another one."""
    depth = 0
    found: dict[int, nn.Module] = {}

    def enter(module: nn.Module, _: Any) -> None:
        nonlocal depth
        if depth == 0:
            found[id(module)] = module
        depth += 1

    def leave(*_: Any) -> None:
        nonlocal depth
        depth -= 1

    with ExitStack() as hooks, unchanged(model), suppress(Exception):
        for module in model.modules():
            if isinstance(module, torch.jit.ScriptModule):  # takes no hooks, and Dynamo does not look into it
                continue
            hooks.callback(module.register_forward_pre_hook(enter).remove)
            hooks.callback(module.register_forward_hook(leave, always_call=True).remove)
        run_step(model, 0)
    inside = {id(part) for module in found.values() for part in module.modules() if part is not module}
    return tuple(module for key, module in found.items() if key not in inside)


class _Recorder:
    """Numbers the graphs Dynamo finds and writes down what AOTAutograd makes of each.

    Attributes:
        compiled: by Dynamo's name of a compile, the module that was running and the inputs of the graph.
    """

    def __init__(self, model: nn.Module, decompositions: dict[Any, Callable[..., Any]]) -> None:
        self.graphs: list[CapturedGraph] = []
        self.raised: list[Exception] = []
        self.runs: Counter[str] = Counter()
        self.compiled: dict[str, tuple[str, tuple[GraphInput, ...]]] = {}
        self._decompositions = decompositions
        self._names: dict[int, str] = {id(module): name for name, module in model.named_modules()}
        self._names[id(model)] = self._root = type(model).__name__
        self._count = 0

    def name_of(self, module: nn.Module) -> str:
        """The qualified name of a module in the model; the model itself goes by its class."""
        return self._names[id(module)]

    def backend(self, graph: fx.GraphModule, inputs: list[Any], root: str | None = None) -> Callable[..., Any]:
        """What torch.compile calls with each graph; `root` names the module that is compiled: the model if None."""
        number = self._count
        self._count += 1
        again = not (compat.compile_id() or "/0").endswith("/0")
        lines = (frames_of(node.meta.get("stack_trace")) for node in graph.graph.nodes if node.op.startswith("call"))
        first = next(filter(None, lines), ())
        running = self._running() or root or self._root
        self.compiled[compat.compile_id() or ""] = running, tuple(self._inputs(graph, inputs, running))

        def write_down(direction: Direction) -> compat.Compiler:
            def compiler(lowered: fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
                self._record(f"{number}.{direction}", direction, lowered, running, again, first)
                return compat.boxed(lowered, self.raised.append, lambda: self.runs.update([f"{number}.{direction}"]))

            return compiler

        aot = compat.aot_backend(write_down("forward"), write_down("backward"), self._decompositions)
        result: Callable[..., Any] = aot(graph, inputs)
        return result

    def _record(
        self, name: str, direction: Direction, graph: fx.GraphModule, running: str, again: bool, first: Frames
    ) -> None:
        origins = {
            node.name: Origin(
                frames_of(node.meta.get("stack_trace")), self._module(node, running) or running, _called_as(node)
            )
            for node in graph.graph.nodes
            if node.op == "call_function"
        }
        self.graphs.append(CapturedGraph(name, direction, graph_spec(graph.graph), origins, again, first))

    def _running(self) -> str | None:
        """The module whose forward is running: after a graph break it may be one within the model.

        Of what it calls itself Dynamo keeps no name in the graph.
        """
        names = (self._names.get(id(module)) for module, _, _ in compat.running_modules())
        return next((name for name in names if name is not None), None)

    def _inputs(self, graph: fx.GraphModule, values: list[Any], running: str) -> Iterator[GraphInput]:
        """The tensors among `values`, which Dynamo's graph takes."""
        placeholders = (node for node in graph.graph.nodes if node.op == "placeholder")
        given = _given_to_the_model()
        for node, value in zip(placeholders, values, strict=False):
            if not isinstance(value, torch.Tensor):
                continue
            spec = value_spec(value)
            user = next(iter(node.users), node)
            source = compat.source_of(node)
            yield GraphInput(
                name=name_in_words(source or node.name),
                device=value.device.type,
                contiguous=value.layout != torch.strided or value.is_contiguous(),
                value=spec if isinstance(spec, TensorSpec) else None,
                frames=frames_of(user.meta.get("stack_trace")),
                module=self._module(user, running) or running,
                role=_role(source or "", compat.example_of(node), given),
                source=source,
                requires_grad=value.requires_grad,
            )

    def _module(self, node: fx.Node, running: str) -> str | None:
        """The qualified name in the user's model of the module the node was called in.

        Dynamo's stack is keyed by the id of each module, with the number of the call behind it from the second on; an
        entry it made itself is named by its path instead, which begins at the module that is running.
        """
        stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
        for key, (path, _) in reversed(stack.items()):
            number = str(key).partition("@")[0]
            name = self._names.get(int(number)) if number.isdigit() else None
            if name is not None:
                return name
            return ".".join(part for part in ("" if running == self._root else running, _from_path(path)) if part)
        return None


def _called_as(node: fx.Node) -> str | None:
    original = node.meta.get("original_aten")
    return name_of(original) if isinstance(original, torch._ops.OpOverload) else None


def _from_path(path: str) -> str:
    """``L['self'].h[0].attn`` -> ``h.0.attn``."""
    inner = re.sub(r"^L\['\w+'\]\.?", "", path)
    inner = re.sub(r"_modules\['([^']+)'\]", r"\1", inner)
    return re.sub(r"\[['\"]?([^\]'\"]+)['\"]?\]", r".\1", inner).strip(".")


def _given_to_the_model() -> list[torch.Tensor]:
    """The tensors among the arguments of the outermost module that is running."""
    *_, (_, args, kwargs) = [(None, (), {}), *compat.running_modules()]
    return list(_tensors_in((args, kwargs)))


def _tensors_in(held: Any) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(held):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif isinstance(leaf, Mapping):  # a class of its own, such as a tokenizer's BatchEncoding
            yield from _tensors_in(list(leaf.values()))


_WEIGHT = re.compile(r"\b_(?:parameters|buffers)\[")
_LOCAL = re.compile(r"(?:L\['\w+'\]|___stack\d+)(?:\[[^\]]+\])*")


def _role(source: str, value: torch.Tensor | None, given: list[torch.Tensor]) -> Role:
    if _WEIGHT.search(source) or isinstance(value, nn.Parameter):
        return "weight"
    if any(value is one for one in given):
        return "argument"
    return "intermediate" if value is not None and _LOCAL.fullmatch(source) else "other"


HANDED_ON = "a value of before the graph break"
"""Dynamo hands on what lies on Python's stack at a graph break, which has no name."""


def function_in_words(name: str) -> str:
    """``forward()``; what Dynamo makes of the code after a graph break is the rest of it."""
    resumed = RESUMED.fullmatch(name)
    return f"the rest of {resumed[1]}() after line {resumed[2]}" if resumed else f"{name}()"


def name_in_words(source: str) -> str:
    """In the user's words: ``L['self']._modules['conv']._parameters['weight']`` -> ``self.conv.weight``."""
    inner = re.sub(r"^[LG]\['([^']+)'\]", r"\1", source)
    if inner.startswith("___stack"):
        return HANDED_ON
    return re.sub(r"\._(?:modules|parameters|buffers)\['([^']+)'\]", r".\1", inner)


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def frames_of(stack_trace: str | None) -> Frames:
    """Frames of a formatted stack, innermost first."""
    return tuple((file, int(line)) for file, line in reversed(_FRAME.findall(stack_trace or "")))


def _run(
    run_step: RunStep, compiled: Callable[..., Any], model: nn.Module, index: int, recorder: _Recorder
) -> CaptureError | None:
    """One step; what it raises is an answer."""
    try:
        run_step(compiled, index)
    except Exception as raised:  # Dynamo, AOTAutograd, a kernel of the device or the user's code: all are reported
        text = _text_of(raised)
        with compat.derivatives_noted() as derivatives:
            eager = _raised_without(run_step, model, index)
        # What cannot be differentiated twice is found in the second backward; it is the first that has the line.
        twice = derivatives[0] if derivatives and "double backward" in text else ()
        frames = twice or frames_of(text) or _traceback(raised)
        return CaptureError(
            type=type(raised).__name__,
            message=_first_paragraph(text),
            id=break_id(text),
            frames=frames,
            eager=eager,
            step=index,
            own_run=any(error in recorder.raised for error in _chain(raised)),
        )
    return None


def _text_of(raised: Exception) -> str:
    try:
        return str(raised)
    except BaseException as failure:  # the text of an exception can be code of the user's
        return f"(its text cannot be had: __str__ raised {type(failure).__name__})"


def _chain(raised: BaseException | None) -> Iterator[BaseException]:
    """An exception and those it came of."""
    while raised is not None:
        yield raised
        raised = raised.__cause__ or raised.__context__


def _raised_without(run_step: RunStep, model: nn.Module, index: int) -> str | None:
    """What the step raises without torch.compile, type and text; None where it comes to its end.

    Nothing is compiled meanwhile: neither what is compiled in place, nor what the user's own code compiles.
    """
    try:
        with compat.not_compiled_already(model), torch.compiler.set_stance("force_eager"):
            run_step(model, index)
    except Exception as raised:  # whatever the user's code or the device raises
        return f"{type(raised).__name__}: {_first_paragraph(_text_of(raised))}"
    return None


def _traceback(raised: BaseException) -> Frames:
    found = []
    trace = raised.__traceback__
    while trace is not None:
        found.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return tuple(reversed(found))


def _breaks() -> tuple[GraphBreak, ...]:
    return tuple(
        GraphBreak(_first_paragraph(seen.reason), break_id(seen.reason), seen.frames, seen.rest_skipped)
        for seen in compat.break_records()
    )


def _skipped(tried: Iterable[compat.FrameRecord]) -> Iterator[SkippedFrame]:
    for frame in tried:
        if frame.error is not None:
            frames = ((frame.error_place,) if frame.error_place else ()) + ((frame.file, frame.line),)
            yield SkippedFrame(frame.name, _first_paragraph(frame.error), break_id(frame.error), frames)


Compiled = Mapping[str, tuple[str, tuple[GraphInput, ...]]]


def _compiles(tried: Iterable[tuple[compat.FrameRecord, int]], compiled: Compiled) -> Iterator[Compile]:
    for frame, step in tried:
        if frame.error is None:
            module, inputs = compiled.get(frame.compile_id, (None, ()))
            number, place = frame.compile_id.partition("/")[0], ((frame.file, frame.line),)
            yield Compile(number, frame.name, place, step, frame.recompile_reason or None, module, inputs)


def _inputs(tried: Iterable[compat.FrameRecord], compiled: Compiled) -> Iterator[GraphInput]:
    """The inputs of all graphs; of the rest of a function with the line of the graph break before it."""
    names = {frame.compile_id: frame.name for frame in tried}
    for compile_id, (_, inputs) in compiled.items():
        resumed = RESUMED.fullmatch(names.get(compile_id, ""))
        line = int(resumed[2]) if resumed else None
        yield from (replace(one, after_line=line) for one in inputs)


_BREAK_ID = re.compile(r"/(gb\d+)\.html", re.IGNORECASE)


def break_id(text: str) -> str | None:
    """The id of PyTorch's registry of graph breaks that a message links to."""
    found = _BREAK_ID.search(text)
    return found[1].upper() if found else None


def _first_paragraph(text: str) -> str:
    """The title of a graph break, and its explanation where there is one, in one line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    title = without_boilerplate(lines[0]) if lines else ""
    if title.startswith(_JUMP):
        return _JUMP_IN_WORDS
    at = next((place for place, line in enumerate(lines) if line.startswith("Explanation:")), None)
    if at is None:
        return title
    explanation = lines[at].removeprefix("Explanation:").strip()
    if explanation.endswith(":"):  # the reasons are a list under it
        explanation = " ".join([explanation, *itertools.takewhile(lambda line: line.startswith("-"), lines[at + 1 :])])
    return f"{title}. {explanation}"


_JUMP = "generic_jump"
_JUMP_IN_WORDS = "Data-dependent branching. The line goes on in one way or another by the value of a tensor."
"""Of a graph that ends at a branch, Dynamo (PyTorch 2.13) says no more than the name of its own function."""


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Put gradients, buffers and the random state back afterwards."""
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    random = torch.get_rng_state()
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        torch.set_rng_state(random)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for parameter, gradient in gradients:
            parameter.grad = gradient
