"""Tensors of the device: aliasing, creation, ``out=``, numbers, conjugates, storages, copies to disk and back."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from smoketest.devices.emulated import EmulatedDevice

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(6),
        lambda x: x.t(),
        lambda x: x[1],
        lambda x: x[:, ::2],
        lambda x: x.unsqueeze(0).expand(4, 2, 3),
        lambda x: x.unfold(1, 2, 1),
        lambda x: x.as_strided((2,), (3,), 1),
        lambda x: x.split(2, 1)[0],
        lambda x: x.detach(),
        lambda x: x.diagonal(),
    ],
)
def test_a_view_shares_memory_device_and_geometry(view: Callable[[Tensor], Tensor]) -> None:
    plain = torch.arange(6.0).view(2, 3)
    x = plain.to("neuron")
    seen, expected = view(x), view(plain)
    assert seen.device.type == "neuron"
    assert (seen.shape, seen.stride(), seen.storage_offset()) == (
        expected.shape,
        expected.stride(),
        expected.storage_offset(),
    )
    assert seen.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    x.zero_()
    assert seen.cpu().eq(0).all()


def test_writing_through_a_view_is_seen_in_its_base_and_its_gradient() -> None:
    w = torch.ones(2, 3, device="neuron", requires_grad=True)
    x = w * 1.0
    x[0].mul_(3.0)
    x.sum().backward()
    assert x.tolist() == [[3, 3, 3], [1, 1, 1]]
    assert w.grad is not None
    assert w.grad.tolist() == [[3, 3, 3], [1, 1, 1]]


def test_moving_copies_and_never_aliases_the_cpu_tensor() -> None:
    plain = torch.zeros(3)
    moved = plain.to("neuron")
    moved.add_(1.0)
    assert plain.tolist() == [0, 0, 0]
    back = moved.cpu()
    moved.add_(1.0)
    assert back.tolist() == [1, 1, 1]


@pytest.mark.parametrize("size", [0, 2, 4, 9])
@pytest.mark.parametrize("op", [torch.add, torch.atan2])
def test_an_out_tensor_of_any_size_ends_as_on_the_cpu(op: Callable[..., Tensor], size: int) -> None:
    a, b = torch.rand(2, 2), torch.rand(2, 2)
    expected = op(a, b)
    out = torch.zeros(size, device="neuron")
    with pytest.warns(UserWarning, match="was resized") if size else contextlib.nullcontext():
        returned = op(a.to("neuron"), b.to("neuron"), out=out)
    assert returned is out
    torch.testing.assert_close(out.cpu(), expected)


def test_an_out_tensor_of_the_right_size_keeps_its_memory() -> None:
    base = torch.zeros(4, device="neuron")
    torch.acos(torch.zeros(2, device="neuron"), out=base[1:3])
    assert base.tolist() == pytest.approx([0, 1.5707964, 1.5707964, 0])


def test_an_op_with_two_results_fills_both_out_tensors() -> None:
    values, indices = torch.empty(0, device="neuron"), torch.empty(0, dtype=torch.int64, device="neuron")
    torch.sort(torch.tensor([3.0, 1.0]).to("neuron"), out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([1, 3], [1, 0])


@pytest.mark.parametrize("number", [2, 2.5, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.bfloat16, torch.bool])
@pytest.mark.parametrize(
    "op", [torch.add, torch.mul, torch.div, torch.eq, torch.atan2, torch.maximum, torch.pow, torch.remainder]
)
def test_a_python_number_promotes_as_on_the_cpu(op: Callable[..., Tensor], dtype: torch.dtype, number: float) -> None:
    plain = torch.ones(2, dtype=dtype)
    for arguments in [(plain, number), (number, plain)]:
        try:
            expected = op(*arguments)
        except (TypeError, RuntimeError) as error:
            with pytest.raises(type(error)):
                op(*(a.to("neuron") if isinstance(a, Tensor) else a for a in arguments))
            continue
        seen = op(*(a.to("neuron") if isinstance(a, Tensor) else a for a in arguments))
        assert seen.dtype == expected.dtype
        torch.testing.assert_close(seen.cpu(), expected)


def test_a_0_dim_cpu_tensor_mixes_and_a_vector_is_refused() -> None:
    x = torch.ones(3, device="neuron")
    assert (x * torch.tensor(2.0)).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x * torch.ones(3)


def test_the_refusal_names_argument_and_op() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.mm(torch.ones(2, 2, device="neuron"), torch.ones(2, 2))
    assert str(caught.value) == (
        "Expected all tensors to be on the same device, but found at least two devices, neuron:0 and cpu! "
        "Non-scalar tensor arg1 is on cpu device, expected neuron (aten::mm)"
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda x, stray: torch.cat([x, stray]),
        lambda x, stray: torch.where(x > 0, x, stray),
        lambda x, stray: nn.functional.linear(x, stray),
        lambda x, stray: nn.functional.embedding(stray.long(), x),
        lambda x, stray: x.index_select(0, stray[0].long()),
    ],
)
def test_a_stray_cpu_tensor_is_refused_wherever_it_is(call: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*neuron:0 and cpu"):
        call(torch.ones(2, 2, device="neuron"), torch.ones(2, 2))


def test_indices_from_the_cpu_are_taken_and_the_cpu_fallback_mixes_devices() -> None:
    x = torch.arange(4.0).to("neuron")
    assert x[torch.tensor([2, 0])].tolist() == [2, 0]
    assert nn.functional.prelu(-x[None], torch.tensor([0.5, 0.5, 0.5, 1.0])).tolist() == [[0, -0.5, -1, -3]]


def test_conjugate_and_negative_views_compute_as_on_the_cpu() -> None:
    plain = torch.view_as_complex(torch.rand(2, 2, 2))
    z = plain.to("neuron")
    for program in (
        lambda t: t.conj() * 2,
        lambda t: t.conj() @ t,
        lambda t: t.conj().imag,
        lambda t: t.conj().resolve_conj(),
        lambda t: t.conj().imag.resolve_neg(),
        lambda t: t.conj().clone(),
        lambda t: t.mH @ t.mH,
    ):
        torch.testing.assert_close(program(z).cpu(), program(plain))


def test_a_conjugate_arrives_on_the_cpu_as_its_value() -> None:
    plain = torch.view_as_complex(torch.rand(2, 2))
    torch.testing.assert_close(plain.to("neuron").conj().cpu(), plain.conj())


def test_an_op_that_sets_the_conjugate_bit_on_its_result_is_followed() -> None:
    a, b = torch.view_as_complex(torch.rand(3, 3, 2)), torch.view_as_complex(torch.rand(2, 3, 2))
    factors, pivots = torch.linalg.lu_factor(a)
    expected = torch.linalg.lu_solve(factors, pivots, b, left=False)
    seen = torch.linalg.lu_solve(factors.to("neuron"), pivots.to("neuron"), b.to("neuron"), left=False)
    torch.testing.assert_close(seen.cpu(), expected)


def test_resize_keeps_what_is_there_and_set_shares_it() -> None:
    x = torch.arange(4.0).to("neuron")
    x.resize_(6)
    assert x[:4].tolist() == [0, 1, 2, 3]
    x.resize_(2, 1)
    assert x.tolist() == [[0], [1]]
    y = torch.empty(0, device="neuron").set_(x)
    x.fill_(7)
    assert y.tolist() == [[7], [7]]
    assert y.set_().shape == (0,)


def test_storages_of_the_device_are_made_resized_and_copied() -> None:
    storage = torch.UntypedStorage(8, device="neuron")
    assert (storage.device.type, storage.nbytes(), len(storage)) == ("neuron", 8, 8)
    storage.resize_(0)
    assert storage.size() == 0
    storage.resize_(8)
    assert storage.size() == 8
    assert copy.deepcopy(storage).device.type == "neuron"
    with pytest.raises(NotImplementedError, match="cannot grow in place"):
        storage.resize_(16)


def test_deepcopy_keeps_tied_weights_tied_and_independent() -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    model["a"].weight = model["b"].weight
    moved = copy.deepcopy(model.to("neuron"))
    assert moved["a"].weight is moved["b"].weight
    moved["a"].weight.data.zero_()
    assert model["a"].weight.abs().sum().item() > 0


@pytest.mark.parametrize("saved_on", ["cpu", "neuron"])
@pytest.mark.parametrize("map_location", [None, "cpu", "neuron", "neuron:0"])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_loads_wherever_it_was_saved(saved_on: str, map_location: str | None, zipped: bool) -> None:
    model = nn.Linear(3, 3).to(saved_on)
    file = io.BytesIO()
    torch.save(model.state_dict(), file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    loaded = torch.load(file, map_location=map_location)
    assert loaded["weight"].device.type == torch.device(map_location or saved_on).type
    torch.testing.assert_close(loaded["weight"].cpu(), model.weight.detach().cpu())


def test_a_seed_gives_the_numbers_of_the_cpu() -> None:
    for draw in (
        lambda where: torch.randn(5, device=where),
        lambda where: torch.rand(5, device=where),
        lambda where: torch.randperm(9, device=where),
        lambda where: torch.bernoulli(torch.full((9,), 0.5, device=where)),
        lambda where: nn.functional.dropout(torch.ones(9, device=where)),
    ):
        torch.manual_seed(3)
        expected = draw("cpu")
        torch.manual_seed(3)
        assert torch.equal(draw("neuron").cpu(), expected)


def test_the_generator_state_is_kept_and_put_back() -> None:
    with torch.random.fork_rng(device_type="neuron"):
        torch.neuron.manual_seed(1)  # type: ignore[attr-defined]
        first = torch.rand(3, device="neuron")
        state = torch.neuron.get_rng_state()  # type: ignore[attr-defined]
        second = torch.rand(3, device="neuron")
        torch.neuron.set_rng_state(state)  # type: ignore[attr-defined]
        assert torch.equal(torch.rand(3, device="neuron"), second)
        torch.neuron.manual_seed_all(1)  # type: ignore[attr-defined]
        assert torch.equal(torch.rand(3, device="neuron"), first)


def test_the_device_module_answers_what_it_can_and_has_no_invented_numbers() -> None:
    neuron = torch.neuron  # type: ignore[attr-defined]
    assert (neuron.is_available(), neuron.is_initialized(), neuron.device_count()) == (True, True, 1)
    assert (neuron.current_device(), neuron.get_device_name()) == (0, "neuron:0")
    assert neuron.get_amp_supported_dtype() == [torch.float32, torch.float16, torch.bfloat16]
    with neuron.device(0):
        neuron.synchronize()
    with pytest.raises(ValueError, match="Invalid device id: 3"):
        neuron.set_device(3)
    assert not hasattr(neuron, "get_device_properties")


def test_memory_is_counted_from_the_first_question_on() -> None:
    neuron = torch.neuron  # type: ignore[attr-defined]
    x = torch.zeros(1000, device="neuron", requires_grad=True)
    before = neuron.memory_allocated()
    assert before >= 4000, "what is there already is found"
    neuron.reset_peak_memory_stats()
    y = x.exp()
    view = y[:10]
    assert neuron.memory_allocated() - before == 4000, "a view takes nothing"
    total = y.sum()
    del y, view
    assert neuron.memory_allocated() - before == 4004, "autograd keeps the result of exp"
    total.backward()  # type: ignore[no-untyped-call]
    assert neuron.memory_allocated() - before == 4004, "the gradient in its place"
    assert neuron.max_memory_allocated() - before >= 8004
    del total
    x.grad = None
    assert neuron.memory_allocated() == before
    stats = neuron.memory_stats()["allocated_bytes"]
    assert stats["current"] == before
    assert stats["allocated"] - stats["freed"] == before
    assert neuron.memory_reserved() == 0
    with torch.no_grad():
        x.add_(1)
        x.data = x.data * 2
    assert neuron.memory_allocated() == before


def test_events_and_streams_measure_and_wait_for_nothing() -> None:
    neuron = torch.neuron  # type: ignore[attr-defined]
    start, end = neuron.Event(enable_timing=True), torch.Event("neuron", enable_timing=True)
    with neuron.stream(neuron.Stream()):
        start.record()
        torch.ones(3, device="neuron").add_(1.0)
        end.record()
    assert end.query()
    assert start.elapsed_time(end) > 0
    neuron.current_stream().wait_event(end)
    torch.accelerator.synchronize()


@pytest.mark.parametrize("make", [torch.empty, torch.zeros, torch.randn])
def test_a_second_device_is_refused(make: Callable[..., Tensor]) -> None:
    with pytest.raises(ValueError, match="Invalid device id: 1"):
        make(2, device="neuron:1")
    with pytest.raises(ValueError, match="Invalid device id: 1"):
        torch.ones(2).to("neuron:1")


def test_a_sparse_result_is_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match=r"neuron: a result of layout torch.sparse_coo has no place"):
        torch.eye(3, device="neuron").to_sparse()


def test_a_tensor_prints_with_its_values_and_device() -> None:
    assert repr(torch.tensor([1.0, 2.0]).to("neuron")) == "tensor([1., 2.], device='neuron:0')"


def test_a_data_loader_that_pins_memory_works() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    loader = torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True)
    assert [x.to("neuron", non_blocking=True).tolist() for (x,) in loader] == [[0, 1], [2, 3]]


def test_function_transforms_agree_with_the_cpu() -> None:
    def loss(w: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(x @ w).sum()

    w, x = torch.rand(3), torch.rand(4, 3)
    for transform in (torch.func.grad(loss), torch.func.jacrev(torch.func.grad(loss))):
        torch.testing.assert_close(transform(w.to("neuron"), x.to("neuron")).cpu(), transform(w, x))
    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    torch.testing.assert_close(per_sample(w.to("neuron"), x.to("neuron")).cpu(), per_sample(w, x))


def test_inference_mode_computes(device: EmulatedDevice) -> None:
    with torch.inference_mode():
        x = torch.ones(2, 2, device="neuron")
        assert (x @ x).add_(1.0).tolist() == [[3, 3], [3, 3]]
