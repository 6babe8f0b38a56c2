"""Sizes of models that are not built for real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from smoketest.config.models import Check
from smoketest.errors import UserCodeError
from smoketest.workload.build import build_model, optimizer_over
from smoketest.workload.meta import Layers, layers, sizes_of, sizes_on_meta

LLAMA_70B = {
    "class": "transformers:LlamaConfig", "num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128_256,
}  # fmt: skip
LAYER = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192
"""Parameters of one of its layers: queries and outputs, keys and values of 8 of 64 heads, the MLP, two norms."""
EMBEDDINGS = 2 * 128_256 * 8192 + 8192

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, depth=3, width=64):
        super().__init__()
        {first}
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 8)
        self.tied = self.head.weight
        self.register_buffer("scale", torch.ones(width, dtype=torch.float64))
        self.frozen = nn.Parameter(torch.zeros(10), requires_grad=False)

def make_model():
    return Net()
"""


def check(target: str, config: dict[str, Any] | None = None, **parts: Any) -> Check:
    model = {"target": target, "config": config} | parts.pop("model", {})
    return Check.model_validate({"name": "c", "model": model, **parts})


def own(folder: Path, first: str = "pass", name: str = "net", **parts: Any) -> Check:
    (folder / f"{name}.py").write_text(NET.format(first=first))
    return check(f"{folder / name}.py:Net", **parts)


def test_a_llama_of_70_billion_parameters_is_counted_to_the_last_one() -> None:
    sizes = sizes_on_meta(check("transformers:LlamaForCausalLM", LLAMA_70B, optimizer={"name": "AdamW"}))
    count = 80 * LAYER + EMBEDDINGS
    assert count == 70_553_706_496
    assert sizes.parameters == count
    assert sizes.parameter_bytes == sizes.gradient_bytes == 4 * count
    tensors = 80 * 9 + 3
    assert sizes.optimizer_bytes == 8 * count + 4 * tensors  # two moments, and each parameter's step counter


def test_its_layers_tell_how_many_would_fit() -> None:
    assert layers(check("transformers:LlamaForCausalLM", LLAMA_70B, optimizer={"name": "SGD", "lr": 0.1})) == Layers(
        key="model.config.num_hidden_layers", now=80,
        base=(4 * EMBEDDINGS + 512, 8 * EMBEDDINGS + 512), each=(4 * LAYER, 8 * LAYER),
    )  # fmt: skip


def test_tied_weights_count_once_frozen_ones_have_no_gradient_and_buffers_their_own_dtype(tmp_path: Path) -> None:
    sizes = sizes_on_meta(own(tmp_path, optimizer={"name": "SGD", "lr": 0.1, "momentum": 0.9}))
    trained = 3 * (64 * 64 + 64) + 64 * 8 + 8
    assert sizes.parameters == trained + 10
    assert sizes.gradient_bytes == 4 * trained
    assert sizes.optimizer_bytes == 4 * trained
    assert sizes.buffer_bytes == 8 * 64
    assert sizes.optimizer == "SGD"


def test_the_dtype_of_the_check_counts(tmp_path: Path) -> None:
    check = own(tmp_path, name="half", model={"dtype": "bfloat16"}, optimizer={"name": "SGD", "lr": 0.1})
    sizes = sizes_on_meta(check)
    assert sizes.parameter_bytes == 2 * sizes.parameters
    assert sizes.optimizer_bytes == 0


@pytest.mark.parametrize(
    "optimizer",
    [
        {"name": "AdamW", "lr": 1e-3, "amsgrad": True},
        {"name": "AdamW", "lr": 1e-3, "fused": True},  # refuses the meta device
        {"name": "Adam", "lr": 1e-3, "foreach": True},
        {"name": "Adafactor"},  # reads values; its state has rows and columns
        {"name": "Adagrad", "lr": 1e-3},  # has state before the first step
        {"name": "RMSprop", "lr": 1e-3, "momentum": 0.9, "centered": True},
        {"name": "NAdam", "lr": 1e-3},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_the_state_of_an_optimizer_is_what_it_is_after_a_real_step(tmp_path: Path, optimizer: dict[str, Any]) -> None:
    asked = own(tmp_path, optimizer=optimizer)
    real = build_model(asked, "cpu")
    trains = optimizer_over(real, asked)
    for parameter in real.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    trains.step()
    measured = sizes_of(real, trains)
    assert measured.optimizer_bytes
    assert sizes_on_meta(asked) == measured


def test_several_optimizers_of_the_users_are_summed(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(
        NET.format(first="pass")
        + "\ndef make_optimizer(model):\n"
        + "    return {'head': torch.optim.Adam(model.head.parameters(), fused=True),\n"
        + "            'rest': torch.optim.SGD(model.blocks.parameters(), 0.1, momentum=0.9)}\n"
    )
    sizes = sizes_on_meta(Check.model_validate({"name": "c", "workload": tmp_path / "two.py"}))
    head, rest = 64 * 8 + 8, 3 * (64 * 64 + 64)
    assert sizes.optimizer_bytes == 4 * (2 * head + 2 + rest)
    assert sizes.optimizer == "Adam, SGD"


def test_sparse_gradients_and_optimizers_inside_an_object_of_the_users_are_counted(tmp_path: Path) -> None:
    (tmp_path / "pair.py").write_text(
        NET.format(first="self.words = nn.Embedding(50, 4, sparse=True)")
        + "\nclass Pair:\n    def __init__(self, model):\n"
        + "        self.rest = torch.optim.SGD(model.blocks.parameters(), 0.1, momentum=0.9)\n"
        + "        self.others = [torch.optim.SparseAdam(model.words.parameters())]\n"
        + "    def step(self):\n        self.rest.step()\n"
        + "\ndef make_optimizer(model):\n"
        + "    return [Pair(model), torch.optim.SparseAdam(model.words.parameters())]\n"
    )
    sizes = sizes_on_meta(Check.model_validate({"name": "c", "workload": tmp_path / "pair.py"}))
    assert sizes.optimizer_bytes == 4 * (3 * (64 * 64 + 64) + 2 * 50 * 4)


def test_an_optimizer_that_keeps_its_state_elsewhere_leaves_it_unknown_and_the_rest_known(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        NET.format(first="pass") + "\nclass Mine:\n    def __init__(self, params): ...\n    def step(self): ...\n"
    )
    sizes = sizes_on_meta(check(f"{tmp_path / 'mine.py'}:Net", optimizer={"target": f"{tmp_path / 'mine.py'}:Mine"}))
    assert sizes.optimizer_bytes is None
    assert sizes.why_no_optimizer == "Mine keeps it elsewhere"
    assert sizes.parameters > 0


OPTIMIZER = """
class Mine(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {{}})
        {first}
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                {each}
"""


@pytest.mark.parametrize(
    ("first", "each", "expected"),
    [
        ("self.master = [p.detach().clone() for p in self.param_groups[0]['params']]",
         "self.state[p]['m'] = torch.zeros_like(p)", 2),
        ("self.own = self.param_groups[0]['params']", "self.state[p]['m'] = p.grad", 0),
        ("self.state['step'] = 0", "self.state[p] = torch.zeros(p.numel() * 2)", 2),
        ("self.flat = torch.zeros(12568)", "self.state[p]['m'] = self.flat[:p.numel()]", None),
        ("pass", "self.state[p]['m'] = torch.zeros(p.numel() * 2, dtype=torch.float64)", 4),
    ],
)  # fmt: skip
def test_all_that_an_optimizer_keeps_is_counted_wherever_it_keeps_it(
    tmp_path: Path, first: str, each: str, expected: int | None
) -> None:
    (tmp_path / "mine.py").write_text(NET.format(first="pass") + OPTIMIZER.format(first=first, each=each))
    sizes = sizes_on_meta(check(f"{tmp_path / 'mine.py'}:Net", optimizer={"target": f"{tmp_path / 'mine.py'}:Mine"}))
    assert sizes.optimizer_bytes == (12568 * 4 if expected is None else expected * sizes.parameter_bytes)


@pytest.mark.parametrize(
    ("first", "each"),
    [
        ("pass", "self.state[p]['m'] = torch.zeros(p.numel() * 2)"),
        ("self.master = [p.detach().clone() for p in self.param_groups[0]['params']]", "pass"),
        ("self.state['all'] = torch.zeros(100)", "pass"),
    ],
)
def test_a_state_whose_growth_cannot_be_told_from_small_parameters_is_not_known(
    tmp_path: Path, first: str, each: str
) -> None:
    reads = f"float(p.sum()); {each}"  # which the meta device refuses
    (tmp_path / "mine.py").write_text(NET.format(first="pass") + OPTIMIZER.format(first=first, each=reads))
    asked = check(f"{tmp_path / 'mine.py'}:Net", optimizer={"target": f"{tmp_path / 'mine.py'}:Mine"})
    sizes = sizes_on_meta(asked)
    assert sizes.optimizer_bytes is None
    assert sizes.why_no_optimizer is not None
    assert sizes.why_no_optimizer.startswith("it keeps a tensor of shape [")


def test_views_share_memory_where_they_are_built_and_have_their_own_on_a_device(tmp_path: Path) -> None:
    (tmp_path / "views.py").write_text(
        "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        wide = torch.ones(1, 1).expand(2000, 2000)\n"
        "        self.register_buffer('mask', wide, persistent=False)\n"
        "        self.register_buffer('part', wide[:10])\n"
        "        self.a = nn.Parameter(torch.zeros(100))\n        self.b = nn.Parameter(self.a.detach())\n"
    )
    sizes = sizes_on_meta(check(f"{tmp_path / 'views.py'}:Net", optimizer={"name": "SGD", "lr": 0.1}))
    assert sizes.built_bytes == 4 + 4 * 100
    assert sizes.buffer_bytes == 4 * (2000 * 2000 + 10 * 2000)  # what Module.to(device) makes of them
    assert sizes.parameter_bytes == 4 * 200


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_buffers_count_by_their_values_and_indices() -> None:
    model = torch.nn.Module()
    model.register_buffer("coo", torch.eye(2000).to_sparse())
    model.register_buffer("csr", torch.eye(2000).to_sparse_csr())
    sizes = sizes_of(model, None)
    assert sizes.buffer_bytes == sizes.built_bytes == 2000 * (4 + 2 * 8) + (2000 * (4 + 8) + 2001 * 8)


@pytest.mark.parametrize(
    "first",
    [
        "self.rates = [rate.item() for rate in torch.linspace(0, 0.1, depth)]",  # as timm's models do
        "self.table = torch.arange(width).tolist()",
        "self.start = float(torch.rand(1))",
    ],
)
def test_a_constructor_that_reads_small_values_is_sized_all_the_same(tmp_path: Path, first: str) -> None:
    assert sizes_on_meta(own(tmp_path, first, name="reads")).parameters == 3 * (64 * 64 + 64) + 64 * 8 + 8 + 10


def test_large_tensors_of_such_a_constructor_take_no_memory(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.rate = torch.ones(1).item()\n        self.linear = torch.nn.Linear(2**20, 2**20)\n"
    )
    sizes = sizes_on_meta(check(f"{tmp_path / 'large.py'}:Net", optimizer={"name": "SGD", "lr": 0.1}))
    assert sizes.parameter_bytes == 4 * (2**40 + 2**20)  # 4 TiB


def test_a_model_that_needs_its_values_is_not_sized(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match="meta"):
        sizes_on_meta(own(tmp_path, "self.total = torch.ones(2**20).sum().item()", name="needs"))


def test_lazy_modules_are_sized_with_the_batch_they_see(tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text(
        "import torch\ndef make_model():\n    return torch.nn.Sequential(torch.nn.LazyLinear(5), torch.nn.ReLU())\n"
        "def make_batch(step):\n    return (torch.ones(2, 7),), {}\n"
    )
    asked = Check.model_validate({"name": "c", "workload": tmp_path / "lazy.py"})
    assert sizes_on_meta(asked).parameters == 5 * 7 + 5


def test_layers_are_found_among_the_options_of_a_model_without_a_config(tmp_path: Path) -> None:
    found = layers(own(tmp_path, name="deep", model={"kwargs": {"depth": 5, "width": 32}}))
    assert found is not None
    assert (found.key, found.now) == ("model.kwargs.depth", 5)
    assert found.each[0] == 4 * (32 * 32 + 32)


def test_layers_that_the_check_leaves_to_the_config_class_are_found_there() -> None:
    config = {"class": "transformers:GPT2Config", "n_embd": 32, "n_head": 2, "vocab_size": 64}
    found = layers(check("transformers:GPT2LMHeadModel", config))
    assert found is not None
    assert found.key in ("model.config.n_layer", "model.config.num_hidden_layers")
    assert found.each[0] == 4 * (12 * 32 * 32 + 13 * 32)


def test_a_model_without_such_a_number_has_none(tmp_path: Path) -> None:
    assert layers(own(tmp_path, name="none", model={"kwargs": {"width": 32}})) is None
    assert layers(Check.model_validate({"name": "c", "workload": tmp_path / "none.py"})) is None
