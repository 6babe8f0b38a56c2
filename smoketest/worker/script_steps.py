"""A script that is not to be changed: run as a program, its optimizer steps counted, stopped after some of them."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from smoketest.errors import UserCodeError
from smoketest.findings.report import Phase

__all__ = ["RootCalls", "StepListener", "Steps", "Stopped", "run_file"]


class Stopped(BaseException):
    """Enough steps were seen. Not an `Exception`, so that a script's own handlers let it pass; ``finally`` runs."""


class StepListener(Protocol):
    """Told what a script does."""

    def entering(self, phase: Phase) -> None:
        """A phase begins, and the one before is over."""

    def backward_of(self, losses: Sequence[Tensor]) -> None:
        """``backward`` is about to be called on these."""

    def updating(self, optimizer: Optimizer) -> None:
        """An optimizer is about to step."""

    def step_over(self) -> bool:
        """A step of the script is over; whether it is to be stopped."""


class Steps:
    """Tells a listener of a script's steps, by PyTorch's global optimizer hooks.

    A step ends where the optimizer that stepped first has stepped: with several (a GAN's), the others' steps belong to
    it, in whatever order they come. An optimizer that is no `torch.optim.Optimizer` is not seen.
    """

    def __init__(self, listener: StepListener) -> None:
        self._listener = listener
        self._entered = ExitStack()
        self._first: int | None = None
        self._process = os.getpid()
        self._depth = 0  # of optimizers whose steps call others' (wrappers)
        self._enough = False

    def __enter__(self) -> Self:
        for handle in (register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)):
            self._entered.callback(handle.remove)
        original = torch.autograd.backward
        torch.autograd.backward = self._backward(original)
        self._entered.callback(setattr, torch.autograd, "backward", original)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.close()

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if os.getpid() != self._process:
            return  # a process that the script forked
        if self._enough:
            raise Stopped  # a bare except of the script's swallowed the first
        self._depth += 1
        self._first = id(optimizer) if self._first is None else self._first
        self._listener.updating(optimizer)
        if self._depth == 1:
            self._listener.entering("optimizer")

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if os.getpid() != self._process:
            return
        self._depth = max(0, self._depth - 1)
        if self._depth == 0:
            self._listener.entering("forward")
        if id(optimizer) == self._first and self._listener.step_over():
            self._enough = True
            raise Stopped

    def _backward(self, original: Callable[..., None]) -> Callable[..., None]:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if self._enough or os.getpid() != self._process:
                original(tensors, *args, **kwargs)
                return
            inside_optimizer = self._depth > 0  # a closure's
            self._listener.backward_of([tensors] if isinstance(tensors, Tensor) else list(tensors))
            self._listener.entering("backward")
            original(tensors, *args, **kwargs)
            self._listener.entering("optimizer" if inside_optimizer else "forward")

        return backward


class RootCalls:
    """The outermost modules that are called with gradients, and what they were first called with.

    Args:
        first: called before the very first of them.

    Attributes:
        calls: module, arguments and named ones, by the module's identity.
    """

    def __init__(self, first: Callable[[], None] = lambda: None) -> None:
        self._first = first
        self.calls: dict[int, tuple[nn.Module, Any, Any]] = {}
        self._depth = 0
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        for handle in (
            hooks.register_module_forward_pre_hook(self._push),
            hooks.register_module_forward_hook(self._pop, always_call=True),
        ):
            self._entered.callback(handle.remove)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.close()

    def _push(self, module: nn.Module, args: Any) -> None:
        if self._depth == 0 and torch.is_grad_enabled() and id(module) not in self.calls:
            if not self.calls:
                self._first()
            self.calls[id(module)] = (module, args, {})
        self._depth += 1

    def _pop(self, module: nn.Module, args: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)

    def trained_by(self, optimizers: Sequence[Optimizer]) -> list[nn.Module]:
        """Those that hold a parameter of one of the optimizers."""
        held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
        return [model for model, _, _ in self.calls.values() if any(id(p) in held for p in model.parameters())]


def run_file(path: Path, arguments: Sequence[str]) -> None:
    """Run a script as ``python path arguments`` does; what it raises passes, but for an exit without an error.

    Raises:
        UserCodeError: it ends with an exit code that tells of an error.
    """
    with _as_program(path, arguments):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise UserCodeError(
                    f"the script ended by itself with exit code {ended.code}",
                    hint="run it without smoketest first; what it printed is in log/ beside the report",
                ) from ended


@contextmanager
def _as_program(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    argv, folders = sys.argv, list(sys.path)
    sys.argv = [str(path), *arguments]
    sys.path[0:1] = [str(path.parent)]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, folders
