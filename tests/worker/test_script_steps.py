"""How the optimizer steps of a script are counted and ended, and how CUDA is mapped: on plain CPU, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from smoketest.errors import UserCodeError
from smoketest.worker.cuda_mapping import MapCuda
from smoketest.worker.script_steps import RootCalls, Steps, Stopped, run_file


class Heard:
    """A listener that writes everything down, and stops after some steps."""

    def __init__(self, enough: int = 1000) -> None:
        self.enough, self.steps = enough, 0
        self.events: list[str] = []
        self.losses: list[float] = []
        self.optimizers: list[torch.optim.Optimizer] = []

    def entering(self, phase: str) -> None:
        self.events.append(phase)

    def backward_of(self, losses: Sequence[Tensor]) -> None:
        self.losses += [float(loss.detach()) for loss in losses]

    def updating(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer not in self.optimizers:
            self.optimizers.append(optimizer)

    def step_over(self) -> bool:
        self.steps += 1
        return self.steps == self.enough


def parameter() -> nn.Parameter:
    return nn.Parameter(torch.ones(2))


def test_a_step_is_backward_and_an_optimizers_step() -> None:
    weight, heard = parameter(), Heard()
    optimizer = torch.optim.SGD([weight], lr=0.5)
    with Steps(heard):
        for _ in range(3):
            weight.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert heard.events == ["backward", "forward", "optimizer", "forward"] * 3
    assert heard.losses == [2.0, 1.0, 0.0]  # each of two weights loses a half a step
    assert heard.steps == 3


def test_two_optimizers_of_one_iteration_are_one_step() -> None:
    one, two, heard = parameter(), parameter(), Heard()
    first, second = torch.optim.SGD([one], lr=0.1), torch.optim.Adam([two], lr=0.1)
    with Steps(heard):
        for _ in range(4):
            for optimizer, weight in ((first, one), (second, two)):
                weight.sum().backward()
                optimizer.step()
    assert heard.steps == 4
    assert heard.optimizers == [first, second]


def test_accumulated_gradients_are_one_step() -> None:
    weight, heard = parameter(), Heard()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with Steps(heard):
        for _ in range(4):
            (weight.sum() / 4).backward()
        optimizer.step()
    assert (heard.steps, heard.losses) == (1, [0.5, 0.5, 0.5, 0.5])


def test_a_script_that_swallows_everything_is_stopped_at_its_next_step_again() -> None:
    weight, heard = parameter(), Heard(enough=2)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    before = weight.detach().clone()
    swallowed = 0
    with Steps(heard):
        for _ in range(5):
            weight.sum().backward()
            try:
                optimizer.step()
            except:  # noqa: E722 - as scripts do
                swallowed += 1
            optimizer.zero_grad()
    assert (heard.steps, swallowed) == (2, 4)
    assert torch.allclose(weight, before - 0.2)  # after the second step nothing is updated any more


def test_handlers_of_exceptions_let_the_end_pass_and_finally_runs() -> None:
    weight, said = parameter(), []
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.grad = torch.ones(2)

    def train() -> None:
        try:
            optimizer.step()
        except Exception:
            said.append("caught")
        finally:
            said.append("finally")

    with Steps(Heard(enough=1)), pytest.raises(Stopped):
        train()
    assert said == ["finally"]


def test_everything_is_put_back() -> None:
    before = torch.autograd.backward
    with Steps(Heard()):
        assert torch.autograd.backward is not before
    assert torch.autograd.backward is before


def test_the_modules_a_script_trains_are_those_of_its_optimizers() -> None:
    trained, frozen = nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    began: list[str] = []
    with RootCalls(first=lambda: began.append("now")) as roots:
        with torch.no_grad():
            trained(torch.ones(1, 2))  # an evaluation
        assert began == []
        trained(frozen(torch.ones(1, 2))).sum().backward()
    assert roots.trained_by([optimizer]) == [trained]
    assert began == ["now"]


def test_a_script_is_run_as_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "helper.py").write_text("word = 'beside'\n")
    script = tmp_path / "train.py"
    script.write_text("import sys, helper\nif __name__ == '__main__':\n    print(sys.argv[1:], helper.word)\n")
    run_file(script, ["--lr", "1"])
    assert capsys.readouterr().out == "['--lr', '1'] beside\n"


@pytest.mark.parametrize(("code", "raises"), [("0", False), ("", False), ("3", True), ("'no data'", True)])
def test_an_exit_code_that_tells_of_an_error_is_one(tmp_path: Path, code: str, raises: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import sys\nsys.exit({code})\n")
    if not raises:
        run_file(script, [])
        return
    with pytest.raises(UserCodeError, match="the script ended by itself with exit code"):
        run_file(script, [])


def test_cuda_is_the_device_wherever_it_is_named() -> None:
    assert not torch.cuda.is_available()
    with MapCuda("meta") as mapping:
        assert torch.cuda.is_available()
        device = torch.device("cuda", torch.cuda.current_device())
        made = [
            torch.zeros(2, device="cuda"), torch.zeros(2, device="cuda:0"), torch.ones(2).to(device),
            torch.ones(2).cuda(), nn.Linear(1, 1).cuda().weight, nn.Linear(1, 1).to("cuda").weight,
        ]  # fmt: skip
    assert {tensor.device.type for tensor in made} == {"meta"}
    assert mapping.mapped["torch.cuda.is_available"] == 1
    assert mapping.mapped["torch.zeros"] == 2
    assert mapping.mapped["Tensor.cuda"] == 1
    assert mapping.mapped["Module.cuda"] == 1
    assert not torch.cuda.is_available()
    assert torch.ones(2).device.type == "cpu"


def test_what_is_not_cuda_is_left_alone() -> None:
    with MapCuda("meta") as mapping:
        assert torch.zeros(2, device="cpu").device.type == "cpu"
    assert mapping.mapped == {}
