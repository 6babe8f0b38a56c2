"""What trains on the CPU trains on the emulated device, with the same losses."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from smoketest.devices.emulated import EmulatedDevice

Loss = Callable[[nn.Module, str], Tensor]


def losses_on(
    where: str, make: Callable[[], nn.Module], loss: Loss, steps: int = 3, **optimizer: object
) -> list[float]:
    torch.manual_seed(0)
    model = make().to(where)
    update = torch.optim.AdamW(model.parameters(), lr=1e-2, **optimizer)  # type: ignore[arg-type]
    seen = []
    for _ in range(steps):
        update.zero_grad()
        value = loss(model, where)
        value.backward()  # type: ignore[no-untyped-call]
        update.step()
        seen.append(value.item())
    assert seen[-1] != seen[0], "a training that changes nothing proves nothing"
    return seen


def assert_trains_alike(make: Callable[[], nn.Module], loss: Loss, **optimizer: object) -> None:
    reference = losses_on("cpu", make, loss, **optimizer)
    assert losses_on("neuron", make, loss, **optimizer) == pytest.approx(reference, rel=1e-4)


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    model: nn.Module = transformers.GPT2LMHeadModel(config).train()
    return model


def language_loss(model: nn.Module, where: str) -> Tensor:
    ids = torch.randint(0, 100, (2, 16)).to(where)
    value: Tensor = model(input_ids=ids, labels=ids).loss
    return value


def test_gpt2_trains_with_the_losses_of_the_cpu_dropout_included(device: EmulatedDevice) -> None:
    assert_trains_alike(gpt2, language_loss)


def test_nothing_in_a_gpt2_training_step_falls_back(device: EmulatedDevice) -> None:
    losses_on("neuron", gpt2, language_loss)
    assert device.get_fallback_ops() == []
    assert {"aten::addmm", "aten::native_layer_norm_backward", "aten::native_dropout"} <= set(device.get_executed_ops())


def test_a_tied_embedding_stays_tied_when_the_model_moves(device: EmulatedDevice) -> None:
    model = gpt2()
    reference = copy.deepcopy(model).eval()
    ids = torch.randint(0, 100, (2, 16))
    reference(input_ids=ids, labels=ids).loss.backward()
    model = model.to("neuron").eval()
    assert model.lm_head.weight is model.transformer.wte.weight
    model(input_ids=ids.to("neuron"), labels=ids.to("neuron")).loss.backward()
    torch.testing.assert_close(model.lm_head.weight.grad.cpu(), reference.lm_head.weight.grad)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out


def image_loss(model: nn.Module, where: str) -> Tensor:
    return F.cross_entropy(model(torch.randn(4, 1, 8, 8).to(where)), torch.randint(0, 3, (4,)).to(where))


def test_batch_norm_and_pooling_train_and_are_recorded_in_both_directions(device: EmulatedDevice) -> None:
    assert_trains_alike(ConvNet, image_loss)
    assert set(device.get_fallback_ops()) == {
        "aten::native_batch_norm",
        "aten::native_batch_norm_backward",
        "aten::max_pool2d_with_indices.out",
        "aten::max_pool2d_with_indices_backward.grad_input",
    }


def _layers(where: str, dtype: torch.dtype, shape: tuple[int, ...], bias: bool, twice: bool) -> list[Tensor]:
    torch.manual_seed(0)
    linear, norm = nn.Linear(4, 6, bias=bias).to(where, dtype), nn.RMSNorm(6, elementwise_affine=bias).to(where, dtype)
    x = torch.randn(shape).to(where, dtype).requires_grad_()
    out = norm(linear(x)).tanh()
    if twice:
        out = torch.autograd.grad(out.sum(), x, create_graph=True)[0].square()
    inputs = [x, *linear.parameters(), *norm.parameters()]
    grads = torch.autograd.grad(out.sum(), inputs, allow_unused=True)
    return [t.detach().cpu() for t in (out, *grads) if t is not None]


@pytest.mark.parametrize("shape", [(3, 5, 4), (2, 4), (4,), (0, 4)], ids=str)
@pytest.mark.parametrize(("bias", "twice"), [(True, False), (False, False), (True, True)])
def test_linear_and_rms_norm_run_as_the_ops_the_device_has(
    shape: tuple[int, ...], bias: bool, twice: bool, device: EmulatedDevice
) -> None:
    seen = _layers("neuron", torch.float32, shape, bias, twice)
    torch.testing.assert_close(seen, _layers("cpu", torch.float32, shape, bias, twice), rtol=1e-4, atol=1e-5)
    executed = {"aten::linear", "aten::linear_backward", "aten::rms_norm", "aten::_fused_rms_norm"}
    assert executed <= set(device.get_executed_ops())
    assert device.get_fallback_ops() == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_linear_and_rms_norm_agree_in_other_dtypes(dtype: torch.dtype, device: EmulatedDevice) -> None:
    cpu, neuron = (_layers(where, dtype, (3, 5, 4), True, False) for where in ("cpu", "neuron"))
    torch.testing.assert_close(neuron, cpu, rtol=3e-2, atol=3e-2)


def test_linear_of_nothing_to_something_and_of_something_to_nothing(device: EmulatedDevice) -> None:
    for inside, outside in ((0, 3), (3, 0)):
        x = torch.ones(2, inside, device="neuron", requires_grad=True)
        weight = torch.ones(outside, inside, device="neuron", requires_grad=True)
        F.linear(x, weight).sum().backward()
        assert x.grad is not None
        assert x.grad.shape == (2, inside)


def test_what_has_a_kernel_above_a_composite_does_not_fall_back(device: EmulatedDevice) -> None:
    x = torch.tensor([2.0, 1.0]).to("neuron")
    device.clear_op_tracking()
    assert torch.argsort(x, stable=True).tolist() == [1, 0]
    assert x.isfinite().tolist() == [True, True]
    assert F.one_hot(x.long()).tolist() == [[0, 0, 1], [0, 1, 0]]
    assert device.get_fallback_ops() == []


@pytest.mark.parametrize("form", [{"foreach": True}, {"foreach": False}, {"fused": True}])
def test_every_form_of_adamw_trains_alike(form: dict[str, bool], device: EmulatedDevice) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))

    def loss(model: nn.Module, where: str) -> Tensor:
        value: Tensor = model(torch.ones(4, 8).to(where)).square().mean()
        return value

    assert_trains_alike(make, loss, **form)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_replays_the_same_dropout(reentrant: bool, device: EmulatedDevice) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = checkpoint(self.second, self.first(x), use_reentrant=reentrant)
            return out

    def loss(model: nn.Module, where: str) -> Tensor:
        value: Tensor = model(torch.randn(4, 8).to(where)).square().mean()
        return value

    assert_trains_alike(Checkpointed, loss)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], bias: bool) -> None:
        super().__init__()
        self.cells = kind(4, 6, num_layers=2, bias=bias, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.cells(x)[0]
        return out


def sequence_loss(model: nn.Module, where: str) -> Tensor:
    value: Tensor = model(torch.randn(5, 3, 4).to(where)).square().mean()
    return value


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_recurrent_cell_raises_as_on_the_device(kind: type[nn.RNNBase], device: EmulatedDevice) -> None:
    with pytest.raises(NotImplementedError, match=r"Could not run 'aten::_thnn_fused_(lstm|gru)_cell'"):
        sequence_loss(Recurrent(kind, bias=True).to("neuron"), "neuron")
    assert any(name.startswith("aten::_thnn_fused_") for name in device.get_fallback_ops())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("kind", "ops"),
    [
        (nn.LSTM, {"aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_lstm_cell_backward_impl"}),
        (nn.GRU, {"aten::_thnn_fused_gru_cell", "aten::_thnn_fused_gru_cell_backward"}),
    ],
)
def test_a_run_can_go_on_past_a_recurrent_cell_and_says_so(
    kind: type[nn.RNNBase], ops: set[str], bias: bool, device: EmulatedDevice
) -> None:
    device.continue_past_errors = True
    assert_trains_alike(lambda: Recurrent(kind, bias), sequence_loss)
    assert ops <= set(device.continued_past)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_trains_close_to_the_cpus_autocast(dtype: torch.dtype, device: EmulatedDevice) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 3))

    def loss(model: nn.Module, where: str) -> Tensor:
        with torch.autocast(where, dtype=dtype):
            out = model(torch.randn(4, 8).to(where))
            assert out.dtype == dtype
            return F.cross_entropy(out.float(), torch.tensor([0, 1, 2, 0]).to(where))

    assert losses_on("neuron", make, loss) == pytest.approx(losses_on("cpu", make, loss), rel=1e-2)


def test_a_grad_scaler_scales_on_the_device(device: EmulatedDevice) -> None:
    def train(where: str) -> list[float]:
        torch.manual_seed(0)
        model = nn.Linear(4, 1).to(where)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(where, init_scale=4.0)
        seen = []
        for scale in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            value = model(torch.ones(2, 4).to(where)).square().mean()
            scaler.scale(value * scale).backward()
            scaler.step(optimizer)
            scaler.update()
            seen += [value.item(), scaler.get_scale()]
        return seen

    seen = train("neuron")
    assert seen == pytest.approx(train("cpu"))
    assert seen[3] == 2.0, "the step with an infinite gradient halves the scale"
    assert seen[4] == seen[2], "and is skipped"


def test_double_backward_agrees_with_the_cpu(device: EmulatedDevice) -> None:
    def penalty(where: str) -> Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(where)
        x = torch.randn(3, 4).to(where).requires_grad_()
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        ((grad.norm(dim=1) - 1) ** 2).mean().backward()
        gradient = model[0].weight.grad
        assert gradient is not None
        return gradient.cpu()

    torch.testing.assert_close(penalty("neuron"), penalty("cpu"))
