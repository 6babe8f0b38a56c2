"""The private PyTorch API of the probe, in one place.

Checked against torch 2.13; ``tests/probe/test_compat.py`` fails when one of these drifts.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch._decomp
import torch._dynamo
import torch._functorch.config
from torch._dynamo import symbolic_convert, trace_rules
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.backends import registry
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.external_utils import wrap_inline
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import CompileContext

__all__ = [
    "BreakRecord",
    "FrameRecord",
    "aot_backend",
    "break_records",
    "compile_id",
    "compiled_backwards",
    "compiled_in_place",
    "core_decompositions",
    "derivatives_noted",
    "dynamo_is_off",
    "example_of",
    "frame_records",
    "fresh_dynamo",
    "kept_out_of_dynamo",
    "lookup_backend",
    "not_compiled_already",
    "recurrence_allowed",
    "running_modules",
    "source_of",
]

Compiler = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]


@dataclass(frozen=True)
class FrameRecord:
    """One attempt of Dynamo to compile a frame; `error` is why it gave up and ran the frame as plain Python."""

    compile_id: str
    name: str
    file: str
    line: int
    error: str | None
    error_place: tuple[str, int] | None
    recompile_reason: str | None
    ops: int


@dataclass(frozen=True)
class BreakRecord:
    """One graph break; frames innermost first.

    Attributes:
        reason: Dynamo's own words.
        frames: where.
        rest_skipped: Dynamo could not go on after the line: what comes after it in the function runs as plain Python.
    """

    reason: str
    frames: tuple[tuple[str, int], ...]
    rest_skipped: bool = False


@contextmanager
def fresh_dynamo(eager_backward: bool = False) -> Iterator[None]:
    """Dynamo with no memory and the settings of a static-shape backend, and all as it was afterwards.

    Args:
        eager_backward: compile each backward graph with its forward graph instead of when it is first needed.
    """
    with ExitStack() as stack:
        dynamo: Any = torch._dynamo.config
        stack.enter_context(
            dynamo.patch(automatic_dynamic_shapes=False, assume_static_by_default=True, suppress_errors=False)
        )
        functorch: Any = torch._functorch.config
        stack.enter_context(
            functorch.patch(enable_autograd_cache=False, force_non_lazy_backward_lowering=eager_backward)
        )
        # Dynamo's own, not the model's: where warnings are errors they would end the capture, or make it skip a frame.
        stack.enter_context(warnings.catch_warnings())
        for message in _OF_DYNAMO:
            warnings.filterwarnings("ignore", message=message)
        stack.enter_context(_reasons_kept())
        before: Any = dynamo_utils._compilation_metrics.maxlen
        dynamo_utils.set_compilation_metrics_limit(_MOST_COMPILES)
        stack.callback(dynamo_utils.set_compilation_metrics_limit, before)
        _forget()
        stack.callback(_forget)
        yield


_OF_DYNAMO = (
    r"The \.grad attribute of a Tensor that is not a leaf",  # it looks at its intermediate values
    r"Dynamo detected a call to a `functools\.lru_cache`",  # it traces into the function all the same
)


_MOST_COMPILES = 100_000
"""Dynamo keeps a record of its last 64 compiles, and a backward graph is one of them."""


def _forget() -> None:
    torch._dynamo.reset()
    dynamo_utils.clear_compilation_metrics()
    dynamo_utils.graph_break_reasons.clear()
    dynamo_utils.counters.clear()
    _no_way_on.clear()


_no_way_on: list[BreakRecord] = []
"""Breaks after which Dynamo could not go on. Its own list says ``step_unsupported`` of these; why, it only logs."""


@contextmanager
def _reasons_kept() -> Iterator[None]:
    """Keep what Dynamo logs of breaks it cannot go on after; where it logs otherwise, the reason is its own word."""
    translator: Any = symbolic_convert.InstructionTranslatorBase
    original = getattr(translator, "log_graph_break", None)
    if original is None:
        yield
        return

    def log_graph_break(self: Any, code_options: Any, reason: str, exc: Any) -> None:
        if not exc.logged and reason.startswith("Encountered graph break that we cannot resume from"):
            stack = getattr(exc, "real_stack", None) or ()
            frames = tuple((frame.filename, frame.lineno or 0) for frame in reversed(stack))
            _no_way_on.append(BreakRecord(str(exc), frames, rest_skipped=True))
        original(self, code_options, reason, exc)

    translator.log_graph_break = log_graph_break
    try:
        yield
    finally:
        translator.log_graph_break = original


@contextmanager
def kept_out_of_dynamo(*modules: str) -> Iterator[None]:
    """Frames of these modules, or of anything in these packages, are not traced."""
    before = list(trace_rules.SKIP_DIRS)
    for module in modules:
        trace_rules.add(module)
    try:
        yield
    finally:
        trace_rules.SKIP_DIRS[:] = before
        trace_rules._recompile_re()


def dynamo_is_off() -> str | None:
    """What switches Dynamo off in this process, so that torch.compile compiles nothing; None where nothing does."""
    if os.environ.get("TORCHDYNAMO_DISABLE", "") == "1":
        return "TORCHDYNAMO_DISABLE=1 switches torch.compile off"
    config: Any = torch._dynamo.config
    return "torch._dynamo.config.disable switches torch.compile off" if config.disable else None


@contextmanager
def not_compiled_already(model: torch.nn.Module) -> Iterator[None]:
    """Take back what ``Module.compile`` of the user's did, meanwhile: within it no other compilation takes place."""
    before = [(module, call) for module in model.modules() if (call := module._compiled_call_impl) is not None]
    for module, _ in before:
        module._compiled_call_impl = None
    try:
        yield
    finally:
        for module, call in before:
            module._compiled_call_impl = call


@contextmanager
def compiled_in_place(backends: Mapping[torch.nn.Module, tuple[str, Any]], options: dict[str, Any]) -> Iterator[None]:
    """Let the calls of each module be compiled with its backend, as ``nn.Module.compile`` does, which has no way back.

    Nor does that one see a module of torch.nn itself, whose frames Dynamo does not start in: hence the wrapper. It has
    code of its own for each module, under the module's name: with one code for all, the first compile of the second
    module would count as a recompile of the first.

    Args:
        backends: by module, its name and its backend.
        options: of torch.compile.
    """
    before: list[tuple[torch.nn.Module, Any]] = [(module, module._compiled_call_impl) for module in backends]
    try:
        for module, (name, backend) in backends.items():
            call = _own_code(wrap_inline(module._call_impl), name)
            module._compiled_call_impl = torch.compile(call, backend=backend, **options)
        yield
    finally:
        for module, call in before:
            module._compiled_call_impl = call


@contextmanager
def recurrence_allowed() -> Iterator[None]:
    """Let Dynamo trace ``nn.RNN``, ``nn.GRU`` and ``nn.LSTM``, which it does not by default."""
    dynamo: Any = torch._dynamo.config
    with dynamo.patch(allow_rnn=True):
        yield


def _own_code(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function with a code object that no other function has: what Dynamo compiled is kept by that."""
    given: Any = function
    code = given.__code__.replace(co_name=name, co_qualname=name)
    return types.FunctionType(code, given.__globals__, name, given.__defaults__, given.__closure__)


def aot_backend(
    forward: Compiler, backward: Compiler, decompositions: dict[Any, Callable[..., Any]]
) -> Callable[..., Any]:
    """A backend for torch.compile that hands the graphs after AOTAutograd to the two functions."""
    backend: Callable[..., Any] = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=forward,
        decompositions=decompositions,
        keep_inference_input_mutations=True,
    )
    return backend


def boxed(
    graph: torch.fx.GraphModule, on_error: Callable[[Exception], None], on_call: Callable[[], None] | None = None
) -> Callable[..., Any]:
    """The graph as AOTAutograd wants its compiled functions: one list of arguments, emptied on the way.

    What running it raises is told to `on_error` and goes on; `on_call` is called before each run.
    """

    def forward(*args: Any) -> Any:
        if on_call is not None:
            on_call()
        try:
            return graph.forward(*args)
        except Exception as raised:
            on_error(raised)
            raise

    function: Callable[..., Any] = make_boxed_func(forward)
    return function


def core_decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions to its core operators, by overload."""
    return dict(torch._decomp.core_aten_decompositions())


def source_of(placeholder: torch.fx.Node) -> str | None:
    """Where Dynamo got an input of its graph from, such as ``L['self'].window``; None where it does not say."""
    name = getattr(getattr(placeholder.meta.get("grapharg"), "source", None), "name", None)
    said = name() if callable(name) else name
    return None if said is None else str(said)


def example_of(placeholder: torch.fx.Node) -> torch.Tensor | None:
    """The tensor that Dynamo's graph was traced with in the place of an input, while it is being compiled."""
    example = getattr(placeholder.meta.get("grapharg"), "example", None)
    return example if isinstance(example, torch.Tensor) else None


def lookup_backend(name: str) -> Callable[..., Any] | None:
    """The backend that torch.compile knows by a name; None where it knows none."""
    try:
        found: Callable[..., Any] = registry.lookup_backend(name)
    except torch._dynamo.exc.InvalidBackend:
        return None
    return found


def compiled_backwards(results: Any) -> list[Any]:
    """The autograd nodes of compiled graphs that these results come of: theirs, or behind the views made of them."""
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
    nodes = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    found: dict[Any, None] = {}
    for _ in range(_VIEWS):
        found.update(dict.fromkeys(node for node in nodes if "CompiledFunction" in type(node).__name__))
        nodes = [before for node in nodes if node not in found for before, _ in node.next_functions if before]
    return list(found)


_VIEWS = 4
"""So many views may lie between a result and the graph that made it."""


@contextmanager
def derivatives_noted() -> Iterator[list[tuple[tuple[str, int], ...]]]:
    """Note where derivatives are taken that are to be differentiated again (``create_graph=True``).

    Not while Dynamo traces: it knows ``torch.autograd.grad`` by its identity. Gives lists of frames, innermost first; a
    function imported by its own name beforehand goes unseen.
    """
    seen: list[tuple[tuple[str, int], ...]] = []

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function)

        def noted(*args: Any, **kwargs: Any) -> Any:
            if parameters.bind(*args, **kwargs).arguments.get("create_graph"):
                stack = traceback.extract_stack()[:-1]
                seen.append(tuple((frame.filename, frame.lineno or 0) for frame in reversed(stack)))
            return function(*args, **kwargs)

        return noted

    grad, backward = torch.autograd.grad, torch.autograd.backward
    torch.autograd.grad, torch.autograd.backward = noting(grad), noting(backward)
    try:
        yield seen
    finally:
        torch.autograd.grad, torch.autograd.backward = grad, backward


def running_modules() -> Iterator[tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]]:
    """The modules whose call is running as Python in this thread, with what they were given; innermost first.

    Dynamo runs code of its own in the place of a function it has compiled, under the function's name: hence by name.
    """
    code = torch.nn.Module._call_impl.__code__
    frame = sys._getframe(1)
    while frame is not None:
        if (frame.f_code.co_name, frame.f_code.co_filename) == (code.co_name, code.co_filename):
            known = frame.f_locals
            module = known.get("self")
            if isinstance(module, torch.nn.Module):
                yield module, tuple(known.get("args", ())), dict(known.get("kwargs", {}))
        frame = frame.f_back  # type: ignore[assignment]


def compile_id() -> str | None:
    """Dynamo's name of the frame being compiled, such as ``3/1``; None outside."""
    current = CompileContext.current_compile_id()
    return None if current is None else str(current)


def frame_records() -> tuple[FrameRecord, ...]:
    """Every frame that Dynamo tried since the last reset, in order."""
    records: list[FrameRecord] = []
    named: dict[str, Any] = {}
    for seen in dynamo_utils.get_compilation_metrics():
        frame = str(seen.compile_id).partition("/")[0]
        if seen.co_filename is not None:
            named.setdefault(frame, seen)
        elif seen.fail_type is None or frame not in named:  # a backward graph
            continue
        # A frame over the recompile limit is given up before its name is written down.
        code = seen if seen.co_filename is not None else named[frame]
        records.append(
            FrameRecord(
                compile_id=str(seen.compile_id),
                name=str(code.co_name),
                file=str(code.co_filename),
                line=code.co_firstlineno or 0,
                error=None if seen.fail_type is None else seen.fail_reason or seen.fail_type,
                error_place=_place(seen.fail_user_frame_filename, seen.fail_user_frame_lineno),
                recompile_reason=_bare(seen.recompile_reason),
                ops=seen.graph_op_count or 0,
            )
        )
    return tuple(records)


def _bare(reason: str | None) -> str | None:
    """The guard alone: Dynamo puts the id of the compilation it compares with in front, source and stack behind."""
    if reason is None:
        return None
    first = re.sub(r"^\d+/\d+: ", "", reason).partition("\nUser stack trace")[0]
    return re.sub(r"\s{2,}# .*", "", first, flags=re.DOTALL).strip()


def _place(file: str | None, line: int | None) -> tuple[str, int] | None:
    return None if file is None or line is None else (file, line)


def break_records() -> tuple[BreakRecord, ...]:
    """Every graph break since the last reset, in order."""
    no_way_on = iter(_no_way_on)
    return tuple(
        _record(seen, next(no_way_on, None) if seen.reason == "step_unsupported" else None)
        for seen in dynamo_utils.graph_break_reasons
        if seen.graph_break
    )


def _record(seen: Any, known: BreakRecord | None) -> BreakRecord:
    if known is not None:
        return known
    frames = tuple((f.filename, f.lineno or 0) for f in reversed(seen.user_stack))
    return BreakRecord(str(seen.reason), frames, rest_skipped=seen.reason == "step_unsupported")
