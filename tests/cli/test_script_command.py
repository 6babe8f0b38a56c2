"""`smoketest script` on unmodified training scripts: the losses of plain CPU, and a report like a check's.

The scripts are in tests/scripts. One of them runs in `make test`; `make scripts` runs all five.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
LONG = os.environ.get("SMOKETEST_LONG") == "1"
long = pytest.mark.skipif(not LONG, reason="long: `make scripts` runs it")


@dataclass(frozen=True)
class Run:
    code: int
    stderr: str
    report: dict[str, Any]
    printed: str

    @property
    def losses(self) -> list[float]:
        return _losses(self.printed)


def _losses(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"^loss (\S+)$", text, re.MULTILINE)]


def script(folder: Path, path: Path, *arguments: str) -> Run:
    command = [sys.executable, "-m", "smoketest", "script", str(path), "--device", "emulated", "-q"]
    done = subprocess.run(
        [*command, "--output", str(folder), *arguments], capture_output=True, text=True, timeout=280, cwd=folder
    )
    report = folder / path.stem / "report.json"
    log = folder / path.stem / "log" / "eager.log"
    return Run(
        done.returncode,
        done.stderr,
        json.loads(report.read_text()) if report.exists() else {},
        log.read_text() if log.exists() else "",
    )


def on_cpu(folder: Path, path: Path) -> list[float]:
    """The losses that plain Python prints. The script for Trainium alone has to be told of the CPU."""
    source = path.read_text()
    if "torch_neuronx" in source:
        source = "\n".join(line for line in source.splitlines() if "torch_neuronx" not in line)
        path = folder / "on_cpu.py"
        path.write_text(source.replace('"neuron"', '"cpu"'))
    arguments = ["--cpu"] if '"--cpu"' in source else []
    done = subprocess.run(
        [sys.executable, str(path), *arguments], capture_output=True, text=True, timeout=120, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return _losses(done.stdout)


@pytest.mark.parametrize(
    ("name", "arguments", "needs", "losses"),
    [
        ("plain_cuda", ("--map-cuda",), None, 4),
        ("tracker", (), None, 4),
        ("with_accelerate", (), "accelerate", 9),  # two micro-batches a step, and none is printed after the last
        ("evaluates", (), None, 4),
        ("with_trainer", (), "accelerate", 4),
    ],
)
def test_a_public_style_script_runs_unmodified_with_the_losses_of_plain_cpu(
    tmp_path: Path, name: str, arguments: tuple[str, ...], needs: str | None, losses: int
) -> None:
    if not LONG and name != "tracker":
        pytest.skip("long: `make scripts` runs it")
    if needs is not None and find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    seen = script(tmp_path, SCRIPTS / f"{name}.py", "--steps", "3", *arguments)
    assert seen.code == 0, seen.stderr
    assert [step["role"] for step in seen.report["eager"]["steps"]] == ["warmup", "timed", "timed", "timed", "traced"]
    assert {finding["verdict"] for finding in seen.report["findings"]} <= {"warn"}
    assert seen.report["eager"]["op_calls"] > 40
    assert len(seen.losses) >= losses
    plain = on_cpu(tmp_path, SCRIPTS / f"{name}.py")
    assert seen.losses == pytest.approx(plain[: len(seen.losses)], rel=1e-4)
    assert len(plain) > len(seen.losses)  # it was stopped


def test_a_model_moved_to_a_mapped_cuda_is_captured_as_any_other(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\nfrom torch import nn\nnet = nn.Sequential(nn.Linear(4, 4), nn.GELU()).cuda()\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for step in range(9):\n"
        "    loss = net(torch.ones(2, 4).cuda()).sum()\n    loss.backward()\n"
        "    optimizer.step()\n    optimizer.zero_grad()\n"
    )
    seen = script(tmp_path, path, "--steps", "1", "--map-cuda", "--probe")
    assert seen.code == 0, seen.stderr
    assert [graph["direction"] for graph in seen.report["compile"]["graphs"]] == ["forward", "backward"]
    assert seen.report["findings"] == []


def test_a_model_that_asks_for_cuda_itself_is_said_to_be_captured_badly(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(4, 4)\n"
        "    def forward(self, x):\n        return self.layer(x) + torch.ones(4, device='cuda')\n"
        "net = Net().cuda()\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for step in range(9):\n"
        "    net(torch.ones(2, 4).cuda()).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
    )
    seen = script(tmp_path, path, "--steps", "1", "--map-cuda", "--probe")
    notes = {entry["what"]: entry["why"] for entry in seen.report["not_checked"]}
    assert notes["graphs of Net"].startswith("it asks for CUDA in its forward")


TRAIN = """
import sys
import torch
from torch import nn

device = torch.accelerator.current_accelerator()
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to(device)
critic = nn.Linear(4, 1).to(device)
optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (net, critic)]
try:
    for step in range(int(sys.argv[1])):
        x = torch.ones(2, 4).to(device)
        made = net(x)
        loss = critic(made).square().mean() + torch.lgamma(made + 3).mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
finally:
    print("ended cleanly", flush=True)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(TRAIN)
    return script(folder, folder / "train.py", "--steps", "1", "--probe", "--", "50")


def test_a_fallback_in_a_script_is_found_at_its_line(trained: Run) -> None:
    assert trained.code == 1, trained.stderr
    (found,) = [f for f in trained.report["findings"] if f["rule"] == "NST101" and f["phase"] == "forward"]
    line = next(number for number, text in enumerate(TRAIN.splitlines(), 1) if "lgamma" in text)
    assert (found["op"], found["site"]["file"], found["site"]["line"]) == ("aten::lgamma.out", "train.py", line)
    assert (found["verdict"], found["calls_per_step"], found["exact"]) == ("deny", 1, True)
    assert not [f for f in trained.report["findings"] if f["phase"] == "setup"]


def test_a_step_of_two_optimizers_is_one_step_and_has_their_modules(trained: Run) -> None:
    report = trained.report
    assert [step["role"] for step in report["eager"]["steps"]] == ["warmup", "timed", "traced"]
    assert all(step["loss"] > 0 for step in report["eager"]["steps"])
    assert report["workload"]["model"] == "Sequential, Linear"
    assert report["workload"]["training"]["script"] == "train.py 50"
    assert report["command"].endswith("--probe -- 50")


def test_the_script_is_stopped_so_that_its_finally_runs(trained: Run) -> None:
    assert trained.printed.count("ended cleanly") == 1


def test_the_probe_goes_through_the_modules_that_the_script_trains(trained: Run) -> None:
    compile_part = trained.report["compile"]
    assert compile_part["status"] == "ran"
    assert {graph["id"].partition(".")[0] for graph in compile_part["graphs"]} == {"0", "1"}  # two modules
    assert compile_part["ops_failed"] == 0


def test_what_is_not_known_of_a_script_is_said(trained: Run) -> None:
    told = {entry["what"]: entry["why"] for entry in trained.report["not_checked"]}
    assert told["parity"] == "the state of a script is not ours to begin again from"
    assert "whether the job fits" in told
    assert "the script's loss under torch.compile" in told


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("import torch\nx = {}\nx['lr']\n", 4, "train.py:3: the script raised KeyError: 'lr'"),
        pytest.param("import torch\n", 4, "the script ended without an optimizer step", marks=long),
        pytest.param("raise SystemExit(2)\n", 4, "the script ended by itself with exit code 2", marks=long),
    ],
)
def test_a_script_that_does_not_train_ends_in_one_message(tmp_path: Path, source: str, code: int, message: str) -> None:
    (tmp_path / "train.py").write_text(source)
    seen = script(tmp_path, tmp_path / "train.py")
    assert seen.code == code
    assert message in " ".join(seen.stderr.split())
    assert seen.report["exit_code"] == code


def test_a_script_that_is_not_there_is_a_mistake_found_without_running_anything(tmp_path: Path) -> None:
    seen = script(tmp_path, tmp_path / "train.py")
    assert seen.code == 2
    assert "train.py: there is no such script" in seen.stderr
    assert "arguments of the script's own go behind `--`" in seen.stderr
