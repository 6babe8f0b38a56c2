"""`smoketest init`: what it finds out about models of many kinds, and what it writes.

`make init-targets` does it for all of them, and runs every check that was written.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import init_targets
import pytest

from smoketest.config.draft import Draft, TrialRequest, check_name, yaml_text
from smoketest.config.load import load_check
from smoketest.config.schema import check_schema
from smoketest.errors import UserCodeError
from smoketest.supervise import trial
from smoketest.supervise.trial import try_target
from smoketest.worker.trial.search import find_check

FILE = Path(init_targets.__file__)


def found(target: str, seconds: float = 60) -> Draft:
    if ":" not in target:
        target = f"{FILE}:{target}"
    drafts: list[Draft] = []
    return find_check(TrialRequest(target=target, answer=Path("unused"), seconds=seconds), drafts.append)


def smoketest(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "smoketest", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", init_targets.PLAIN)
def test_a_module_as_people_write_it_gets_a_check_that_trains(name: str, tmp_path: Path) -> None:
    draft = found(name)
    assert draft.problem is None
    assert draft.loss_value is not None
    (tmp_path / "check.yaml").write_text(yaml_text(draft, check_name(name), tmp_path))
    check = load_check(tmp_path / "check.yaml")
    assert check.model is not None
    assert check.model.target == f"{FILE}:{name}"


@pytest.mark.parametrize(("name", "tensors", "loss"), [
    ("LeNet", {"x": [4, 1, 28, 28], "labels": [4]}, {"name": "cross_entropy", "target": "batch.labels"}),
    ("Nano", {"idx": [4, 16], "targets": [4, 16]}, "output.1"),
    ("Keyword", {"image": [4, 3, 32, 32], "table": [4, 5], "labels": [4]},
     {"name": "cross_entropy", "input": "output.logits", "target": "batch.labels"}),
    ("Positions", {"sequence": [4, 50, 24], "labels": [4]}, {"name": "cross_entropy", "target": "batch.labels"}),
    ("Graph", {"x": [16, 9], "edge_index": [2, 48], "labels": [16]},
     {"name": "cross_entropy", "target": "batch.labels"}),
    ("Denoiser", {"x": [4, 3, 32, 32], "t": [4], "target": [4, 3, 32, 32]},
     {"name": "mse_loss", "target": "batch.target"}),
])  # fmt: skip
def test_shapes_and_the_loss_are_those_the_model_takes_and_gives(name: str, tensors: Any, loss: Any) -> None:
    draft = found(name)
    assert {key: spec["shape"] for key, spec in draft.tensors.items()} == tensors
    assert draft.loss == loss


def test_ids_stay_within_the_smallest_table_they_may_be_looked_up_in() -> None:
    draft = found("TwoTowers")
    assert {spec["high"] for name, spec in draft.tensors.items() if name != "target"} == {30}


def test_arguments_without_a_default_are_guessed_by_name_and_said_to_be() -> None:
    draft = found("MLP")
    assert draft.kwargs == {"in_features": 64, "hidden": 64, "num_classes": 10, "dropout": 0.1}
    assert draft.guessed == ("in_features", "hidden", "num_classes", "dropout")
    text = yaml_text(draft, "mlp", FILE.parent)
    assert "    hidden: 64   # ? guessed: there is no default\n" in text
    assert "  target: init_targets.py:MLP   # 4,810 parameters\n" in text


def test_a_configuration_object_is_found_beside_the_class() -> None:
    draft = found("Nano")
    assert draft.config == {"class": f"{FILE}:NanoConfig"}
    assert "    class: init_targets.py:NanoConfig\n" in yaml_text(draft, "nano", FILE.parent)


@pytest.mark.parametrize(("target", "model", "tensors"), [
    ("transformers:GPT2Config", "transformers:GPT2LMHeadModel", ["input_ids", "labels"]),
    ("transformers:ViTConfig", "transformers:ViTForImageClassification", ["pixel_values", "labels"]),
    ("transformers:T5Config", "transformers:T5ForConditionalGeneration", ["input_ids", "labels"]),
])  # fmt: skip
def test_a_transformers_config_class_gets_a_small_model_with_a_loss_of_its_own(
    target: str, model: str, tensors: list[str]
) -> None:
    draft = found(target)
    assert draft.problem is None
    assert (draft.target, draft.loss, list(draft.tensors)) == (model, "output.loss", tensors)
    assert draft.parameters is not None
    assert draft.parameters < 10_000_000
    assert draft.config_defaults


@pytest.mark.parametrize(("name", "said"), [
    ("Sizes", r"^forward needs 'sizes', of type list\[int\], which is no tensor: write a function make_batch\(step\)"),
    ("Picky", r"^none of the \d+ inputs tried for x was taken; the first ended in ValueError: the input is wrong$"),
])  # fmt: skip
def test_what_cannot_be_found_is_told_and_gets_a_template_that_is_valid(name: str, said: str, tmp_path: Path) -> None:
    draft = found(name)
    assert draft.problem is not None
    assert __import__("re").search(said, draft.problem)
    text = yaml_text(draft, "hard", tmp_path)
    assert "# A TEMPLATE: no training step could be made on plain CPU. Change what is marked `# ?`.\n" in text
    assert "    x: {shape: [4, " in text
    (tmp_path / "hard.yaml").write_text(text)
    assert load_check(tmp_path / "hard.yaml").name == "hard"


@pytest.mark.parametrize(("name", "said"), [
    ("NeedsAModule", "NeedsAModule needs 'backbone', a Module, for which there is no default and nothing to guess"),
    ("ready", "ready is a module, made when its file is imported; a check names what makes one"),
    ("check_nothing", "there is no 'check_nothing' in "),
])  # fmt: skip
def test_what_cannot_be_built_is_one_error(name: str, said: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        found(name)
    assert said in str(caught.value)
    assert caught.value.hint


def test_a_model_that_is_too_large_is_built_with_fewer_layers_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "huge.py").write_text(
        "from torch import nn\n"
        "class Huge(nn.Module):\n"
        "    def __init__(self, num_layers=40):\n"
        "        super().__init__()\n"
        "        self.body = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(num_layers)))\n"
        "    def forward(self, x):\n        return self.body(x)\n"
        "class Vast(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.body = nn.Linear(100_000, 100_000)\n"
    )
    draft = found(f"{tmp_path}/huge.py:Huge")
    assert (draft.problem, draft.kwargs) == (None, {"num_layers": 2})
    vast = found(f"{tmp_path}/huge.py:Vast")
    assert vast.problem is not None
    assert vast.problem.startswith("it has 10,000,100,000 parameters, too many for a first try")


def test_the_command_writes_a_check_and_its_schema_and_says_what_is_next(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def make_net(width=8):\n    return nn.Sequential(nn.Linear(3, width), nn.Linear(width, 2))\n"
    )
    done = smoketest("init", "net.py:make_net", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.splitlines()[:2] == [
        "trying net.py:make_net on plain CPU", "wrote make_net.yaml, and check.schema.json for editors",
    ]  # fmt: skip
    assert done.stderr.endswith("next: smoketest run make_net.yaml\n")
    text = (tmp_path / "make_net.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=check.schema.json\n")
    assert json.loads((tmp_path / "check.schema.json").read_text()) == check_schema()
    again = smoketest("init", "net.py:make_net", cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr == (
        "error: make_net.yaml is there already\n  hint: --force writes over it, --output FILE names another\n"
    )
    ran = smoketest("run", "make_net.yaml", "-q", "--no-compile", "--set", "parity.enabled=false", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr


def test_the_command_on_a_file_that_has_everything(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        "import torch\ndef make_model():\n    return torch.nn.Linear(3, 1)\n"
        "def make_batch(step):\n    return (torch.ones(2, 3),), {}\n"
        "def loss_fn(output, batch):\n    return output.mean()\n"
    )
    done = smoketest("init", "work.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\nworkload: work.py\n" in (tmp_path / "work.yaml").read_text()


@pytest.mark.parametrize(("text", "target", "said"), [
    ("class Net: pass\n", "net.py",
     "net.py defines no make_model and make_batch, so what makes the model must be named\n"
     "  hint: one of net.py:Net"),
    ("class Net: pass\n", "net.py:Nat",
     "target: net.py defines no 'Nat' at its top level\n  hint: did you mean 'Net'?"),
    ("class Net: pass\n", "nat.py:Net", "target: the file 'nat.py' does not exist\n  hint: did you mean 'net.py'?"),
])  # fmt: skip
def test_a_target_that_is_not_there_is_refused_without_running_code(
    text: str, target: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(text)
    done = smoketest("init", target, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"error: {said}\n"
    assert not list(tmp_path.glob("*.yaml"))


def test_a_file_that_raises_ends_in_exit_4_with_the_users_line_and_a_template(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch\nclass Net(torch.nn.Module):\n    pass\nraise RuntimeError('no')\n")
    done = smoketest("init", "net.py:Net", cwd=tmp_path)
    assert done.returncode == 4
    assert 'File "net.py", line 4' in done.stderr
    assert "net.py:4: importing net.py raised RuntimeError: no" in done.stderr
    assert "  hint: net.yaml is a template" in done.stderr
    assert smoketest("validate", "net.yaml", cwd=tmp_path).returncode == 0


def test_a_model_that_kills_the_trial_leaves_what_was_known_of_it(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import os, torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.net = torch.nn.Linear(3, 2)\n"
        "    def forward(self, x):\n        os.kill(os.getpid(), 11)\n"
    )
    draft, _ = try_target(f"{tmp_path}/net.py:Net", None, 60)
    assert draft.problem == "the trial crashed with SIGSEGV"
    assert (draft.call, draft.parameters) == ("Net.forward(x)", 8)


def test_a_model_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_GRACE", 1.0)
    (tmp_path / "net.py").write_text("import time\ntime.sleep(600)\n")
    started = time.monotonic()
    draft, _ = try_target(f"{tmp_path}/net.py:make", None, 1.0)
    assert draft.problem == "the trial was stopped after 2 s; a smaller model, or --timeout, gives it a chance"
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(("target", "name"), [
    ("transformers:GPT2Config", "gpt2"), ("a.b:Net", "net"), ("x/my net.py:Über_Net2", "ber_net2"), ("work.py", "work"),
])  # fmt: skip
def test_a_check_is_named_after_its_target(target: str, name: str) -> None:
    assert check_name(target) == name
