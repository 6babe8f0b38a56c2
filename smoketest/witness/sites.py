"""Which line and which module an op belongs to, found while it runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial, wraps
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import Any, NamedTuple, Self

from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from smoketest.findings import SitePolicy
from smoketest.findings.report import Phase
from smoketest.witness.compat import (
    ENGINE,
    NO_SEQUENCE,
    current_node,
    has_forward_hooks,
    is_of_an_optimizer,
    next_sequence_number,
)
from smoketest.witness.context import Context

__all__ = ["ModuleStack", "Origin", "Origins", "StackWalker"]

Line = tuple[str, int]

_LATE = ("CopySlices",)
"""Nodes made after their op ran: for a write into a view, whose base gets a new history."""


class Origin(NamedTuple):
    """Where an op comes from: module (or optimizer class) and line, each None where there is none.

    Attributes:
        in_backward: whether autograd ran it.
        in_optimizer: whether an optimizer's ``step`` ran it.
    """

    module: str | None
    line: Line | None
    in_backward: bool = False
    in_optimizer: bool = False

    def phase(self, context: Context) -> Phase | None:
        """The runner's phase; inside a custom train_step, which has none, what the stack tells."""
        if context.phase is not None:
            return context.phase
        if self.in_backward:
            return "backward"
        return "optimizer" if self.in_optimizer else "forward"


class StackWalker:
    """Finds the user's line among the frames of the running thread, by the project's `SitePolicy`."""

    def __init__(self, policy: SitePolicy) -> None:
        self._rank_of_file = policy.rank
        self._library_of_file = cache(policy.library)
        self._ranks: dict[CodeType, int] = {ENGINE: -1}

    def line(self) -> Line | None:
        """The line; None where no frame is the user's or a library's.

        The innermost frame of the user's own wins, else the innermost of a library. Frames below the engine's entry
        called ``backward``; they are not where the op that runs comes from, so the walk ends there.
        """
        ranks = self._ranks
        library: Line | None = None
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            rank = ranks.get(code)
            if rank is None:
                rank = ranks[code] = self._rank_of_file(code.co_filename)
            if rank == 2:
                return code.co_filename, frame.f_lineno
            if rank == 1 and library is None:
                library = (code.co_filename, frame.f_lineno)
            elif rank == -1:
                break
            frame = frame.f_back
        return library

    def caller(self) -> Line | None:
        """The innermost line of the user's own code, which libraries were called from; None where none is running."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not ENGINE:
            file = frame.f_code.co_filename
            if self._rank_of_file(file) == 2 and self._library_of_file(file) is None:
                return file, frame.f_lineno
            frame = frame.f_back
        return None

    def optimizer_line(self) -> Line | None:
        """The line of one of PyTorch's optimizers that is running, where no line of the user's is further inside."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not ENGINE:
            file = frame.f_code.co_filename
            if self._rank_of_file(file) > 0:
                return None
            if is_of_an_optimizer(file):
                return file, frame.f_lineno
            frame = frame.f_back
        return None


class ModuleStack:
    """Names of the modules whose forward runs, per thread; and of the optimizer whose step does.

    Global hooks do it, so it costs something per module call: it is entered for traced steps only.

    Args:
        model: gives the qualified names. Its own name is its class; so is that of a module outside of it. None: every
            module is called by its class.

    Attributes:
        before_change: called before a module's forward begins and before it ends, on its thread.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        named = model.named_modules() if model is not None else ()
        self._names = {id(module): _encodable(name or type(module).__name__) for name, module in named}
        self._stacks = threading.local()
        self._hooks = ExitStack()
        self.parameters = _owners(model) if model is not None else {}
        self.before_change: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        for handle in (
            hooks.register_module_forward_pre_hook(self._push),
            hooks.register_module_forward_hook(self._pop, always_call=True),
            register_optimizer_step_pre_hook(self._push_optimizer),
            register_optimizer_step_post_hook(self._pop_optimizer),
        ):
            self._hooks.callback(handle.remove)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hooks.close()

    def innermost(self) -> tuple[str | None, bool]:
        """The innermost module (or optimizer class) on this thread, and whether it is an optimizer."""
        stack = self._stack()
        return stack[-1][:2] if stack else (None, False)

    def handover(self) -> Callable[[], None]:
        """For a thread that this one starts: called there, what runs in it belongs to the module that started it."""
        names = list(self._stack())

        def take_over() -> None:
            self._stacks.stack = names

        return take_over

    def _stack(self) -> list[tuple[str | None, bool, bool]]:
        stack: list[tuple[str | None, bool, bool]] | None = getattr(self._stacks, "stack", None)
        if stack is None:
            stack = self._stacks.stack = []
        return stack

    def _push(self, module: nn.Module, args: Any) -> None:
        self.before_change()
        late = has_forward_hooks(module)
        self._stack().append((self._names.get(id(module)) or type(module).__name__, False, late))
        if late:
            self._pop_after_its_hooks(module)

    def _pop(self, module: nn.Module, args: Any, output: Any) -> None:
        stack = self._stack()
        if stack and not stack[-1][2]:
            self.before_change()
            stack.pop()

    def _pop_after_its_hooks(self, module: nn.Module) -> None:
        """A module's own hooks run after the global ones, and belong to it: the last of them is ours, for this call."""
        stack = self._stack()
        depth = len(stack)

        def pop(module: nn.Module, args: Any, output: Any) -> None:
            if self._stack() is stack and len(stack) == depth:  # not of a call inside this one, nor in another thread
                handle.remove()
                self.before_change()
                stack.pop()

        handle = module.register_forward_hook(pop, always_call=True)

    def _push_optimizer(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """An optimizer's step begins. A closure that it is given is the user's forward and backward, and none of it."""
        self._stack().append((type(optimizer).__name__, True, False))
        first, *rest = args  # the optimizer itself
        return (
            (first, *(self._outside(value) for value in rest)),
            {name: self._outside(value) for name, value in kwargs.items()},
        )

    def _outside(self, closure: Any) -> Any:
        """`closure` made to run as if no optimizer called it; anything else as it is."""
        if not isinstance(closure, (FunctionType, MethodType, partial)):
            return closure

        @wraps(closure)
        def run(*args: Any, **kwargs: Any) -> Any:
            stack = self._stack()
            stack.append((None, False, False))
            try:
                return closure(*args, **kwargs)
            finally:
                stack.pop()

        return run

    def _pop_optimizer(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._pop_top()

    def _pop_top(self) -> None:
        if self._stack():
            self._stack().pop()


class Origins:
    """The origin of each op of a step, the ops of backward included.

    Autograd numbers its nodes. When an op that needs a gradient reaches a dispatch mode its node exists already; in
    backward the node that runs tells its number. So an op of backward comes from where the op with that number came
    from. Nodes that are made before it belong to it too: an in-place op makes its own and then clones its input, which
    is dispatched first; a custom function makes its own and then runs its forward, with no nodes. Only the node of a
    write into a view is made when the op is over, and it is known by its name. Where frames of the user's own are on
    the stack above autograd's engine (a checkpoint's recomputation, the backward of a custom function, a hook) they are
    the better answer.

    Numbers are counted per thread, and backward on a device runs on a thread of its own: a node made there (double
    backward) can have the number of one of the main thread's. The name of the op decides then.
    """

    def __init__(self, walker: StackWalker, modules: ModuleStack) -> None:
        self._walker = walker
        self._modules = modules
        self._users: dict[int, tuple[str | None, Line | None]] = {}
        self._threads = {threading.get_ident(): _Numbers(next_sequence_number())}
        modules.before_change = self._settle

    def of(self, op: str, needs_grad: bool) -> Origin:
        """The origin of `op`, which is about to run on this thread.

        Args:
            op: full overload name.
            needs_grad: whether autograd makes a node for it: grad mode is on and an argument requires grad.
        """
        origin = self._here()
        self._numbers(needs_grad).note(op, origin)
        return origin

    def caller(self) -> Line | None:
        """The innermost line of the user's own code that is running; None where there is none, as in backward."""
        return self._walker.caller()

    def optimizer_line(self) -> Line | None:
        """The line of the optimizer of PyTorch's that is running, of which `of` tells the caller; None without one."""
        return self._walker.optimizer_line()

    def _here(self) -> Origin:
        node = current_node()
        line = self._walker.line()
        module, in_optimizer = self._modules.innermost()
        origin = Origin(module, line, node is not None, in_optimizer)
        if node is None:
            return origin
        forward = self._of_node(node)
        return forward if line is None else origin._replace(module=module or forward.module)

    def _settle(self) -> None:
        """A module begins or ends: a node that no op claimed yet (a checkpoint's) was made in the one around it."""
        numbers = self._numbers(needs_grad=False)
        if numbers.unclaimed():
            numbers.claim("", self._here())

    def used(self, leaf: Tensor, origin: Origin) -> None:
        """A leaf that wants a gradient goes into an op, in forward or a recomputation: its gradient belongs there."""
        self._users[id(leaf)] = (origin.module, origin.line)

    def _of_node(self, node: Any) -> Origin:
        number: int = node._sequence_nr()
        if number == NO_SEQUENCE:
            leaf = id(getattr(node, "variable", None))
            module, line = self._users.get(leaf, (None, None))
            return Origin(self._modules.parameters.get(leaf) or module, line, in_backward=True)
        wanted = _plain(node.name())
        late = node.name().rpartition("::")[2] in _LATE
        candidates = [found for numbers in self._threads.values() if (found := numbers.find(number, late)) is not None]
        if not candidates:
            return Origin(None, None, in_backward=True)
        _, origin = next((found for found in candidates if found[0] == wanted), candidates[0])
        return origin._replace(in_backward=True, in_optimizer=False)

    def _numbers(self, needs_grad: bool) -> _Numbers:
        thread = threading.get_ident()
        numbers = self._threads.get(thread)
        if numbers is None:  # the node of the op that is about to run, if it has one, is numbered already
            numbers = self._threads[thread] = _Numbers(next_sequence_number() - needs_grad)
        return numbers


_Maker = tuple[str, Origin]
"""An op's name in plain form, empty where no op is known, and where it came from."""


class _Numbers:
    """Which op made which autograd node, of the nodes made on one thread."""

    def __init__(self, start: int) -> None:
        self._next = start
        self._made: dict[int, tuple[_Maker, _Maker | None]] = {}
        self._last: _Maker | None = None

    def note(self, op: str, origin: Origin) -> None:
        """`op` is about to run: the nodes made since the last call are its own, but for a late one of the last op."""
        name = _plain(op)
        self.claim(name, origin)
        self._last = (name, origin)

    def unclaimed(self) -> bool:
        """Whether nodes were made since the last call."""
        return self._next != next_sequence_number()

    def claim(self, name: str, origin: Origin) -> None:
        """The nodes made since the last call are of `origin`."""
        now = next_sequence_number()
        for number in range(self._next, now):
            self._made[number] = ((name, origin), self._last)
        self._next = now

    def find(self, number: int, late: bool) -> _Maker | None:
        """Who made a node: the op it was made before or, if it is a late one, the op it was made after."""
        if number == self._next:
            return self._last  # nothing ran after the last op
        before, after = self._made.get(number, (None, None))
        return after if late else before


@cache
def _plain(name: str) -> str:
    """``aten::mul.Tensor`` and ``MulBackward0`` in one form: ``mul``."""
    base = name.rpartition("::")[2].partition(".")[0].partition("Backward")[0]
    return base.replace("_", "").lower()


def _encodable(name: str) -> str:
    """Any string can name a module; one with lone surrogates fits into no message."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _owners(model: nn.Module) -> dict[int, str]:
    return {
        id(parameter): _encodable(name.rpartition(".")[0] or type(model).__name__)
        for name, parameter in model.named_parameters()
    }
