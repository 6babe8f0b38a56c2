"""What a process that emulates a device must not notice, and what PyTorch must not take away unnoticed."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from smoketest.devices.emulated import EmulatedDevice, autocast, compat

CPU_ONLY = """
import sys, warnings, torch
warnings.simplefilter("error")
if sys.argv[1] == "emulated":
    import smoketest
    smoketest.emulate()
import copy, io
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                            torch.nn.Flatten(), torch.nn.Dropout(0.3), torch.nn.Linear(36, 3))
twin = copy.deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(4, 1, 8, 8)).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
file = io.BytesIO()
torch.save(model.state_dict(), file)
file.seek(0)
print([v.double().sum().item().hex() for v in torch.load(file).values()])
storage = torch.UntypedStorage(8)
storage.resize_(32)
print(len(storage), storage.nbytes(), storage.size(), torch.UntypedStorage().device, storage.new().nbytes())
print(type(torch.tensor([1.0]).untyped_storage()).__name__, torch.tensor(1.0).device)
out = torch.zeros(0)
print(torch.atan2(torch.ones(2), torch.ones(2), out=out).tolist(), out.shape)
try:
    torch.ones(2) + torch.ones(3)
except RuntimeError as error:
    print(error)
print(torch.rand(3, generator=torch.Generator().manual_seed(4)).tolist(), torch.initial_seed())
print(torch.get_default_device(), isinstance(torch.Generator(), torch._C.Generator))
print(copy.deepcopy(storage).nbytes(), torch.is_autocast_enabled("cpu"))
"""


def test_the_cpu_computes_to_the_bit_what_it_computes_without_a_device() -> None:
    def run(how: str) -> str:
        command = [sys.executable, "-c", CPU_ONLY, how]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    plain = run("plain")
    assert run("emulated") == plain
    assert "The size of tensor a (2) must match the size of tensor b (3)" in plain


def test_the_cpu_never_passes_the_tracker(device: EmulatedDevice) -> None:
    torch.sort(torch.acos(torch.rand(3)))
    nn.Linear(2, 2)(torch.rand(1, 2)).sum().backward()
    assert (device.get_fallback_ops(), device.get_executed_ops()) == ([], [])


def test_a_size_marked_dynamic_stays_so_in_graphs_of_the_cpu(device: EmulatedDevice) -> None:
    sizes: list[object] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[object]) -> object:
        sizes.extend(x for x in inputs if isinstance(x, torch.SymInt))
        return graph.forward

    x = torch.rand(3, 4)
    torch._dynamo.reset()
    torch._dynamo.mark_dynamic(x, 0)
    torch.compile(torch.nn.Linear(4, 4), backend=backend)(x)
    torch._dynamo.reset()
    assert len(sizes) == 1
    assert len(torch.UntypedStorage(8)) == torch.UntypedStorage(8).nbytes() == 8


def test_an_event_of_another_device_is_pytorchs_own() -> None:
    assert isinstance(torch.Event("cpu"), torch.Event)
    assert type(torch.Event("cpu")) is not torch.Event
    assert type(torch.Event("neuron")) is torch.Event


@pytest.mark.parametrize("name", compat.DRIFT)
def test_pytorch_still_has_the_private_name(name: str) -> None:
    """A failure here means a release of PyTorch took it away: mend `compat`, nothing else uses it."""
    found: object = sys.modules["torch"]
    for part in name.split(".")[1:]:
        found = getattr(found, part)


def test_the_fast_retag_is_in_use_on_this_interpreter() -> None:
    assert compat.layout_is_known()


@pytest.mark.parametrize("make", [compat._retag_through_memory, compat._retag_through_c_api])
def test_both_ways_of_retagging_write_the_device_type(make) -> None:  # type: ignore[no-untyped-def]
    capsule = compat.to_dlpack(torch.arange(3.0))
    make()(capsule, 12)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    assert ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 8).value == 12
    assert compat.from_dlpack(capsule).device.type == "neuron"


def test_an_interpreter_with_another_layout_gets_the_slower_retag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "layout_is_known", lambda: False)
    retag = compat.capsule_retag()
    capsule = compat.to_dlpack(torch.arange(3.0))
    retag(capsule, 12)
    assert compat.from_dlpack(capsule).cpu().tolist() == [0, 1, 2]


def test_the_autocast_lists_are_those_cuda_registers() -> None:
    """The lists are parsed from the header; CUDA's registered kernels are the check that parsing missed nothing."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    cuda = {name.removeprefix("aten::") for name in registered if name.startswith("aten::")}
    of_cudnn = {name for name in cuda if name.startswith(("cudnn", "_cudnn"))}
    parsed = set(autocast.lists())
    assert cuda - of_cudnn - parsed == set()
    assert parsed - cuda == set()
    assert {autocast.lists()[name] for name in ("addmm", "exp", "prod", "addcmul", "norm.Scalar")} == {
        "LOWER_PRECISION_FP", "FP32", "FP32_SET_OPT_DTYPE", "PROMOTE", "NORM",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (lambda x: x @ x, torch.bfloat16),
        (lambda x: torch.softmax(x @ x, 0), torch.float32),
        (lambda x: (x @ x).prod(), torch.float32),
        (lambda x: torch.addcmul(x, x @ x, x @ x), torch.float32),
        (lambda x: (x @ x).relu(), torch.bfloat16),
        (lambda x: (x @ x).norm(), torch.float32),
    ],
)
def test_autocast_gives_the_dtypes_of_its_lists(call, dtype: torch.dtype, device: EmulatedDevice) -> None:  # type: ignore[no-untyped-def]
    x = torch.rand(2, 2).to("neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        assert call(x).dtype == dtype


def test_autocast_refuses_binary_cross_entropy(device: EmulatedDevice) -> None:
    x = torch.rand(2).to("neuron")
    with (
        torch.autocast("neuron", dtype=torch.bfloat16),
        pytest.raises(RuntimeError, match=r"aten::binary_cross_entropy is unsafe to autocast: .*_with_logits"),
    ):
        nn.functional.binary_cross_entropy(x, x)


def test_a_weight_is_cast_once_per_autocast_region(device: EmulatedDevice) -> None:
    linear, x = nn.Linear(2, 2).to("neuron"), torch.rand(1, 2).to("neuron")
    casts: list[str] = []
    device.observe(lambda name, fell_back: casts.append(name) if name == "aten::_to_copy" else None)
    with torch.autocast("neuron", dtype=torch.bfloat16):
        low = linear(x)
        assert len(casts) == 3, "input, weight and bias"
        linear(linear(low))
    assert len(casts) == 3, "nothing new: the weight's and the bias' casts are kept, the inputs are bfloat16"
    with torch.autocast("neuron", dtype=torch.bfloat16):
        linear(low)
    assert len(casts) == 5, "the next region casts the weights again"


FORMER_CRASHES = {
    "a storage": "torch.UntypedStorage(4, device='neuron')",
    "an empty storage": "torch.UntypedStorage(device='neuron')",
    "a typed storage": "torch.TypedStorage(4, dtype=torch.float32, device='neuron')",
    "new of a storage": "x.untyped_storage().new()",
    "deepcopy": "copy.deepcopy(x)",
    "deepcopy of a storage": "copy.deepcopy(x.untyped_storage())",
    "clone of a storage": "x.untyped_storage().clone()",
    "a storage to the cpu": "x.untyped_storage().cpu()",
    "storage fill": "x.untyped_storage().fill_(0)",
    "share_memory": "x.share_memory_()",
    "load on the device": "f = io.BytesIO(); torch.save(x, f); f.seek(0); torch.load(f, map_location='neuron')",
    "pickle": "pickle.loads(pickle.dumps(x))",
    "conjugate copied": "torch.view_as_complex(x).conj().cpu()",
    "conjugate resolved": "torch.view_as_complex(x).conj().resolve_conj()",
    "conjugate printed": "repr(torch.view_as_complex(x).conj())",
    "conjugate item": "torch.view_as_complex(x).conj()[0].item()",
    "negative copied": "torch.view_as_complex(x).conj().imag.clone()",
    "fft": "torch.fft.irfft(torch.fft.rfft(x))",
    "host cache": "torch.accelerator.empty_host_cache() if hasattr(torch.accelerator, 'empty_host_cache') else None",
    "memory statistics": "torch.accelerator.memory_stats()",
    "memory info": "torch.accelerator.get_memory_info()",
    "synchronize": "torch.accelerator.synchronize()",
    "accelerator stream": "torch.accelerator.current_stream()",
    "set accelerator device": "torch.accelerator.set_device_index(0)",
    "generator": "torch.Generator(device='neuron')",
    "pinned factory": "torch.empty(2, pin_memory=True)",
    "is_pinned": "x.is_pinned()",
    "pin": "torch.ones(2).pin_memory()",
    "non blocking": "x.to('cpu', non_blocking=True)",
    "event": "e = torch.Event('neuron'); e.record(); e.synchronize()",
    "stream": "s = torch.Stream('neuron'); s.synchronize()",
    "second device": "x.to('neuron:1')",
    "sparse": "x.to_sparse()",
    "sparse coo": "torch.sparse_coo_tensor(torch.zeros(1, 1, dtype=torch.int64, device='neuron'), x[0, :1])",
    "sparse csr": "x.to_sparse_csr()",
    "nested": "torch.nested.nested_tensor([x[0], x[1]]) * 2",
    "jagged": "torch.nested.nested_tensor([x[0], x[1]], layout=torch.jagged) * 2",
    "quantized": "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)",
    "mkldnn": "x.to_mkldnn()",
    "numpy": "x.numpy()",
    "dlpack": "torch.from_dlpack(x)",
    "forward mode": "torch.func.jvp(torch.sin, (x,), (x,))",
    "zero size": "torch.empty(3, 0, device='neuron').mm(torch.empty(0, 3, device='neuron')).sum(0)",
    "huge resize": "x.resize_(2**20).sum()",
    "set to nothing": "x.set_()",
    "record stream": "x.record_stream(torch.Stream('neuron'))",
    "zero tensor": "torch._efficientzerotensor((2, 2), device='neuron') + torch._efficientzerotensor((2,)).to(x)",
    "meta": "x.to('meta') + 1",
    "mixed": "x + torch.ones(2, 2)",
    "swap": "torch.utils.swap_tensors(x, torch.ones(2, 2, device='neuron'))",
    "threads": "ts = [threading.Thread(target=lambda: x.acos().sum()) for _ in range(4)]; "
    "[t.start() for t in ts]; [t.join() for t in ts]",
}  # fmt: skip

REFUSED = {
    "generator", "pinned factory", "second device", "sparse", "sparse coo", "sparse csr", "nested", "quantized",
    "mkldnn", "numpy", "dlpack", "mixed",
}  # fmt: skip

ONE_AFTER_THE_OTHER = """
import copy, io, json, pickle, sys, threading, warnings, torch, smoketest
warnings.simplefilter("ignore")
torch.set_num_threads(1)
smoketest.emulate(warn=False)
for name, program in json.loads(sys.argv[1]).items():
    x = torch.ones(2, 2, device="neuron")
    try:
        print(name, end=": ", flush=True)
        exec(program)
    except Exception as error:
        print("refused")
    else:
        print("fine")
"""


def test_what_took_a_python_backend_down_works_or_is_refused() -> None:
    """Most of these were segmentation faults of a first version; the process must reach the last one alive."""
    command = [sys.executable, "-X", "faulthandler", "-c", ONE_AFTER_THE_OTHER, json.dumps(FORMER_CRASHES)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr[-2000:]}"
    outcome = dict(line.rsplit(": ", 1) for line in ended.stdout.splitlines())
    assert set(outcome) == set(FORMER_CRASHES)
    assert {name for name, how in outcome.items() if how == "refused"} == REFUSED
