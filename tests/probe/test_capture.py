"""What torch.compile makes of a step, written down with lines and modules, and the model left as it was."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from smoketest.operators.decompositions import decomposition_table
from smoketest.probe.capture import Capture, capture

HERE = str(Path(__file__).resolve())


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.nn.functional.silu(layer(x))
        return self.drop(self.norm(x))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x * self.weight, x, x, is_causal=True)


class Printing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.weight
        torch._dynamo.graph_break()
        return x + 1


class Branching(Printing):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            if x.sum() > 0:
                x = x * self.weight
        return x


class Selecting(Printing):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight)[x > 0]


class Twice(Printing):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad((x * self.weight).sum(), x, create_graph=True)[0]


def captured(model: nn.Module, *batches: torch.Tensor, fullgraph: bool = False) -> Capture:
    def step(call: Callable[..., Any], index: int) -> None:
        call(batches[index]).sum().backward()

    return capture(model, step, steps=len(batches), fullgraph=fullgraph)


def line(cls: type, offset: int) -> tuple[str, int]:
    return (HERE, cls.forward.__code__.co_firstlineno + offset)  # type: ignore[attr-defined]


def test_forward_and_backward_graph_are_captured_with_lines_and_modules() -> None:
    seen = captured(Block(), torch.randn(3, 4))
    assert [(graph.id, graph.direction) for graph in seen.graphs] == [
        ("0.forward", "forward"),
        ("0.backward", "backward"),
    ]
    assert (seen.breaks, seen.skipped, seen.recompiles, seen.error) == ((), (), (), None)
    for graph in seen.graphs:
        products = [node.name for node in graph.spec.nodes if node.target in ("aten::addmm", "aten::mm")]
        assert {graph.origins[name].module for name in products} == {"layers.0", "layers.1"}
        assert {graph.origins[name].frames[0] for name in products} == {line(Block, 2)}


def test_every_node_that_calls_something_has_an_origin_in_the_model() -> None:
    for graph in captured(Block(), torch.randn(3, 4)).graphs:
        calls = [node for node in graph.spec.nodes if node.target not in ("placeholder", "output")]
        assert {node.name for node in calls} == set(graph.origins)
        stray = [node.target for node in calls if not graph.origins[node.name].frames]
        assert set(stray) <= {"aten::copy_"}  # the write-back of running statistics is AOTAutograd's own


def test_the_backends_decompositions_are_applied_and_the_ops_before_them_kept() -> None:
    forward = captured(Block(), torch.randn(3, 4)).graphs[0]
    names = {node.target for node in forward.spec.nodes}
    assert "aten::silu" not in names
    assert {node.name for node in forward.spec.nodes if node.target == "aten::sigmoid"} <= {
        name for name, origin in forward.origins.items() if origin.called_as == "aten::silu"
    }


def test_attention_is_taken_apart() -> None:
    for graph in captured(Attention(), torch.randn(2, 2, 5, 8)).graphs:
        assert not [node for node in graph.spec.nodes if "attention" in str(node.target)]


def test_a_graph_break_is_reported_at_its_line() -> None:
    seen = captured(Printing(), torch.randn(3, 4))
    assert len(seen.breaks) == 1
    assert seen.breaks[0].frames[0] == line(Printing, 2)
    assert seen.breaks[0].id == "GB0025"
    assert [graph.id for graph in seen.graphs] == ["0.forward", "1.forward", "1.backward", "0.backward"]


def test_a_break_under_fullgraph_ends_the_step_with_its_line() -> None:
    seen = captured(Printing(), torch.randn(3, 4), fullgraph=True)
    assert seen.error is not None
    assert (seen.error.type, seen.error.id, seen.error.eager_too) == ("Unsupported", "GB0025", False)
    assert seen.error.frames[0] == line(Printing, 2)


def test_a_skipped_frame_is_reported_although_it_leaves_no_graph() -> None:
    seen = captured(Branching(), torch.randn(3, 4))
    assert seen.graphs == ()
    assert [(frame.function, frame.frames[0]) for frame in seen.skipped] == [("forward", line(Branching, 2))]


def test_a_data_dependent_shape_breaks_the_graph() -> None:
    seen = captured(Selecting(), torch.randn(3, 4))
    assert [broken.frames[0] for broken in seen.breaks] == [line(Selecting, 1)]
    assert "dynamic" in seen.breaks[0].reason.lower()


def test_another_batch_size_is_a_recompile_with_its_guard() -> None:
    seen = captured(Block(), torch.randn(3, 4), torch.randn(3, 4), torch.randn(2, 4))
    assert len(seen.graphs) == 4
    assert [again.guard for again in seen.recompiles] == ["tensor 'x' size mismatch at index 0. expected 3, actual 2"]
    assert seen.recompiles[0].frames == (line(Block, 0),)


def test_what_the_model_raises_by_itself_is_told_from_what_compiling_raises() -> None:
    seen = captured(Block(), torch.randn(3, 7))
    assert seen.error is not None
    assert "7" in seen.error.message


def test_double_backward_is_refused_by_aot_autograd() -> None:
    def step(call: Callable[..., Any], index: int) -> None:
        x = torch.randn(3, 4, requires_grad=True)
        (first,) = torch.autograd.grad(call(x).sin().sum(), x, create_graph=True)
        first.sum().backward()

    seen = capture(Printing(), step, steps=1)
    assert seen.error is not None
    assert seen.error.eager_too is False
    assert "double backward" in seen.error.message


def test_the_model_and_the_random_state_are_as_before() -> None:
    model = Block()
    model.layers[0].weight.grad = before = torch.ones(4, 4)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    captured(model, torch.randn(3, 4), torch.randn(3, 4))
    assert model.layers[0].weight.grad is before
    assert model.layers[1].weight.grad is None
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    torch.randn(3, 4), torch.randn(3, 4)
    assert not torch.equal(random, torch.get_rng_state())


def test_the_step_computes_what_it_computes_without_compiling() -> None:
    model, x = Attention(), torch.randn(2, 2, 5, 8)
    gradients = []

    def step(call: Callable[..., Any], index: int) -> None:
        call(x).square().sum().backward()
        assert model.weight.grad is not None
        gradients.append(model.weight.grad.clone())

    step(model, 0)
    capture(model, step, steps=1)
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("name", ["aten::silu", "aten::embedding_dense_backward"])
def test_the_packaged_profiles_names_are_the_default(name: str) -> None:
    assert name in {op.name() for op in decomposition_table()}


def test_networks_that_a_step_calls_by_themselves_are_compiled_each_by_itself() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maker, self.critic = nn.Sequential(nn.Linear(2, 3), nn.Tanh()), nn.Linear(3, 1)

    def step(model: Any, index: int) -> None:
        model.critic(model.maker(torch.randn(4, 2))).mean().backward()

    pair = Pair()
    seen = capture(pair, step, steps=1)
    assert [graph.direction for graph in seen.graphs].count("forward") == 2
    assert {origin.module for graph in seen.graphs for origin in graph.origins.values()} >= {"maker.0", "critic"}
    assert pair.maker._compiled_call_impl is None
    assert pair.critic._compiled_call_impl is None
    assert all(parameter.grad is None for parameter in pair.parameters())


def test_a_model_that_its_owner_compiled_in_place_is_captured_all_the_same_and_stays_compiled() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    model.compile(backend="eager")
    theirs = model._compiled_call_impl

    def step(compiled: Callable[..., Any], index: int) -> None:
        compiled(torch.ones(2, 4)).sum().backward()

    seen = capture(model, step, steps=1)
    assert [graph.direction for graph in seen.graphs] == ["forward", "backward"]
    assert theirs is not None
    assert model._compiled_call_impl is theirs


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.done = True

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "done", False):
            raise RuntimeError(f"frozen {name}")
        super().__setattr__(name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()  # type: ignore[no-any-return]


def test_a_model_that_refuses_what_torch_compile_sets_on_it_is_told_at_its_line() -> None:
    seen = capture(Frozen(), lambda call, index: call(torch.ones(2, 4)).sum().backward(), steps=1, decompositions={})
    assert seen.error is not None
    assert seen.error.type == "RuntimeError"
    assert seen.error.message.startswith("it cannot wrap the model: frozen ")
    assert any(file == __file__ for file, _ in seen.error.frames)
    assert seen.graphs == ()


def test_settings_are_as_before_after_a_step_that_raises_too() -> None:
    def settings() -> tuple[Any, ...]:
        configs = (torch._dynamo.config, torch._functorch.config)
        flags = (
            torch.backends.cuda.math_sdp_enabled(),
            torch.backends.cuda.flash_sdp_enabled(),
            torch.is_grad_enabled(),
        )
        return *(config.get_config_copy() for config in configs), flags, torch.autograd.grad, torch.autograd.backward  # type: ignore[attr-defined]

    def step(call: Callable[..., Any], index: int) -> None:
        x = torch.randn(3, 4, requires_grad=True)
        (first,) = torch.autograd.grad(call(x).sin().sum(), x, create_graph=True)
        first.sum().backward()
        raise ValueError("of the step")

    before = settings()
    assert capture(Printing(), step, steps=2).error is not None
    assert settings() == before


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        torch._dynamo.graph_break()
        return self.inner(x).cos()


class Nest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Halves(), Halves()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.parts[0](x)
        return self.parts[1](x).exp()


def test_after_a_graph_break_ops_are_of_the_module_that_runs_and_not_of_the_model() -> None:
    seen = captured(Nest(), torch.ones(2, 4))
    of: dict[str, set[str | None]] = {}
    for graph in seen.graphs:
        for node in graph.spec.nodes:
            if node.name in graph.origins and graph.direction == "forward":
                of.setdefault(str(node.target), set()).add(graph.origins[node.name].module)
    assert of["aten::sin"] <= {"parts.0", "parts.1"}
    assert of["aten::cos"] <= {"parts.0", "parts.1"}
    assert of["aten::tanh"] <= {"parts.0.inner.1", "parts.1.inner.1"}
    assert of["aten::exp"] == {"Nest"}


def test_networks_beside_a_module_of_torchscript_are_found_all_the_same() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maker, self.critic = nn.Linear(2, 3), nn.Linear(3, 1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                self.scripted = torch.jit.script(nn.Tanh())

    def step(model: Any, index: int) -> None:
        model.critic(model.scripted(model.maker(torch.randn(4, 2)))).mean().backward()

    seen = capture(Pair(), step, steps=1)
    assert {origin.module for graph in seen.graphs for origin in graph.origins.values()} >= {"maker", "critic"}


def test_the_first_compile_of_a_second_network_is_no_recompile_of_the_first() -> None:
    model = nn.ModuleDict({"G": nn.Sequential(nn.Linear(4, 4), nn.Tanh()), "D": nn.Sequential(nn.Linear(4, 1))})

    def step(_: Callable[..., Any], index: int) -> None:
        model["D"](model["G"](torch.ones(3, 4))).sum().backward()

    seen = capture(model, step, steps=1)
    assert (len(seen.graphs), seen.recompiles) == (4, ())

    def scored(_: Callable[..., Any], index: int) -> None:
        model["D"](torch.ones(3, 4)).sum().backward()
        step(_, index)

    (again,) = capture(model, scored, steps=1).recompiles
    assert (again.function, "requires_grad mismatch" in again.guard) == ("D", True)
