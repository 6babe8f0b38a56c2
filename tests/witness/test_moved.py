"""What moving a model changes. The moves here are to PyTorch's meta device, which needs no other backend.

It makes a new Parameter of each, as some backends do, so that what is shared before is not shared afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from smoketest.findings import SitePolicy, merge
from smoketest.witness.moved import Move

HERE = SitePolicy(Path(__file__).parent)
CACHE = {"positions": torch.arange(4)}


def moved(model: nn.Module, **options: Any) -> Move:
    move = Move(model, "meta", HERE)
    with move:
        model.to("meta", **options)
    return move


def told(move: Move, use: dict[str, str] | None = None, error: str | None = None) -> list[str]:
    return [seen.message for seen in move.observations(use or {}, error)]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(8, 4), nn.Linear(4, 8)
        self.head.weight = self.emb.weight


def test_weights_that_are_no_longer_tied_are_named() -> None:
    model = Tied()
    move = moved(model)
    assert model.head.weight is not model.emb.weight
    assert told(move) == ["emb.weight, head.weight were one parameter before the move, and are 2 now"]
    (seen,) = move.observations({}, None)
    assert (seen.rule, seen.phase) == ("NST107", "setup")


def test_an_optimizer_made_before_the_move_trains_nothing() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    move = moved(model)
    move.look_at([optimizer])
    assert told(move) == ["SGD was made before the move and holds the old weight, bias: it trains nothing"]


def test_one_made_after_it_is_no_finding() -> None:
    model = nn.Linear(4, 4)
    move = moved(model)
    move.look_at([torch.optim.SGD(model.parameters(), lr=0.1)])
    assert told(move) == []


def test_narrowed_dtypes_are_told_of_weights_and_batches() -> None:
    move = moved(nn.Linear(4, 4, bias=False).double(), dtype=torch.float32)
    move.look_at_batch([torch.ones(2).double(), torch.ones(2)], [torch.ones(2), torch.ones(2)])
    assert told(move) == [
        "the move narrowed weight from float64 to float32; moving the batch narrowed tensors from float64 to float32"
    ]


class Stays(nn.Linear):
    def _apply(self, *args: Any, **kwargs: Any) -> Stays:
        return self


def test_parameters_that_do_not_move_are_told() -> None:
    assert told(moved(nn.Sequential(Stays(2, 2)))) == ["0.weight, 0.bias stayed on the CPU"]


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        shared = torch.ones(3)
        self.register_buffer("a", shared)
        self.register_buffer("b", shared)


def test_buffers_that_were_one_are_told_only_where_something_writes_them() -> None:
    model = Constant()
    move = moved(model)
    move.look_at_shared_buffers()
    assert told(move) == []
    model = Constant()
    move = moved(model)
    model.a.add_(1)
    move.look_at_shared_buffers()
    assert told(move) == ["the buffers a, b were one tensor, are several now, and the steps write them"]


@dataclass
class Tables:
    sine: Tensor = field(default_factory=lambda: torch.ones(4))


class Strays(nn.Module):
    table = torch.ones(2)

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.window = torch.hann_window(4)
        self.scales = [torch.tensor(0.5), torch.linspace(0, 1, 4)]
        self.tables = {"tables": Tables()}
        self.register_buffer("moves", torch.ones(4))
        self.computed = self.lin.weight * 2


def test_tensors_that_are_no_parameters_or_buffers_are_found_wherever_they_are() -> None:
    move = moved(Strays())
    assert {stray.name for stray in move.strays} == {
        "window",
        "scales[1]",
        "tables['tables'].sine",
        "Strays.table",
        "test_moved.py: CACHE['positions']",
    }
    source = Path(__file__).read_text().splitlines()
    lines = {stray.name: source[stray.line[1] - 1].strip() for stray in move.strays if stray.line is not None}
    assert lines["window"] == "self.window = torch.hann_window(4)"
    assert lines["scales[1]"] == "self.scales = [torch.tensor(0.5), torch.linspace(0, 1, 4)]"
    assert lines["test_moved.py: CACHE['positions']"] == 'CACHE = {"positions": torch.arange(4)}'


def test_a_tensor_left_behind_is_a_finding_where_it_meets_the_device() -> None:
    move = moved(Strays())
    assert told(move) == []
    assert told(move, {"window": "copied", "scales[1]": "alone"}) == []
    assert told(move, {"window": "mixed"}) == [
        "window stayed on the CPU: it is neither parameter nor buffer, and `.to()` moves no others"
    ]
    assert told(move, error="ValueError: no") == []
    assert len(told(move, error="RuntimeError: Expected all tensors to be on the same device")) == 5


class Unregistered(nn.Module):
    """Modules and parameters where PyTorch does not look for them."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(4, 4)
        self.heads = {"a": nn.BatchNorm1d(4)}
        self.scales = [nn.Parameter(torch.ones(2))]
        self.order = [self.trunk]


def test_what_a_plain_dict_or_list_keeps_from_being_registered_is_left_behind_and_told_as_that() -> None:
    move = moved(Unregistered())
    assert [stray.name for stray in move.strays] == [
        "heads['a'].weight",
        "heads['a'].bias",
        "heads['a'].running_mean",
        "heads['a'].running_var",
        "scales[0]",
        "test_moved.py: CACHE['positions']",
    ]
    heads, scales = move.observations(
        {"heads['a'].weight": "mixed", "heads['a'].bias": "mixed", "scales[0]": "mixed"}, None
    )
    assert heads.message == (
        "heads['a'].weight, heads['a'].bias stayed on the CPU: parameters that the model does not register, so that"
        " `.to()` does not move them, model.parameters() leaves them out of the optimizer, and no checkpoint holds them"
    )
    assert heads.site is not None
    assert heads.site.code == 'self.heads = {"a": nn.BatchNorm1d(4)}'
    assert (heads.remedy or "").startswith("Keep modules in nn.ModuleList or nn.ModuleDict")
    assert scales.message.startswith("scales[0] stayed on the CPU: parameters that the model does not register")


class Windowed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.window = torch.hann_window(4)


def test_every_module_that_left_a_tensor_at_a_line_is_named() -> None:
    move = moved(nn.ModuleDict({"left": Windowed(), "right": Windowed()}))
    (found,) = merge(move.observations({"left.window": "mixed", "right.window": "mixed"}, None))
    assert [module.pattern for module in found.modules] == ["left", "right"]
    assert found.calls_per_step is None
    assert found.message == "; ".join(
        f"{side}.window stayed on the CPU: it is neither parameter nor buffer, and `.to()` moves no others"
        for side in ("left", "right")
    )


def test_what_does_no_harm_is_said_in_one_sentence() -> None:
    move = moved(Strays())
    assert move.harmless({"window": "copied", "scales[1]": "mixed", "Strays.table": "alone"}) == (
        "copied to the device in every step: window; computed with on the CPU: Strays.table; not used in the traced"
        " step: tables['tables'].sine, test_moved.py: CACHE['positions']"
    )
    assert moved(nn.Linear(2, 2)).harmless({}) is None


def test_a_move_to_the_cpu_changes_nothing() -> None:
    move = Move(Tied(), "cpu", HERE)
    with move:
        move.model.to("cpu")
    move.look_at([torch.optim.SGD(move.model.parameters())])
    assert told(move) == []
    assert move.strays == []
