"""What a compiled graph computes on the emulated device: what eager mode does, on the same memory."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from smoketest.devices.emulated import EmulatedDevice
from smoketest.devices.emulated.dynamo import compat


@pytest.fixture(autouse=True)
def fresh_dynamo(device: EmulatedDevice) -> Iterator[None]:
    torch._dynamo.reset()
    torch.neuron.reset_dynamo_metrics()  # type: ignore[attr-defined]
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(function, backend="neuron", dynamic=False, **options)
    return made


class Attention(nn.Module):
    """Causal, with dropout of the weights, and as many heads of keys and values as of queries or one."""

    def __init__(self, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, 4 * heads), nn.Linear(16, 4 * heads)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (-1, 4)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        return functional.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout, is_causal=True, enable_gqa=self.heads == 1
        ).sum((1, 3))


@pytest.mark.parametrize("heads", [4, 1])
def test_attention_with_dropout_gives_the_losses_and_gradients_of_eager_mode_under_one_seed(heads: int) -> None:
    eager = Attention(heads, dropout=0.5).to("neuron")
    other = copy.deepcopy(eager)
    model = torch.compile(other, backend="neuron", dynamic=False, fullgraph=True)
    x = torch.randn(2, 6, 16).to("neuron")
    losses = []
    for seed in range(3):
        for run in (eager, model):
            torch.manual_seed(seed)
            loss = run(x).square().mean()
            loss.backward()
            losses.append(loss.item())
    assert losses[0::2] == pytest.approx(losses[1::2], rel=1e-6)
    assert len(set(losses[0::2])) == 3, "each seed drops other weights"
    for one, same in zip(eager.parameters(), other.parameters(), strict=True):
        assert one.grad is not None
        assert same.grad is not None
        torch.testing.assert_close(one.grad.cpu(), same.grad.cpu(), rtol=1e-5, atol=1e-6)


def test_dropout_of_attention_is_applied_in_training_and_its_mean_is_that_of_attention_without() -> None:
    """Against a decomposition that drops nothing: over many heads the mean holds and the spread is there."""
    q, k, v = (torch.randn(1, 64, 8, 4, generator=torch.Generator().manual_seed(i)).to("neuron") for i in range(3))
    call = compiled(lambda p: functional.scaled_dot_product_attention(q, k, v, dropout_p=p))
    plain, dropped = call(0.0).cpu(), torch.stack([call(0.5).cpu() for _ in range(200)])
    assert not torch.equal(dropped[0], plain)
    assert not torch.equal(dropped[0], dropped[1])
    torch.testing.assert_close(dropped.mean(0), plain, rtol=0, atol=0.35)
    assert (dropped.mean(0) - plain).abs().mean() < 0.06


def test_plain_dropout_draws_the_mask_of_eager_mode_under_one_seed() -> None:
    x = torch.ones(64).to("neuron")
    results = []
    for call in (lambda t: functional.dropout(t, 0.5), compiled(lambda t: functional.dropout(t, 0.5))):
        torch.manual_seed(7)
        results.append(call(x).tolist())
    assert results[0] == results[1]


def test_a_compiled_train_step_moves_a_model_as_the_eager_one_does() -> None:
    torch.manual_seed(3)
    models = [nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 4)).to("neuron")]
    models.append(copy.deepcopy(models[0]))
    losses: list[list[float]] = [[], []]
    for index, model in enumerate(models):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        call = compiled(model) if index else model
        torch.manual_seed(4)
        for _ in range(4):
            loss = functional.cross_entropy(call(torch.randn(6, 8).to("neuron")), torch.randint(4, (6,)).to("neuron"))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses[index].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.skipif(
    not os.environ.get("SMOKETEST_LONG"), reason="ten seconds; `make compiled`, or set SMOKETEST_LONG=1"
)
def test_gpt2_compiles_without_a_refusal_and_trains_with_the_losses_of_eager_mode() -> None:
    """Dropout everywhere, attention's too; known to train on the device ([PUB] tutorial-simple-training)."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=16, bos_token_id=0, eos_token_id=1
    )  # fmt: skip
    models = [transformers.GPT2LMHeadModel(config).train().to("neuron")]
    models[0].loss_type = "ForCausalLM"  # transformers would choose it and log so, which breaks the graph
    models.append(copy.deepcopy(models[0]))
    ids = torch.arange(32).reshape(2, 16).to("neuron")
    losses: list[list[float]] = [[], []]
    for index, model in enumerate(models):
        call = compiled(model) if index else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        torch.manual_seed(1)
        for _ in range(3):
            loss = call(input_ids=ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[index].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0][0] > losses[0][2]


def test_an_input_that_the_graph_writes_to_is_written_to_and_autograd_is_told() -> None:
    x = torch.ones(3).to("neuron")
    weight = torch.ones(3, device="neuron", requires_grad=True)
    product = weight * x  # keeps x for backward
    out = compiled(lambda t: t.add_(1) * 2)(x)
    assert (x.tolist(), out.tolist()) == ([2.0] * 3, [4.0] * 3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()  # type: ignore[no-untyped-call]


def test_results_that_are_views_of_inputs_share_their_memory() -> None:
    x = torch.zeros(2, 3).to("neuron")
    rows = compiled(lambda t: t[0])(x)
    rows.fill_(5)
    assert x.tolist() == [[5.0] * 3, [0.0] * 3]


def test_tensors_made_in_the_graph_and_constants_are_on_the_device() -> None:
    table = torch.tensor([1.0, 2.0, 3.0]).to("neuron")
    out = compiled(lambda t: t + torch.arange(3, device="neuron") + table + torch.tensor([1, 1, 1], device="neuron"))(
        torch.zeros(3).to("neuron")
    )
    assert out.device.type == "neuron"
    assert out.tolist() == [2.0, 4.0, 6.0]


def test_tensors_on_the_cpu_are_taken_as_copied_and_results_are_on_the_device() -> None:
    """[PRE] executor.py: the copy is silent, and outputs stay on the device even where the graph says cpu."""
    out = compiled(lambda a, b: (a * 2, (b * 3).cpu()))(torch.ones(2), torch.ones(2).to("neuron"))
    assert [(part.device.type, part.tolist()) for part in out] == [("neuron", [2.0, 2.0]), ("neuron", [3.0, 3.0])]


def test_retain_device_mode_leaves_on_the_cpu_what_the_graph_puts_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_RETAIN_DEVICE_MODE", "1")
    on_cpu, on_device = compiled(lambda b: ((b * 3).cpu(), b * 3))(torch.ones(2).to("neuron"))
    assert (on_cpu.device.type, on_device.device.type) == ("cpu", "neuron")
    with pytest.raises(Exception, match="inputs are on cpu and on neuron") as raised:
        compiled(lambda a, b: (a * 2, b * 2))(torch.ones(2), torch.ones(2).to("neuron"))
    assert type(raised.value).__name__ == "NEFFExecutionError"


def test_float64_is_computed_as_float32_where_that_limit_acts(device: EmulatedDevice) -> None:
    """[PRE] fx_transform.py has a float64 to float32 pass; results have their own dtype again."""
    third = torch.tensor([1.0, 2.0], dtype=torch.float64).to("neuron") / 3
    exact = compiled(lambda t: t * 1)(third)
    assert exact.tolist() == third.tolist()
    device.strict_limits = True
    torch._dynamo.reset()
    narrow = compiled(lambda t: t * 1)(third)
    assert narrow.dtype == torch.float64
    assert narrow.tolist() == third.cpu().float().double().tolist()


def test_every_new_shape_is_compiled_once_more_and_runs() -> None:
    """[PUB] reference-torch-compile: shapes that vary between steps run, with a compilation for each."""
    call = compiled(lambda t: t * 2)
    for rows in (2, 3, 2, 4):
        assert call(torch.ones(rows).to("neuron")).tolist() == [2.0] * rows
    assert len(torch.neuron.get_dynamo_metrics()) == 3  # type: ignore[attr-defined]


def test_metrics_have_a_record_for_each_graph_that_was_compiled_and_none_for_one_that_was_not() -> None:
    before = torch._dynamo.utils.counters["neuron"]["compiled_graphs"]
    weight = torch.ones(3, device="neuron", requires_grad=True)
    compiled(lambda t: (t * 2).sum(), options={"model_name": "mine"})(weight).backward()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        compiled(torch.lgamma)(torch.ones(3).to("neuron"))
    forward, backward = torch.neuron.get_dynamo_metrics()  # type: ignore[attr-defined]
    assert [record.graph_name.rpartition("_")[0].split("_")[::2] for record in (forward, backward)] == [
        ["mine", "forward"],
        ["mine", "backward"],
    ]
    assert forward.model_name == "mine"
    assert forward.graph_id != backward.graph_id
    assert (forward.has_collectives, forward.torch_neuronx_compile_us) == (False, None)
    assert forward.graph_node_count == 4, "input, mul, sum, output"
    assert forward.torch_neuronx_lower_us > 0
    assert torch._dynamo.utils.counters["neuron"]["compiled_graphs"] == before + 2
    torch.neuron.reset_dynamo_metrics()  # type: ignore[attr-defined]
    assert torch.neuron.get_dynamo_metrics() == []  # type: ignore[attr-defined]


def test_a_table_of_metrics_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_ENABLED_METRIC_TABLES", "no_such_table")
    with pytest.raises(Exception, match="ValueError: Metric table 'no_such_table' is not registered"):
        compiled(lambda t: t + 1)(torch.ones(2).to("neuron"))


@pytest.mark.parametrize("kept", [True, False])
def test_graphs_are_kept_as_text_where_artifacts_are(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))
    if kept:
        monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        compiled(torch.lgamma)(torch.ones(3).to("neuron"))
    written = [file.read_text() for file in tmp_path.glob("fx_graphs/proc_0/model_default_*.fx.txt")]
    assert ["lgamma" in text for text in written] == [True] * kept, "written although lowering fails"


def test_the_private_names_of_pytorch_are_there() -> None:
    """Fails when a release of PyTorch takes one away."""
    for name in compat.DRIFT:
        module, _, attribute = name.rpartition(".")
        assert hasattr(sys.modules[module], attribute), name
