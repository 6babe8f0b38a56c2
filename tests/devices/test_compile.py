"""torch.compile on the device: the backend ``neuron``, and kernels that Dynamo never traces."""

from __future__ import annotations

import copy
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from smoketest.devices.emulated import EmulatedDevice, compat
from smoketest.devices.emulated.install import kept_out

long = pytest.mark.skipif(os.environ.get("SMOKETEST_LONG") != "1", reason="long: `make compiled` runs it")


@pytest.fixture(autouse=True)
def fresh_dynamo(device: EmulatedDevice) -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))


def test_the_backend_is_listed() -> None:
    assert "neuron" in torch._dynamo.list_backends(exclude_tags=None)


def test_a_compiled_model_trains_as_the_eager_one(device: EmulatedDevice) -> None:
    eager = net().to("neuron")
    compiled_from = copy.deepcopy(eager)
    compiled = torch.compile(compiled_from, backend="neuron", dynamic=False)
    for _ in range(2):
        x = torch.randn(2, 1, 8, 8).to("neuron")
        torch.testing.assert_close(compiled(x).cpu(), eager(x).cpu())
        compiled(x).square().sum().backward()
        eager(x).square().sum().backward()
    for one, other in zip(compiled_from.parameters(), eager.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(one.grad.cpu(), other.grad.cpu())
    assert counters["stats"]["unique_graphs"] >= 1


def test_a_compiled_graph_is_one_program_none_of_whose_ops_is_tracked(device: EmulatedDevice) -> None:
    """Eager floor falls back; under torch.compile the graph lowers, and nothing of it runs on the CPU by itself."""
    x = torch.tensor([0.5, 1.5]).to("neuron")
    device.clear_op_tracking()
    y = torch.compile(lambda t: t.floor() * 2, backend="neuron", dynamic=False)(x)
    assert (device.get_fallback_ops(), device.get_executed_ops()) == ([], [])
    assert y.tolist() == [0.0, 2.0]
    assert y.device.type == "neuron"


def test_a_mode_of_torch_compile_is_refused_in_the_backends_words(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        torch.compile(lambda t: t + 1, backend="neuron", mode="max-autotune")(torch.ones(2, device="neuron"))
    assert [(r.name, r.getMessage()) for r in caplog.records if r.name == "root"] == [
        ("root", "Neuron backend does not support mode='max-autotune', falling back to default mode.")
    ]


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # of Inductor's own
def test_without_a_backend_the_device_chooses_its_own(device: EmulatedDevice) -> None:
    """[PUB] reference-torch-compile: auto-selected when running on a Neuron device."""
    torch.neuron.reset_dynamo_metrics()  # type: ignore[attr-defined]
    assert torch.compile(lambda t: t + 1)(torch.ones(2, device="neuron")).tolist() == [2.0, 2.0]
    assert len(torch.neuron.get_dynamo_metrics()) == 1  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # of Inductor's own
def test_elsewhere_the_default_backend_is_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.compile_fx

    called: list[int] = []

    def compile_fx(graph: torch.fx.GraphModule, inputs: list[Tensor], **options: object) -> object:
        called.append(len(inputs))
        return graph.forward

    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx", compile_fx)
    assert torch.compile(lambda t: t + 1)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert called == [1]


def broken(x: Tensor) -> Tensor:
    y = torch.sin(x) * 2
    torch._dynamo.graph_break()
    return (torch.floor(y * 0.1) + torch.sort(y)[0]).sum()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo's own, on the CPU too
def test_a_graph_break_leaves_only_the_users_own_frames(device: EmulatedDevice) -> None:
    compiled = torch.compile(broken, backend="neuron", dynamic=False)
    x = torch.rand(3, 3, device="neuron", requires_grad=True)
    for _ in range(3):
        compiled(x).backward()  # type: ignore[no-untyped-call]
    assert dict(counters["frames"]) == {"total": 2, "ok": 2}, "broken, and its rest after the break"
    assert counters["stats"]["unique_graphs"] == 2


SKIPPED_FRAME = """
import torch, smoketest
from smoketest.devices.emulated import compat
{sabotage}
device = smoketest.emulate(warn=False)
device.continue_past_errors = True
from torch._dynamo.utils import counters
cells = torch.nn.GRU(4, 4).to("neuron")
compiled = torch.compile(lambda x: cells(x)[0].sort(0)[0].sum(), backend="eager", dynamic=False)
for _ in range(2):
    compiled(torch.randn(3, 2, 4).to("neuron")).backward()
print(counters["frames"]["total"])
"""


@pytest.mark.parametrize(
    ("sabotage", "frames"),
    [("", 1), pytest.param("compat.keep_out_of_dynamo = lambda module: None", None, marks=long)],
)
def test_no_frame_of_the_device_is_traced_when_dynamo_skips_the_users(sabotage: str, frames: int | None) -> None:
    """Dynamo gives up on nn.GRU and runs it eagerly, with our kernels as the next Python frames it meets.

    The second case takes the protection away, to prove that the first can fail.
    """
    program = SKIPPED_FRAME.format(sabotage=sabotage)
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert int(out) == frames if frames is not None else int(out) > 1


def test_autocast_inside_and_outside_a_compiled_function(device: EmulatedDevice) -> None:
    linear = nn.Linear(4, 4).to("neuron")
    x = torch.ones(2, 4, device="neuron")

    def inside(t: Tensor) -> Tensor:
        with torch.autocast("neuron", dtype=torch.bfloat16):
            out: Tensor = linear(t)
            return out

    assert torch.compile(inside, backend="neuron", dynamic=False)(x).dtype == torch.bfloat16
    with torch.autocast("neuron", dtype=torch.bfloat16):
        assert torch.compile(linear, backend="neuron", dynamic=False)(x).dtype == torch.bfloat16


def test_emulating_does_not_import_dynamo_and_registers_when_somebody_does(tmp_path: Path) -> None:
    """And the table of metrics that a variable asks for is written when the process ends ([PRE])."""
    program = (
        "import sys, torch, smoketest; loaded = 'torch._dynamo' in sys.modules; smoketest.emulate(warn=False);"
        "assert loaded == ('torch._dynamo' in sys.modules); import torch._dynamo as d;"
        "assert 'neuron' in d.list_backends(); f = torch.compile(lambda x: x + 1, backend='neuron');"
        "assert f(torch.ones(2, device='neuron')).tolist() == [2, 2]"
    )
    settings = {"TORCH_NEURONX_ENABLED_METRIC_TABLES": "graph_stats", "TORCH_NEURONX_METRICS_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, **settings})
    head, row = (tmp_path / "metric_table_graph_stats_rank0.csv").read_text().splitlines()
    assert head == (
        "graph_id,graph_name,model_name,has_collectives,graph_node_count,timestamp,torch_neuronx_fx_passes_us,"
        "torch_neuronx_lower_us,torch_neuronx_compile_us"
    )
    assert row.split(",")[1] == "model_default_0_inference_0"


def test_every_module_with_code_that_runs_in_an_op_is_kept_out() -> None:
    """The effect of being kept out is what the two tests above observe; PyTorch has no reader for the mark itself."""
    folder = Path(compat.__file__).parent
    here = {path.stem for room in (folder, folder / "distributed") for path in room.glob("*.py")}
    assert {module.__name__.rpartition(".")[2] for module in kept_out()} == here - {
        "__init__",
        "device",
        "adapter",
        "shim",
    }
