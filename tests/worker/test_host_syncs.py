"""Where the host waits for the device, and where it does not (NST102, NST103)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

WAITING = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 4)

    def forward(self, x):
        y = self.out(x)
        scale = y.detach().abs().max().item()
        rounded = float(y.detach()[0, 0])
        if (y.detach() < 100).all():
            y = y + 0.0 * scale + 0.0 * rounded
        places = torch.nonzero(y.detach() > 0)
        picked = y[y.detach() > 0].sum()
        chosen = torch.masked_select(y, y.detach() > 0).sum()
        kept = y.detach().cpu()
        numbers = y.detach()[0].tolist()
        array = y.detach()[1].cpu().numpy()
        whole = int(y.detach()[0, 1])
        text = f"{y.detach()[0, 2]}"
        same = torch.equal(y.detach(), y.detach())
        counts = torch.unique(places)
        turned = y.detach()[torch.tensor([1, 0])]
        packed = nn.utils.rnn.pack_padded_sequence(y.detach()[None], torch.tensor([2]), batch_first=True).data
        scaled = y.detach() * torch.tensor(2.0)
        later = y.detach().to("cpu", non_blocking=True)
        moved = torch.ones(4).to(x.device)
        rows = y[torch.tensor([0, 1], device=x.device)]
        wide = y.detach().double() * 2
        return y * moved + picked + chosen + 0.0 * rows.sum() + 0.0 * wide.float()


def make_model():
    return Net()


def make_batch(step):
    return (torch.ones(2, 4),), {}


def loss_fn(output, batch):
    return output.square().mean()


class Careful(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and bool((p.grad == p.grad).all()):
                    p.data.add_(p.grad, alpha=-0.1)


def make_optimizer(params):
    return Careful(params, lr=0.1)
"""


@pytest.fixture(scope="module")
def waiting(run_worker: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("waiting") / "waiting.py"
    file.write_text(WAITING)
    return run_worker({"workload": str(file), "training": {"steps": 1}})


def waits(worker: Any) -> dict[str, tuple[str, str | None, int | None]]:
    return {
        f.site.code: (f.op, f.phase, f.calls_per_step)
        for f in worker.findings
        if f.rule == "NST103" and f.phase == "forward"
    }


def test_each_way_to_wait_for_the_device_is_a_finding_at_its_line(waiting: Any) -> None:
    assert waiting.eager.status == "ran"
    assert waits(waiting) == {
        "scale = y.detach().abs().max().item()": ("aten::_local_scalar_dense", "forward", 1),
        "rounded = float(y.detach()[0, 0])": ("aten::_local_scalar_dense", "forward", 1),
        "if (y.detach() < 100).all():": ("aten::_local_scalar_dense", "forward", 1),
        "places = torch.nonzero(y.detach() > 0)": ("aten::nonzero", "forward", 1),
        "picked = y[y.detach() > 0].sum()": ("aten::index.Tensor", "forward", 1),
        "chosen = torch.masked_select(y, y.detach() > 0).sum()": ("aten::masked_select", "forward", 1),
        "kept = y.detach().cpu()": ("aten::_to_copy", "forward", 1),
        "numbers = y.detach()[0].tolist()": ("aten::_to_copy", "forward", 1),
        "array = y.detach()[1].cpu().numpy()": ("aten::_to_copy", "forward", 1),
        "whole = int(y.detach()[0, 1])": ("aten::_local_scalar_dense", "forward", 1),
        'text = f"{y.detach()[0, 2]}"': ("aten::_local_scalar_dense", "forward", 1),
    }


def test_a_wait_in_an_op_that_fell_back_is_the_fallbacks_finding_at_the_same_line(waiting: Any) -> None:
    fell_back = {f.site.code: f.op for f in waiting.findings if f.rule == "NST101" and f.phase == "forward"}
    assert fell_back["same = torch.equal(y.detach(), y.detach())"] == "aten::equal"
    assert fell_back["counts = torch.unique(places)"] == "aten::_unique2"


def test_a_tensor_that_is_printed_is_a_wait_at_the_line_that_prints(run_worker: Any, tmp_path: Path) -> None:
    file = tmp_path / "printing.py"
    file.write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        y = super().forward(x)\n"
        "        print(y)\n"
        "        return y\n"
        "def make_model():\n"
        "    return Net(4, 4)\n"
        "def make_batch(step):\n"
        "    return (torch.ones(2, 4),), {}\n"
        "def loss_fn(output, batch):\n"
        "    return output.square().mean()\n"
    )
    worker = run_worker({"workload": str(file), "training": {"steps": 1}})
    assert waits(worker).keys() == {"print(y)"}


def test_the_cost_of_a_copy_and_the_module_that_waits_are_told(waiting: Any) -> None:
    (copy,) = [f for f in waiting.findings if f.site.code == "kept = y.detach().cpu()"]
    assert copy.bytes_per_step == 2 * 4 * 4
    assert [(m.pattern, m.calls) for m in copy.modules] == [("Net", 1)]
    assert copy.class_ == "host_sync"
    assert copy.message.startswith("a tensor is copied from the device to the host")
    assert copy.remedy == "Keep the tensor on the device, or copy it once in many steps."
    (masked, _) = [f for f in waiting.findings if f.site.code == "picked = y[y.detach() > 0].sum()"]
    assert masked.phase == "backward"  # it selects by the mask again
    assert masked.remedy.startswith("Keep the full size and let a mask decide")


def test_what_an_optimizer_reads_is_a_finding_at_its_line_and_what_the_runner_reads_is_none(waiting: Any) -> None:
    (found,) = [f for f in waiting.findings if f.rule == "NST103" and f.phase not in ("forward", "backward")]
    assert found.site.code == "if p.grad is not None and bool((p.grad == p.grad).all()):"
    assert (found.phase, found.calls_per_step) == ("optimizer", 2)  # a weight and a bias
    assert [(m.pattern, m.calls) for m in found.modules] == [("Careful", 2)]
    assert found.remedy.startswith("Do not branch on a tensor")


COMMON = """import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW
MADE = [
    lambda p: AdamW(p), lambda p: AdamW(p, foreach=True), lambda p: AdamW(p, foreach=False),
    lambda p: AdamW(p, fused=True), lambda p: AdamW(p, capturable=True, foreach=True),
    lambda p: AdamW(p, capturable=True, foreach=False), lambda p: AdamW(p, amsgrad=True),
    lambda p: Adam(p), lambda p: Adam(p, fused=True), lambda p: Adam(p, weight_decay=0.1),
    lambda p: SGD(p, lr=0.1, momentum=0.9), lambda p: SGD(p, lr=0.1, foreach=True),
    lambda p: SGD(p, lr=0.1, foreach=False), lambda p: SGD(p, lr=0.1, fused=True, momentum=0.9, nesterov=True),
]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(3, 3) for _ in MADE)

    def forward(self, x):
        return sum(part(x).square().mean() for part in self.parts)


def make_model():
    return Net()


def make_batch(step):
    return (torch.ones(2, 3),), {}


def loss_fn(output, batch):
    return output


def make_optimizer(params):
    params = list(params)
    return [make(params[2 * place : 2 * place + 2]) for place, make in enumerate(MADE)]
"""


def test_the_common_optimizers_read_nothing_from_the_device(run_worker: Any, tmp_path: Path) -> None:
    file = tmp_path / "common.py"
    file.write_text(COMMON)
    worker = run_worker({"workload": str(file), "training": {"steps": 1, "clip_grad_norm": 1.0}})
    assert worker.eager.status == "ran", worker.output
    assert [(f.phase, f.message) for f in worker.findings if f.rule == "NST103"] == []


SEARCHING = """import torch
from torch import nn


def make_model():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def make_batch(step):
    return (torch.randn(8, 6, generator=torch.Generator().manual_seed(step)),), {}


def make_optimizer(params):
    return torch.optim.LBFGS(params, max_iter=2, line_search_fn="strong_wolfe")


def train_step(model, batch, optimizer):
    def closure():
        optimizer.zero_grad()
        loss = model(*batch[0]).square().mean()
        loss.backward()
        return loss

    return optimizer.step(closure).detach()
"""


def test_what_pytorchs_optimizers_read_is_told_at_their_lines_with_the_users_that_called(
    run_worker: Any, tmp_path: Path
) -> None:
    file = tmp_path / "searching.py"
    file.write_text(SEARCHING)
    worker = run_worker({"workload": str(file), "training": {"steps": 1}})
    found = {f.site.code: f for f in worker.findings if f.rule == "NST103"}
    assert {f.site.file for f in found.values()} == {"torch/optim/lbfgs.py"}
    assert {f.phase for f in found.values()} == {"optimizer"}
    read = found["loss = float(closure())"]
    assert read.message.endswith("(called from searching.py:24)")
    assert read.remedy.startswith("The line is of torch, not yours, in LBFGS: see whether an option of the optimizer")


def test_a_line_with_64_bit_floats_is_possible_hidden_host_work(waiting: Any) -> None:
    (found,) = [f for f in waiting.findings if f.rule == "NST102" and f.op is None]
    assert found.site.code == "wide = y.detach().double() * 2"
    assert found.message.startswith("possible hidden host work: 64-bit floats")


def test_a_cpu_tensor_among_the_arguments_crosses_in_each_call_and_a_number_is_none(waiting: Any) -> None:
    (found,) = [f for f in waiting.findings if f.rule == "NST102" and f.op is not None]
    assert (found.op, found.site.code) == ("aten::index.Tensor", "turned = y.detach()[torch.tensor([1, 0])]")
    assert (found.calls_per_step, found.bytes_per_step, found.phase) == (1, 2 * 8, "forward")
    assert found.message == (
        "aten::index.Tensor takes a CPU tensor beside those of the device: it is copied there in each call"
    )


def test_host_work_that_healthy_models_meet_is_summed_up_and_no_finding(run_worker: Any, tmp_path: Path) -> None:
    file = tmp_path / "healthy.py"
    file.write_text(
        "import torch\n"
        "from torch import nn\n"
        "def make_model():\n"
        "    return nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.1), nn.Linear(4, 4))\n"
        "def make_batch(step):\n"
        "    return (torch.arange(8),), {}\n"
        "def loss_fn(output, batch):\n"
        "    return output.square().mean()\n"
    )
    worker = run_worker({"workload": str(file), "training": {"steps": 1}})
    assert worker.findings == ()
    (note,) = [n.not_checked for n in worker.of("note") if n.not_checked.what.startswith("host work hidden")]
    assert "64-bit integers are cast to 32 bits and back through the CPU in each call (2 calls" in note.why
    assert "dropout masks and random numbers are sampled on the CPU (1 call in the traced step)" in note.why
