"""Every op of a step, those of backward too, comes from a line and a module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from smoketest.findings import SitePolicy
from smoketest.witness import compat
from smoketest.witness.context import Context
from smoketest.witness.dispatch import DispatchWitness, OpKey, signature_text
from smoketest.witness.sites import ModuleStack, Origins, StackWalker

HERE = Path(__file__)


def trace(model: nn.Module, step: Callable[[], Any], phase: Any = None) -> DispatchWitness:
    modules = ModuleStack(model)
    origins = Origins(StackWalker(SitePolicy(HERE.parent)), modules)
    witness = DispatchWitness(origins, Context(phase), "cpu", frozenset)
    with modules, witness:
        step()
    return witness


def rows(witness: DispatchWitness, op: str, phase: str | None = None) -> list[tuple[str | None, str | None, int]]:
    """(module, source text of the line, calls) of an op."""
    found = []
    for key, calls in witness.calls.items():
        if key.op == op and phase in (None, key.phase):
            found.append((key.module, text_of(key), calls.count))
    return sorted(found, key=str)


def text_of(key: OpKey) -> str | None:
    return Path(key.line[0]).read_text().splitlines()[key.line[1] - 1].strip() if key.line else None


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x.atan2(self.by)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Scale(), Scale()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.exp()


def test_ops_of_backward_come_from_the_line_and_module_of_their_forward() -> None:
    model = Two()
    witness = trace(model, lambda: model(torch.ones(3)).sum().backward())
    assert rows(witness, "aten::atan2") == [
        ("layers.0", "return x.atan2(self.by)", 1),
        ("layers.1", "return x.atan2(self.by)", 1),
    ]
    assert rows(witness, "aten::exp", "forward") == [("Two", "return x.exp()", 1)]
    backward = [key for key in witness.calls if key.phase == "backward" and key.op == "aten::reciprocal"]
    assert sorted((key.module, text_of(key)) for key in backward) == [
        ("layers.0", "return x.atan2(self.by)"),
        ("layers.1", "return x.atan2(self.by)"),
    ]


def test_an_op_without_gradient_after_a_write_into_a_view_does_not_take_its_node() -> None:
    model = nn.Linear(3, 3)

    def step() -> None:
        h = model(torch.ones(2, 3))
        h[:, :1] = h[:, 1:2].tanh()
        mask = torch.zeros(3) > 1
        (h.sum() + mask.sum()).backward()

    witness = trace(model, step)
    lines = {text_of(key) for key in witness.calls if key.phase == "backward" and key.op == "aten::as_strided"}
    assert "mask = torch.zeros(3) > 1" not in lines
    tanh = [text_of(key) for key in witness.calls if key.op == "aten::tanh_backward"]
    assert tanh == ["h[:, :1] = h[:, 1:2].tanh()"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoints_recomputation_is_backward_at_the_forward_line(reentrant: bool) -> None:
    model = Two()
    x = torch.ones(3, requires_grad=True)

    def step() -> None:
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()

    witness = trace(model, step)
    for phase in ("forward", "backward"):
        assert rows(witness, "aten::atan2", phase) == [
            ("layers.0", "return x.atan2(self.by)", 1),
            ("layers.1", "return x.atan2(self.by)", 1),
        ]
    backward = {(key.module, text_of(key)) for key in witness.calls if key.op == "aten::reciprocal"}
    assert backward == {("layers.0", "return x.atan2(self.by)"), ("layers.1", "return x.atan2(self.by)")}


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.pow(3)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * 3 * x.square()


class Cubes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Cube.apply(x)  # type: ignore[no-any-return, no-untyped-call]


def test_a_custom_function_has_its_own_backward_line_and_the_module_of_its_forward() -> None:
    model = nn.Sequential(Cubes())
    x = torch.ones(3, requires_grad=True)
    witness = trace(model, lambda: model(x).sum().backward())
    assert [
        (key.module, text_of(key), key.phase) for key in witness.calls if "square" in key.op or "pow" in key.op
    ] == [
        ("0", "return x.pow(3)", "forward"),
        ("0", "return grad * 3 * x.square()", "backward"),
    ]


def test_a_hooks_ops_are_at_the_hooks_line() -> None:
    model = Two()
    x = torch.ones(3, requires_grad=True)

    def step() -> None:
        y = model(x)
        y.register_hook(lambda grad: grad.sinh())  # the hook
        y.sum().backward()

    witness = trace(model, step)
    assert [text_of(key) for key in witness.calls if key.op == "aten::sinh"] == [
        "y.register_hook(lambda grad: grad.sinh())  # the hook"
    ]


def test_accumulated_gradients_belong_to_the_module_and_line_that_use_the_parameter() -> None:
    model = Two()

    def step() -> None:
        for _ in range(2):
            model(torch.ones(3)).sum().backward()

    witness = trace(model, step)
    adds = [
        (key.module, text_of(key))
        for key in witness.calls
        if key.op.startswith("aten::add") and key.phase == "backward"
    ]
    assert ("layers.0", "return x.atan2(self.by)") in adds
    assert ("layers.1", "return x.atan2(self.by)") in adds


def test_double_backward_is_attributed_to_the_first_forward() -> None:
    model = Two()
    x = torch.full((3,), 0.5, requires_grad=True)

    def step() -> None:
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        grad.pow(2).sum().backward()

    witness = trace(model, step)
    backward = [key for key in witness.calls if key.phase == "backward" and key.op == "aten::reciprocal"]
    assert {text_of(key) for key in backward} == {"return x.atan2(self.by)"}
    assert {key.module for key in backward} == {"layers.0", "layers.1"}


def test_an_optimizers_ops_carry_its_class_and_no_line_of_ours() -> None:
    model = Two()

    class Custom(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for parameter in model.parameters():
                parameter.grad = parameter.grad.sinh()  # type: ignore[union-attr]
            return super().step(closure)

    optimizer = Custom(model.parameters(), lr=0.1)

    def step() -> None:
        model(torch.ones(3)).sum().backward()
        optimizer.step()

    witness = trace(model, step)
    assert rows(witness, "aten::sinh", "optimizer") == [
        ("Custom", "parameter.grad = parameter.grad.sinh()  # type: ignore[union-attr]", 2)
    ]
    updates = [key for key in witness.calls if key.op == "aten::add_.Tensor" and key.phase == "optimizer"]
    assert {(key.module, text_of(key)) for key in updates} == {("Custom", "return super().step(closure)")}


def test_a_module_outside_the_model_goes_by_its_class() -> None:
    model, loss = nn.Linear(2, 2), nn.MSELoss()
    witness = trace(model, lambda: loss(model(torch.ones(1, 2)), torch.ones(1, 2)))
    assert [key.module for key in witness.calls if key.op == "aten::mse_loss"] == ["MSELoss"]


def test_module_names_survive_a_forward_that_raises() -> None:
    class Raising(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError

    class Catching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Raising()

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.inner(x)  # type: ignore[no-any-return]
            except ValueError:
                return x.sinh()

    model = nn.Sequential(Catching())
    witness = trace(model, lambda: model(torch.ones(1)))
    assert rows(witness, "aten::sinh") == [("0", "return x.sinh()", 1)]


def test_nothing_is_left_behind() -> None:
    from torch.nn.modules import module

    model = Two()
    trace(model, lambda: model(torch.ones(3)))
    assert not module._global_forward_hooks
    assert not module._global_forward_pre_hooks


def test_the_op_that_raised_is_known_by_name_module_and_line() -> None:
    model = nn.Linear(2, 2)
    modules = ModuleStack(model)
    origins = Origins(StackWalker(SitePolicy(HERE.parent)), modules)
    witness = DispatchWitness(origins, Context("forward"), "cpu", frozenset)
    with pytest.raises(RuntimeError), modules, witness:
        model(torch.ones(1, 3))
    assert witness.failed is not None
    assert witness.failed.op == "aten::addmm"
    assert witness.failed.module == "Linear"
    assert witness.failed.line is not None
    assert witness.failed.line[0] == inspect.getsourcefile(test_the_op_that_raised_is_known_by_name_module_and_line)


def test_every_call_is_counted_with_shapes_and_bytes() -> None:
    model = nn.Linear(4, 2)
    names = iter([frozenset[str](), frozenset({"aten::addmm.out"})] + [frozenset[str]()] * 99)
    modules = ModuleStack(model)
    origins = Origins(StackWalker(SitePolicy(HERE.parent)), modules)
    witness = DispatchWitness(origins, Context("forward"), "cpu", lambda: next(names))
    with torch.no_grad():
        model.weight.t()  # outside
        bias = model.bias
        with modules, witness:
            torch.addmm(bias, torch.ones(3, 4), torch.ones(4, 2))
    assert [(key.op, calls.count) for key, calls in witness.calls.items()] == [
        ("aten::ones", 1),
        ("aten::ones", 1),
        ("aten::addmm", 1),
    ]
    (ones,) = [key for key in witness.calls if key.fell_back]
    assert ones.op == "aten::ones"
    assert sum(calls.bytes for calls in witness.calls.values()) == 3 * 4 * 4
    (addmm,) = [calls for key, calls in witness.calls.items() if key.op == "aten::addmm"]
    assert [signature_text(signature) for signature in addmm.signatures] == ["f32[2], f32[3, 4], f32[4, 2]"]


def test_the_private_api_behaves_as_the_witnesses_need() -> None:
    """A drift canary: autograd numbers nodes one by one, and tells the number of the one that runs."""
    x = torch.ones(1, requires_grad=True)
    before = compat.next_sequence_number()
    y = x.exp()
    assert compat.next_sequence_number() == before + 1
    assert y.grad_fn._sequence_nr() == before  # type: ignore[union-attr]
    seen: list[Any] = []
    frames: list[bool] = []

    def look(grad: Tensor) -> None:
        seen.append(compat.current_node())
        frame = inspect.currentframe()
        while frame is not None:
            frames.append(frame.f_code is compat.ENGINE)
            frame = frame.f_back

    y.register_hook(look)
    y.backward()
    assert any(frames), "backward enters the engine through the function that ends the stack walk"
    assert compat.current_node() is None
    accumulate = y.grad_fn.next_functions[0][0]  # type: ignore[union-attr]
    assert accumulate._sequence_nr() == compat.NO_SEQUENCE  # type: ignore[union-attr]
    assert accumulate.variable is x  # type: ignore[union-attr]
    assert compat.has_device_kernel("aten::no_such_op") is False


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Scale()

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x) + 2
        kept = x * 1
        x.lgamma_()
        twice = kept * 2
        return x + twice


def test_the_backward_of_an_in_place_op_is_at_its_own_line() -> None:
    model = InPlace()
    witness = trace(model, lambda: model(torch.ones(3)).sum().backward())
    assert rows(witness, "aten::lgamma_") == [("InPlace", "x.lgamma_()", 1)]
    assert rows(witness, "aten::digamma", "backward") == [("InPlace", "x.lgamma_()", 1)]
    assert rows(witness, "aten::reciprocal", "backward") == [("inner", "return x.atan2(self.by)", 1)]


def test_an_in_place_op_on_a_view_has_its_backward_at_its_own_line() -> None:
    model = Scale()

    def step() -> None:
        h = model(torch.ones(2, 3)) + 2
        before = h.exp()
        h[:, 0].lgamma_()
        after = h > 1
        (before.sum() + h.sum() + after.sum()).backward()

    witness = trace(model, step)
    assert [text_of(key) for key in witness.calls if key.op == "aten::digamma"] == ["h[:, 0].lgamma_()"]


class Around(nn.Module):
    """A custom function or a checkpoint between two modules of its own."""

    def __init__(self, inside: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.before, self.inner, self.after = Scale(), Scale(), Scale()
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        x = self.inside(self.inner, x)
        return self.after(x)  # type: ignore[no-any-return]


def test_a_custom_function_after_a_module_is_in_the_module_that_applies_it() -> None:
    model = nn.Sequential(Around(lambda inner, x: Cube.apply(x)))  # type: ignore[no-any-return, no-untyped-call]
    witness = trace(model, lambda: model(torch.ones(3)).sum().backward())
    assert rows(witness, "aten::pow.Tensor_Scalar", "forward") == [("0", "return x.pow(3)", 1)]
    squares = [key for key in witness.calls if key.phase == "backward" and text_of(key) and "square" in text_of(key)]
    assert {key.module for key in squares} == {"0"}


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_recomputes_is_in_the_module_that_checkpoints(reentrant: bool) -> None:
    def inside(inner: nn.Module, x: Tensor) -> Tensor:
        def recomputed(x: Tensor) -> Tensor:
            return inner(x).sinh().sin()  # type: ignore[no-any-return]

        return checkpoint(recomputed, x, use_reentrant=reentrant)  # type: ignore[no-any-return]

    model = nn.Sequential(Around(inside))
    witness = trace(model, lambda: model(torch.ones(3)).sum().backward())
    line = "return inner(x).sinh().sin()  # type: ignore[no-any-return]"
    assert rows(witness, "aten::sinh", "forward") == [("0", line, 1)]
    assert rows(witness, "aten::sinh", "backward") == [("0", line, 1)]
    assert rows(witness, "aten::cosh", "backward") == [("0", line, 1)]
    atan2 = [module for module, _, _ in rows(witness, "aten::atan2", "backward")]
    assert atan2 == ["0.inner"]


@torch.library.custom_op("smoketest_tests::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    return x.pow(3)


cube.register_autograd(lambda ctx, grad: grad.sinh())


def test_a_custom_op_has_the_module_that_calls_it_in_backward() -> None:
    model = nn.Sequential(Around(lambda inner, x: cube(x)))
    witness = trace(model, lambda: model(torch.ones(3)).sum().backward())
    assert [(module, calls) for module, _, calls in rows(witness, "aten::sinh", "backward")] == [("0", 1)]


def test_what_falls_back_while_a_batch_is_made_is_of_the_setup() -> None:
    names = iter([frozenset({"aten::lgamma.out"})] + [frozenset[str]()] * 9)
    modules = ModuleStack()
    context = Context("setup")
    witness = DispatchWitness(
        Origins(StackWalker(SitePolicy(HERE.parent)), modules), context, "cpu", lambda: next(names)
    )
    with modules, witness:
        batch = torch.lgamma(torch.ones(1))
        context.phase = "forward"
        batch.exp()
    assert witness.strays == {("aten::lgamma.out", "setup")}
    assert [key.op for key in witness.calls] == ["aten::exp"]
