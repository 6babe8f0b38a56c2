"""PyTorch's own code takes another way under a dispatch mode: the report tells what the untraced step does."""

from __future__ import annotations

from typing import Any

import pytest

OTHER_BRANCH = """import torch
from torch import nn
from torch._C import _len_torch_dispatch_stack


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x) + 3
        z = y.cumprod(-1)
        p = y.prod(-1)
        inverse = torch.linalg.inv(torch.eye(4, device=x.device) * 2)
        near = torch.allclose(y.detach(), y.detach())
        if _len_torch_dispatch_stack():
            near = torch.atan2(y.detach(), y.detach())
        longer = y.detach().repeat_interleave(torch.tensor([1, 2], device=x.device), 0)
        given = y.detach().repeat_interleave(torch.tensor([1, 2], device=x.device), 0, output_size=3)
        return z.sum() + p.sum() + inverse.sum()


def make_model():
    return Net()


def make_batch(step):
    return {"x": torch.rand(2, 4) + 1}


def loss_fn(output, batch):
    return output
"""


@pytest.fixture(scope="module")
def report(run_worker: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("branch") / "net.py"
    file.write_text(OTHER_BRANCH)
    return run_worker({"workload": str(file), "training": {"steps": 1, "warmup": 1}})


def test_a_fallback_of_the_traced_step_alone_is_no_finding_and_is_noted(report: Any) -> None:
    assert report.eager.status == "ran"
    fell_back = {(f.op, f.phase) for f in report.findings if f.rule == "NST101"}
    assert ("aten::cumprod.out", "forward") in fell_back
    assert ("aten::cumprod.out", "backward") not in fell_back
    assert not [op for op, _ in fell_back if "atan2" in op]
    (note,) = [n.not_checked for n in report.of("note") if n.not_checked.what.startswith("what an untraced step")]
    assert "aten::atan2 ran on the CPU in the traced step only" in note.why
    (dropped,) = [n.not_checked for n in report.of("note") if n.not_checked.what.startswith("fallbacks that only")]
    assert dropped.why.endswith("aten::atan2.out in forward, aten::cumprod.out in backward")


def test_a_value_that_is_read_in_the_untraced_step_alone_is_told_at_the_line_of_its_op(report: Any) -> None:
    waits = {
        (f.site.code, f.op): f.calls_per_step
        for f in report.findings
        if f.rule == "NST103" and f.phase == "backward" and f.site
    }
    assert waits[("z = y.cumprod(-1)", "aten::_local_scalar_dense")] == 1
    assert waits[("p = y.prod(-1)", "aten::_local_scalar_dense")] == 1


CLOSURE = """import torch
from torch import nn


def make_model():
    return nn.Linear(4, 4)


def make_batch(step):
    return {"input": torch.rand(2, 4)}


def make_optimizer(params):
    return torch.optim.LBFGS(params, max_iter=2)


def train_step(model, batch, optimizer):
    def closure():
        optimizer.zero_grad()
        y = model(batch["input"])
        loss = torch.atan2(y, y + 9).square().sum()
        loss.backward()
        seen = loss.item()
        return loss

    return optimizer.step(closure)
"""


def test_the_closure_of_an_optimizer_is_forward_and_backward_and_in_no_optimizer(
    run_worker: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("closure") / "net.py"
    file.write_text(CLOSURE)
    report = run_worker({"workload": str(file), "training": {"steps": 1, "warmup": 1}})
    assert report.eager.status == "ran"
    found = {(f.rule, f.phase, f.site.code): [m.pattern for m in f.modules] for f in report.findings if f.site}
    of_the_optimizer = {key for key in found if key[1] == "optimizer"}
    assert {(rule, *found[rule, phase, code]) for rule, phase, code in of_the_optimizer} == {("NST103", "LBFGS")}
    assert {key: modules for key, modules in found.items() if key not in of_the_optimizer} == {
        ("NST101", "forward", "loss = torch.atan2(y, y + 9).square().sum()"): [],
        ("NST103", "forward", "seen = loss.item()"): [],
    }


def test_a_value_that_is_read_within_an_op_is_told(report: Any) -> None:
    waits = {f.site.code: f for f in report.findings if f.rule == "NST103" and f.phase == "forward" and f.site}
    assert waits["near = torch.allclose(y.detach(), y.detach())"].op == "aten::allclose"
    checked = waits["inverse = torch.linalg.inv(torch.eye(4, device=x.device) * 2)"]
    assert checked.op == "aten::_linalg_check_errors"
    assert checked.message.startswith("a function of torch.linalg reads its error code")


def test_repeats_on_the_device_are_read_unless_the_size_is_given(report: Any) -> None:
    (found,) = [f for f in report.findings if f.rule == "NST103" and f.site and "repeat_interleave" in f.site.code]
    assert found.site.code.startswith("longer =")
    assert "output_size=n" in found.remedy
