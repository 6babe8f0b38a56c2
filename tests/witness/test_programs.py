"""Programs that are not a plain forward and backward: threads, torch.func, hooks, shared modules and weights."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from smoketest.findings import SitePolicy
from smoketest.witness.context import Context
from smoketest.witness.dispatch import DispatchWitness
from smoketest.witness.sites import ModuleStack, Origins, StackWalker
from smoketest.witness.threads import FollowThreads

HERE = Path(__file__)
Rows = list[tuple[str | None, str | None, int]]


def trace(model: nn.Module, step: Callable[[], Any]) -> DispatchWitness:
    modules = ModuleStack(model)
    witness = DispatchWitness(Origins(StackWalker(SitePolicy(HERE.parent)), modules), Context(None), "cpu", frozenset)
    with modules, FollowThreads(witness, modules), witness:
        step()
    return witness


def rows(witness: DispatchWitness, op: str, phase: str) -> Rows:
    """(module, what stands before a comment in the line, calls) of an op in a phase, sorted."""
    source = HERE.read_text().splitlines()
    found: Rows = []
    for key, calls in witness.calls.items():
        if key.op == op and key.phase == phase:
            line = source[key.line[1] - 1].partition("  #")[0].strip() if key.line else None
            found.append((key.module, line, calls.count))
    return sorted(found, key=str)


class Angle(nn.Module):
    """`atan2`, whose backward calls `reciprocal` once."""

    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x.atan2(self.by)


ANGLE = "return x.atan2(self.by)"


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Angle(), Angle()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).exp()  # type: ignore[no-any-return]


BOTH: Rows = [("first", ANGLE, 1), ("second", ANGLE, 1)]


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "run" not in vars(thread)


def test_a_backward_in_another_thread_has_line_and_module_of_the_forward() -> None:
    model = Two()
    witness = trace(model, lambda: in_thread(model(torch.ones(3)).sum().backward))
    assert rows(witness, "aten::reciprocal", "backward") == BOTH


def test_a_forward_in_a_thread_belongs_to_the_module_that_starts_it() -> None:
    class Threaded(Two):
        def forward(self, x: Tensor) -> Tensor:
            made: list[Tensor] = []
            in_thread(lambda: made.append(self.first(x).sinh()))  # here
            return self.second(made[0])  # type: ignore[no-any-return]

    model = nn.Sequential(Threaded())
    witness = trace(model, lambda: model(torch.ones(3)).sum().backward())
    assert rows(witness, "aten::sinh", "forward") == [("0", "in_thread(lambda: made.append(self.first(x).sinh()))", 1)]
    assert rows(witness, "aten::cosh", "backward") == [("0", "in_thread(lambda: made.append(self.first(x).sinh()))", 1)]
    assert [module for module, _, _ in rows(witness, "aten::reciprocal", "backward")] == ["0.first", "0.second"]


def test_a_thread_class_of_the_users_own_is_followed_and_an_exception_in_it_stays_its_own() -> None:
    model, raised = Two(), []

    class Runs(threading.Thread):
        def run(self) -> None:
            model(torch.ones(3)).sum().backward()
            try:
                torch.ones(2) + torch.ones(3)
            except RuntimeError as error:
                raised.append(type(error))

    def step() -> None:
        thread = Runs()
        thread.start()
        thread.join()

    start = threading.Thread.start
    witness = trace(model, step)
    assert raised == [RuntimeError]
    assert rows(witness, "aten::reciprocal", "backward") == BOTH
    assert threading.Thread.start is start


def test_a_thread_that_outlives_the_step_is_told_of_no_longer() -> None:
    model, go = Two(), threading.Event()

    def late() -> None:
        go.wait()
        torch.ones(1).sinh()

    threads: list[threading.Thread] = []

    def step() -> None:
        threads.append(threading.Thread(target=late))
        threads[0].start()

    witness = trace(model, step)
    go.set()
    threads[0].join()
    assert rows(witness, "aten::sinh", "forward") == []


def test_calls_under_torch_func_have_line_and_module() -> None:
    model = Two()
    parameters = dict(model.named_parameters())

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        made: Tensor = torch.func.functional_call(model, parameters, (x,))
        return made.sum()

    witness = trace(model, lambda: torch.func.grad(loss)(parameters, torch.ones(3)))
    assert rows(witness, "aten::atan2", "forward") == BOTH
    # `grad` runs its backward inside the call, which is a part of the user's forward.
    backward = [module for key in witness.calls if key.op == "aten::reciprocal" for module in [key.module]]
    assert sorted(backward, key=str) == ["first", "second"]

    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    witness = trace(model, lambda: per_sample(parameters, torch.ones(5, 3)))
    assert rows(witness, "aten::atan2", "forward") == BOTH
    witness = trace(model, lambda: torch.func.jacrev(lambda x: model(x))(torch.ones(3)))
    assert rows(witness, "aten::atan2", "forward") == BOTH


def test_a_module_that_calls_itself_and_one_used_twice_keep_their_names() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Angle()

        def forward(self, x: Tensor, depth: int = 2) -> Tensor:
            x = self.inner(x)
            if depth:
                x = self(x, depth - 1)
            return x.sinh()

    model = nn.Sequential(Again())
    witness = trace(model, lambda: model(torch.ones(3)).sum().backward())
    assert rows(witness, "aten::atan2", "forward") == [("0.inner", ANGLE, 3)]
    assert rows(witness, "aten::reciprocal", "backward") == [("0.inner", ANGLE, 3)]
    assert rows(witness, "aten::sinh", "forward") == [("0", "return x.sinh()", 3)]
    assert rows(witness, "aten::cosh", "backward") == [("0", "return x.sinh()", 3)]


def test_a_tied_weights_gradient_is_of_the_modules_that_use_it() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids)).sinh()  # type: ignore[no-any-return]

    model = Tied()
    witness = trace(model, lambda: model(torch.arange(4)).sum().backward())
    line = "return self.head(self.embed(ids)).sinh()"
    assert rows(witness, "aten::embedding_dense_backward", "backward") == [("embed", line, 1)]
    assert {(module, text) for module, text, _ in rows(witness, "aten::mm", "backward")} == {("head", line)}
    (added,) = rows(witness, "aten::add.Tensor", "backward")  # the two gradients of the one weight
    assert added[0] in ("embed", "head")
    assert added[1] == line


def test_what_hooks_call_is_at_the_hooks_line_in_the_module_that_they_hang_on() -> None:
    model = Two()

    def forward_hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return output.sinh()  # of forward

    def pre_hook(module: nn.Module, args: Any) -> Any:
        return (args[0].tan(),)  # before forward

    def full_backward_hook(module: nn.Module, grad_input: Any, grad_output: Any) -> Any:
        return (grad_input[0].asinh(),)  # of backward

    def accumulated(parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.acosh_()  # on the gradient

    model.first.register_forward_pre_hook(pre_hook)
    model.first.register_forward_hook(forward_hook)
    model.first.register_full_backward_hook(full_backward_hook)
    model.second.by.register_post_accumulate_grad_hook(accumulated)
    x = torch.ones(3, requires_grad=True)
    witness = trace(model, lambda: model(x).sum().backward())
    assert rows(witness, "aten::tan", "forward") == [("first", "return (args[0].tan(),)", 1)]
    assert rows(witness, "aten::sinh", "forward") == [("first", "return output.sinh()", 1)]
    assert rows(witness, "aten::cosh", "backward") == [("first", "return output.sinh()", 1)]
    assert [(text, calls) for _, text, calls in rows(witness, "aten::asinh", "backward")] == [
        ("return (grad_input[0].asinh(),)", 1)
    ]
    assert rows(witness, "aten::acosh_", "backward") == [("second", "parameter.grad.acosh_()", 1)]


def test_a_module_with_a_hook_that_calls_itself_or_raises_keeps_its_name_and_its_hooks() -> None:
    class Again(nn.Module):
        def forward(self, x: Tensor, depth: int = 2) -> Tensor:
            if depth == 0 and x.dim() == 2:
                raise ValueError
            return self(x, depth - 1).sinh() if depth else x  # type: ignore[no-any-return]

    class Catches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.again = Again()

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.again(x)  # type: ignore[no-any-return]
            except ValueError:
                return x.cosh()

    model = Catches()
    model.again.register_forward_hook(lambda module, args, output: output.tan())  # after each
    one = trace(model, lambda: model(torch.ones(3)))
    assert rows(one, "aten::sinh", "forward") == [
        ("again", "return self(x, depth - 1).sinh() if depth else x", 2),
    ]
    assert [(module, calls) for module, _, calls in rows(one, "aten::tan", "forward")] == [("again", 3)]
    two = trace(model, lambda: model(torch.ones(3, 3)))
    assert rows(two, "aten::cosh", "forward") == [("Catches", "return x.cosh()", 1)]
    assert len(model.again._forward_hooks) == 1


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_inside_a_thread_has_line_and_module(reentrant: bool) -> None:
    model = Two()
    x = torch.ones(3, requires_grad=True)

    def work() -> None:
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()

    witness = trace(model, lambda: in_thread(work))
    assert rows(witness, "aten::atan2", "forward") == BOTH
    assert rows(witness, "aten::atan2", "backward") == BOTH
    assert rows(witness, "aten::reciprocal", "backward") == BOTH
