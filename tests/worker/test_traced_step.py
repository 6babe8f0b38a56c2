"""The traced step is the untraced one, or the report says that it is not; and what a move leaves, in real runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from smoketest.witness.digest import digest_of
from smoketest.worker.again import Outcome, disagreement

SHORT = {"training": {"steps": 1, "warmup": 1}}
WHAT = "what an untraced step does, where it is not what the traced one showed"

WATCHED = """import torch
from torch import nn
from torch._C import _len_torch_dispatch_stack


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = torch.dropout(self.a(x), 0.5, True)
        if _len_torch_dispatch_stack():
            y = torch.atan2(y, x)
        return y * self.calls


def make_model():
    return Net()


def make_batch(step):
    return {"x": torch.rand(2, 4) + 1}


def loss_fn(output, batch):
    return output.square().sum()
"""

LEFT = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight.data = self.a.weight.data
        self.copied = torch.ones(4)
        self.mixed = torch.ones(4)
        self.unused = torch.ones(4)
        self.never = nn.LazyLinear(3)

    def forward(self, x):
        y = self.b(self.a(x)) * self.copied.to(x.device)
        return torch.nn.functional.prelu(y, self.mixed)


def make_model():
    return Net()


def make_batch(step):
    return {"x": torch.ones(2, 4)}


def loss_fn(output, batch):
    return output.square().sum()
"""

UNTIES = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(8, 4), nn.Linear(4, 8)
        self.head.weight = self.emb.weight

    def forward(self, x):
        return self.head(self.emb(x))


def make_model():
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # what some backends do
    return Net()


def make_batch(step):
    return {"x": torch.arange(8)}


def loss_fn(output, batch):
    return output.square().sum()
"""


def ran(run_worker: Any, folder: Path, text: str) -> tuple[Any, dict[str, str]]:
    file = folder / "net.py"
    file.write_text(text)
    worker = run_worker({"workload": str(file), **SHORT})
    assert worker.eager.status == "ran"
    return worker, {note.not_checked.what: note.not_checked.why for note in worker.of("note")}


def test_a_step_that_changes_when_it_is_watched_is_said_to_and_in_which_op(run_worker: Any, tmp_path: Path) -> None:
    _, notes = ran(run_worker, tmp_path, WATCHED)
    assert "the traced step's loss is off by" in notes[WHAT]
    assert "the gradients of a.weight, a.bias differ" in notes[WHAT]
    assert "aten::atan2 ran on the CPU in the traced step only" in notes[WHAT]


def test_what_only_the_watched_step_raises_is_said_to_and_is_no_finding(run_worker: Any, tmp_path: Path) -> None:
    raising = WATCHED.replace("if _len_torch_dispatch_stack():", "if _len_torch_dispatch_stack() and 1 / 0:")
    worker, notes = ran(run_worker, tmp_path, raising)
    assert [f.rule for f in worker.findings if f.rule == "NST104"] == []
    assert [step.role for step in worker.eager.steps] == ["warmup", "timed"]
    assert worker.eager.op_calls is None
    assert notes["what the traced step would have shown"] == (
        "it raised ZeroDivisionError: division by zero; made from the same state with no dispatch mode it came to its "
        "end"
    )
    assert notes["lines, counts and host synchronisation of all of the step"] == (
        "the traced step did not come to its end: they are told as far as it came"
    )


def test_one_that_draws_counts_and_makes_its_batch_from_the_global_state_agrees(
    run_worker: Any, tmp_path: Path
) -> None:
    text = WATCHED.replace("if _len_torch_dispatch_stack():", "if x.sum() < 0:")
    worker, notes = ran(run_worker, tmp_path, text)
    assert not [what for what in notes if "trac" in what]
    assert [finding.rule for finding in worker.findings] == ["NST103"]  # the condition


def test_tensors_left_on_the_cpu_are_findings_only_where_they_meet_the_device(run_worker: Any, tmp_path: Path) -> None:
    worker, notes = ran(run_worker, tmp_path, LEFT)
    found = {f.message: f.site and f.site.code for f in worker.findings if f.rule == "NST107"}
    assert found == {
        "mixed stayed on the CPU: it is neither parameter nor buffer, and `.to()` moves no others": (
            "self.mixed = torch.ones(4)"
        ),
        "a.weight, b.weight shared their memory before the move, and do not now; never.weight, never.bias: lazy, and"
        " still without a shape after one forward, so no optimizer trains them": None,
    }
    stayed = notes["tensors that stayed on the CPU when the model was moved, for other steps than these"]
    assert stayed == "copied to the device in every step: copied; not used in the traced step: unused"


def test_a_tied_weight_that_the_move_unties_is_denied(run_worker: Any, tmp_path: Path) -> None:
    worker, _ = ran(run_worker, tmp_path, UNTIES)
    (finding,) = [finding for finding in worker.findings if finding.rule == "NST107"]
    assert finding.message == "emb.weight, head.weight were one parameter before the move, and are 2 now"
    assert finding.class_ == "moved"


def outcome(gradient: list[float], loss: float | None = 1.0, **names: frozenset[str]) -> Outcome:
    digest = digest_of(torch.tensor(gradient))
    assert digest is not None
    return Outcome(loss=loss, gradients={"w": digest}, **names)


ONE = [1.0, 2.0]


@pytest.mark.parametrize(
    ("traced", "said"),
    [
        (outcome(ONE), None),
        (outcome([1.0, 2.00001], loss=1.00001), None),
        (
            outcome(ONE, fell_back=frozenset({"aten::sort.values_stable"})),
            "aten::sort ran on the CPU in the traced step only",
        ),
        (
            outcome(ONE, loss=None),
            "the loss is finite in one of them only; which op makes the difference is not known;",
        ),
        (
            outcome([1.0, 2.1], executed=frozenset({"aten::index_put"})),
            "the gradients of w differ; kernels that ran in only one of them: aten::index_put",
        ),
        (outcome(ONE, loss=1.5), "the traced step's loss is off by 5.0e-01 of the untraced one's; which op makes"),
    ],
)
def test_two_steps_agree_but_for_rounding_or_it_is_said_how_they_do_not(traced: Outcome, said: str | None) -> None:
    told = disagreement(outcome(ONE), traced)
    assert told is None if said is None else (told or "").startswith(said)


CALLER = """
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "site-packages"))
from hub.models.gate import Gate

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.lin = Gate(), torch.nn.Linear(8, 1)

    def forward(self, x):
        y = self.gate(x)
        y = self.gate(y)  # twice
        for _ in range(2):
            y = self.gate(y)  # in a loop
        return self.lin(y)

def make_model():
    return Net()

def make_batch(step):
    return {"x": torch.ones(2, 8)}

def loss_fn(output, batch):
    return output.sum()
"""
GATE = """
import torch

class Gate(torch.nn.Module):
    def forward(self, x):
        return x + 1 if bool(x.sum() > 0) else x
"""


def test_where_the_host_waits_in_a_librarys_line_the_users_own_that_called_it_are_told(
    run_worker: Any, tmp_path: Path
) -> None:
    package = tmp_path / "site-packages" / "hub" / "models"
    package.mkdir(parents=True)
    (package / "gate.py").write_text(GATE)
    worker, _ = ran(run_worker, tmp_path, CALLER)
    (found,) = worker.findings
    assert (found.rule, found.calls_per_step, found.site.file, found.site.line) == (
        "NST103", 4, "hub/models/gate.py", 6,
    )  # fmt: skip
    lines = {text.strip(): number for number, text in enumerate(CALLER.splitlines(), 1)}
    loop, first, second = (
        lines["y = self.gate(y)  # in a loop"],
        lines["y = self.gate(x)"],
        lines["y = self.gate(y)  # twice"],
    )
    assert found.message == (
        "a value of the device is read on the host (`.item()`, `float(t)`, `if t:`), which waits for the device "
        f"(called from net.py:{loop}, net.py:{first}, net.py:{second})"
    )


CTC = """
import torch
import torch.nn.functional as F

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 6)

    def forward(self, x):
        return F.log_softmax(self.lin(x), -1)

def make_model():
    return Net()

def make_batch(step):
    return {"x": torch.ones(10, 2, 4)}

def loss_fn(output, batch):
    targets = torch.ones(2, 3, dtype=torch.long, device=output.device)
    lengths, target_lengths = torch.tensor([10, 9], device="cpu"), torch.tensor([3, 2], device="cpu")
    return F.ctc_loss(output, targets, lengths, target_lengths)
"""


def test_lengths_that_ctc_loss_takes_on_the_cpu_are_no_trouble_in_the_traced_step_either(
    run_worker: Any, tmp_path: Path
) -> None:
    worker, _ = ran(run_worker, tmp_path, CTC)
    assert [(f.rule, f.op) for f in worker.findings] == [
        ("NST101", "aten::_ctc_loss_backward"),
        ("NST101", "aten::_ctc_loss"),
    ]


def test_lengths_that_ctc_loss_copies_to_the_host_are_told_of_in_its_line(run_worker: Any, tmp_path: Path) -> None:
    worker, _ = ran(run_worker, tmp_path, CTC.replace('device="cpu"', "device=output.device"))
    (copied,) = (f for f in worker.findings if f.rule == "NST103")
    assert (copied.op, copied.calls_per_step, copied.bytes_per_step) == ("aten::_to_copy", 2, 32)
    assert copied.site.code == "return F.ctc_loss(output, targets, lengths, target_lengths)"
    assert copied.remedy == (
        "If it is ctc_loss that copies: it needs input_lengths and target_lengths on the host, so leave them on the "
        "CPU when the batch is moved, or give tuples of numbers."
    )
