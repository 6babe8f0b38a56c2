"""What modules take and give in a step, and the gradients of it, for a comparison with the same step elsewhere.

Hooks on the model's modules and on the tensors they hand on. No dispatch mode: the ops that run, and the kernels that
are chosen, are those of a step nobody watches. It sees what crosses the border of a module; what happens inside of one
is known by what comes out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from smoketest.witness.compat import is_transformed
from smoketest.witness.digest import Digest, digest_of
from smoketest.witness.sites import Line

__all__ = ["Crossing", "Event", "Recorder", "Tensors"]

MOST_BYTES = 2**30
"""Values kept of one step; what comes after is not compared, and `Recorder.full` says so."""

Tensors = Callable[[Any], Iterator[Tensor]]
"""Finds the tensors in what a module takes or gives."""


class Crossing(NamedTuple):
    """A tensor at the border of a module.

    Attributes:
        module: qualified name; empty for the model itself.
        call: which call of the module in the step, from 0.
        role: whether the module takes or gives it.
        place: which of its tensors.
        is_gradient: the gradient of that tensor, instead of the tensor.
    """

    module: str
    call: int
    role: str
    place: int
    is_gradient: bool


@dataclass
class Event:
    """A tensor that was seen.

    Attributes:
        digest: of it.
        around: the module whose forward ran around the one that takes or gives it; None for the model itself.
        takers: modules that are given the same tensor, and the user's lines that called them.
        line: the user's line that called the module.
    """

    digest: Digest
    around: str | None
    takers: list[tuple[str, Line | None]] = field(default_factory=list)
    line: Line | None = None


class Recorder:
    """Records the tensors at the borders of a model's modules, in the order in which they come, while entered.

    A tensor that one module gives and others take is recorded once. Modules of TorchScript take no hooks and are left
    out.

    Args:
        model: whose modules.
        tensors: finds the tensors in what they take and give.
        line: the line that is running, asked when a tensor crosses; None where nobody wants to know.

    Attributes:
        events: by what crossed where.
        full: whether something was left out for its size.
        transformed: whether something was left out since it was within a transform of `torch.func`.
    """

    def __init__(self, model: nn.Module, tensors: Tensors, line: Callable[[], Line | None] | None = None) -> None:
        self._modules = {id(module): name for name, module in model.named_modules()}
        self._model = model
        self._tensors = tensors
        self._line = line
        self._hooks = ExitStack()
        self._stack: list[str] = []
        self._calls: Counter[str] = Counter()
        self._open: list[int] = []
        self._known: dict[tuple[int, int], Event | None] = {}
        self._alive: list[Tensor] = []  # so that no id is given away
        self._bytes = 0
        self.events: dict[Crossing, Event] = {}
        self.full = False
        self.transformed = False

    def __enter__(self) -> Self:
        for module in self._model.modules():
            if isinstance(module, torch.jit.ScriptModule):  # takes no hooks; what it gives, others take
                continue
            for handle in (
                module.register_forward_pre_hook(self._enter_module, with_kwargs=True),
                module.register_forward_hook(self._leave_module, always_call=True),
            ):
                self._hooks.callback(handle.remove)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hooks.close()
        self._known.clear()
        self._alive.clear()

    def _enter_module(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        name = self._modules[id(module)]
        call = self._calls[name]
        self._calls[name] += 1
        around = self._stack[-1] if self._stack else None
        for place, tensor in enumerate(self._tensors((args, dict(kwargs)))):
            self._see(Crossing(name, call, "takes", place, False), tensor, around)
        self._stack.append(name)
        self._open.append(call)

    def _leave_module(self, module: nn.Module, args: Any, output: Any) -> None:
        if not self._stack:
            return
        name, call = self._stack.pop(), self._open.pop()
        around = self._stack[-1] if self._stack else None
        for place, tensor in enumerate(self._tensors(output)):
            self._see(Crossing(name, call, "gives", place, False), tensor, around)

    def _see(self, crossing: Crossing, tensor: Tensor, around: str | None) -> None:
        key = id(tensor), -1 if tensor.is_inference() else tensor._version
        if key not in self._known:
            self._alive.append(tensor)
            self._known[key] = self._keep(crossing, tensor, around)
            self._await_gradient(crossing, tensor, around, self._known[key])
        event = self._known[key]
        if event is not None and crossing.role == "takes":
            event.takers.append((crossing.module, self._line() if self._line is not None else None))

    def _await_gradient(self, crossing: Crossing, tensor: Tensor, around: str | None, forward: Event | None) -> None:
        def keep(gradient: Tensor | None) -> None:
            if gradient is None:  # of what a double backward does not reach
                return
            self._keep(crossing._replace(is_gradient=True), gradient, around, forward)

        if tensor.requires_grad and forward is not None:
            tensor.register_hook(keep)  # type: ignore[no-untyped-call]

    def _keep(
        self, crossing: Crossing, tensor: Tensor, around: str | None, forward: Event | None = None
    ) -> Event | None:
        if is_transformed(tensor):
            self.transformed = True
            return None
        if self._bytes > MOST_BYTES:
            self.full = True
            return None
        digest = digest_of(tensor)
        if digest is None:
            return None
        self._bytes += digest.values.nbytes
        line = forward.line if forward is not None else self._line() if self._line is not None else None
        event = Event(digest, around, forward.takers if forward is not None else [], line)
        self.events.setdefault(crossing, event)
        return event
