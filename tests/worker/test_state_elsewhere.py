"""State in unusual places: a healthy model with it raises nothing, and no difference is called clean."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import state_runs

from smoketest.workload.usercode import of_user_code

START = """
import collections, random, secrets
import numpy as np
import torch
from torch import nn
N = [0]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 16)
        {init}
    def forward(self, x):
        {forward}
def make_model():
    return Net()
def make_batch(step):
    return ((torch.randn(8, 16, generator=torch.Generator().manual_seed(step)),), {{}})
def loss_fn(output, batch):
    {loss}
"""
OPTIMIZER = """
class Own(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, dict(lr=0.1))
        {init}
    def step(self, closure=None):
        rate = 1.0
        {step}
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-rate * group["lr"])
def make_optimizer(parameters):
    return Own(parameters)
"""
PLAIN = {"init": "pass", "forward": "return self.lin(x)", "loss": "return output.pow(2).mean()"}


def net(**parts: str) -> str:
    whole = PLAIN | parts
    return START.format(**whole | {key: whole[key].replace("\n", "\n        ") for key in ("init", "forward")})


def optimizer(init: str = "pass", step: str = "pass") -> str:
    return net() + OPTIMIZER.format(init=init, step=step)


LIST = {
    "init": "self.queue = []",
    "forward": "y = self.lin(x)\nself.queue.append(y.detach().mean(0)); self.queue = self.queue[-4:]\n"
    "return y - torch.stack(self.queue).mean(0)",
}
KEPT = {
    "PyTorch's own generator": net(
        init="self.g = torch.Generator().manual_seed(3)",
        forward="return self.lin(x * (torch.rand(x.shape, generator=self.g) < 0.7).to(x.device))",
    ),
    "NumPy's own generator": net(
        init="self.g = np.random.default_rng(0)", forward="return self.lin(x) * float(self.g.random())"
    ),
    "Python's own generator": net(
        init="self.g = random.Random(0)", forward="return self.lin(x) * float(self.g.random())"
    ),
    "a list of tensors": net(**LIST),
    "a deque in a dict": net(
        init="self.memory = {'last': collections.deque(maxlen=2)}",
        forward="y = self.lin(x)\nself.memory['last'].append(y.detach().mean())\nreturn y - sum(self.memory['last'])",
    ),
    "a tensor that was None": net(
        init="self.m = None",
        forward="y = self.lin(x)\nself.m = y.detach() if self.m is None else 0.9 * self.m + y.detach()\n"
        "return y - self.m",
    ),
    "the batch before": net(
        init="self.last = None",
        forward="y = self.lin(x) + (0 if self.last is None else self.last)\nself.last = x\nreturn y",
    ),
    "a number in an optimizer's state": optimizer("self.state['step'] = 0", "self.state['step'] += 1"),
    "a function in a group": optimizer("self.param_groups[0]['f'] = lambda x: x"),
    "a tensor for a parameter's state": optimizer(
        step="for p in self.param_groups[0]['params']: self.state[p] = torch.zeros(3)"
    ),
    "an optimizer's attributes": optimizer("self.t, self.old = 0, [1.0]", "self.t += 1; self.old.append(0.5 * self.t)\n"
    "        rate = self.old[-1] / len(self.old)"),
}  # fmt: skip
OBJECT = "type('Memory', (), {'total': 0.0})()"
OTHERS = {
    "wrong, and counts in a global": net(
        loss="N[0] += 1; output = output * (1.5 if output.device.type == 'neuron' else 1)\n"
        "    return output.pow(2).mean() * min(1, N[0] / 10)"
    ),
    "wrong, and remembers": net(
        **(LIST | {"forward": LIST["forward"] + " * (1.5 if x.device.type == 'neuron' else 1)"})
    ),
    "random from the system": net(
        forward="drawn = int.from_bytes(secrets.token_bytes(8), 'big') / 2**64\nreturn self.lin(x) * (1 + 99 * drawn)"
    ),
    "counts in a global": net(forward="N[0] += 1\nreturn self.lin(x) * N[0]"),
    "counts in an object": net(
        init=f"self.memory = {OBJECT}", forward="self.memory.total += 1\nreturn self.lin(x) * self.memory.total"
    ),
    "other weights": net(
        init="self.lin.weight.data.copy_(torch.tensor(list(secrets.token_bytes(256))).view(16, 16) / 256)"
    ),
    "an object in an optimizer's state": optimizer(f"self.state['memory'] = {OBJECT}"),
    "mistake of our own": net(),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("state")
    asked = []
    for place, (name, text) in enumerate((KEPT | OTHERS).items()):
        file = folder / f"w{place}.py"
        file.write_text(text)
        check = {"name": "check", "workload": str(file), "training": {"steps": 2, "warmup": 1}}
        asked.append({"check": check, "broken": name == "mistake of our own"})
    (folder / "asked.json").write_text(json.dumps(asked))
    done = subprocess.run(
        [sys.executable, str(Path(state_runs.__file__)), str(folder / "asked.json")],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(KEPT | OTHERS, json.loads(done.stdout), strict=True))


TRACING = "what an untraced step does, where it is not what the traced one showed"
TENSORS = "parity of single tensors"
PROBLEMS = {TRACING, TENSORS, "parity", "whether tracing changes the step"}


@pytest.mark.parametrize("where", KEPT)
def test_state_that_can_be_kept_is_and_the_steps_are_compared(answers: Any, where: str) -> None:
    seen = answers[where]
    assert (seen["raised"], seen["eager"], PROBLEMS & seen["notes"].keys()) == ([], "ran", set())
    assert not {"NST104", "NST106"} & seen["rules"].keys()
    assert (seen["parity"]["status"], seen["parity"]["steps"]) == ("ran", 4)
    assert seen["parity"]["tensors"] > 4
    assert seen["parity"]["max_relative_error"] < 1e-4


def test_a_difference_is_found_in_a_model_that_remembers(answers: Any) -> None:
    assert "differs from plain CPU's" in answers["wrong, and remembers"]["rules"]["NST106"]


# Two draws may come within the tolerance of each other in one step, never in all four.
@pytest.mark.parametrize(
    ("name", "step"), [("wrong, and counts in a global", "1"), ("random from the system", "[1-4]")]
)
def test_losses_that_plain_cpu_does_not_reproduce_are_not_called_compared(answers: Any, name: str, step: str) -> None:
    seen = answers[name]
    assert (seen["parity"]["status"], seen["parity"]["max_relative_error"]) == ("skipped", None)
    assert re.match(
        rf"the loss of step {step} differs from plain CPU's, but plain CPU does not give the same losses either when"
        rf" the run is made again \(step {step}\)",
        seen["parity"]["reason"],
    )
    assert "NST106" not in seen["rules"]


@pytest.mark.parametrize("name", ["counts in a global", "counts in an object"])
def test_a_step_that_cannot_be_made_again_is_left_out_and_the_others_are_compared(answers: Any, name: str) -> None:
    seen = answers[name]
    assert "NST106" not in seen["rules"]
    assert (seen["parity"]["status"], seen["parity"]["steps"], seen["parity"]["tensors"]) == ("ran", 3, None)
    assert "the traced step's loss is off by" in seen["notes"][TRACING]
    assert seen["notes"][TENSORS].endswith("its loss was not compared either")


def test_other_initial_weights_are_told_from_a_wrong_device(answers: Any) -> None:
    seen = answers["other weights"]
    assert seen["parity"]["reason"].startswith("make_model gives other weights in another process (lin.weight): ")
    assert "NST106" not in seen["rules"]


def test_an_optimizer_that_holds_an_object_is_said_to_and_its_steps_are_made(answers: Any) -> None:
    seen = answers["an object in an optimizer's state"]
    assert seen["steps_made"] == ["warmup", "timed", "timed", "traced"]
    assert seen["notes"]["whether tracing changes the step"] == "the state of a Own holds a Memory"
    assert (seen["parity"]["steps"], seen["parity"]["tensors"], seen["rules"]) == (4, None, {})


def test_a_mistake_of_the_package_is_never_a_finding_about_the_device(answers: Any) -> None:
    seen = answers["mistake of our own"]
    assert (seen["raised"], seen["rules"]) == (["raised TypeError('len() takes exactly one argument (3 given)')"], {})


def test_an_error_is_the_users_where_a_line_of_theirs_ran() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        1 / 0  # noqa: B018
    assert of_user_code(raised.value)
    raised.value.__traceback__ = None
    assert not of_user_code(raised.value)
