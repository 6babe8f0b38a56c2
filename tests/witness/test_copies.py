"""Copies that a native op makes on its own are counted by the call in which they happen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from smoketest.devices import neuron_compat
from smoketest.devices.neuron_compat import COPY_FUNCTIONS
from smoketest.findings import SitePolicy, merge
from smoketest.witness import copies
from smoketest.witness.context import Context
from smoketest.witness.copies import Crossing, MarkingWitness, crossings
from smoketest.witness.hidden import copies as hidden_copies
from smoketest.witness.sites import ModuleStack, Origins, StackWalker

POLICY = SitePolicy(Path(__file__).parent)


def marking(device: str = "cpu") -> MarkingWitness:
    return MarkingWitness(Origins(StackWalker(POLICY), ModuleStack()), Context("forward"), device, frozenset)


def test_copies_through_the_backends_functions_are_counted_where_they_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SimpleNamespace(**dict.fromkeys(COPY_FUNCTIONS, lambda value: ("copied", value)))
    originals = vars(backend).copy()
    monkeypatch.setattr(neuron_compat, "copy_module", lambda: backend)
    library = torch.library.Library("smoketest_copies", "FRAGMENT")
    library.define("bounce(Tensor x) -> Tensor")

    def bounce(x: Any) -> Any:
        assert [getattr(backend, name)(1) for name in COPY_FUNCTIONS] == [("copied", 1)] * 2
        return x.clone()

    library.impl("bounce", bounce, "CPU")
    x = torch.ones(4)
    witness = marking()
    with witness:
        backend._nrt_copy_cpu_to_neuron_tensor(1)  # between ops: the user's own
        y = x.exp()
        torch.ops.smoketest_copies.bounce(y)  # here
    assert vars(backend) == originals
    (found,) = merge(hidden_copies(witness.calls, POLICY))
    assert (found.rule, found.op, found.grounds) == ("NST102", "smoketest_copies::bounce", "measured")
    assert found.site is not None
    assert found.site.code == "torch.ops.smoketest_copies.bounce(y)  # here"
    assert found.message == "smoketest_copies::bounce counts as native and copied between device and host 2 times"
    assert found.witnesses == ("copies", "dispatch")


def test_without_the_backend_there_are_no_such_functions() -> None:
    assert neuron_compat.copy_module() is None


def node(number: int, around: int, name: str, *tensors: str, outputs: tuple[str, ...] = ()) -> dict[str, Any]:
    def values(places: tuple[str, ...]) -> list[Any]:
        return [[number, 1, 0, 12, 4, place] for place in places]

    return {
        "id": number, "ctrl_deps": around, "name": name,
        "inputs": {"values": [values(tensors), False, "cpu"]}, "outputs": {"values": values(outputs)},
    }  # fmt: skip


def test_one_copy_is_told_once_and_of_the_call_around_it() -> None:
    trace = {
        "nodes": [
            node(1, 1, "[process]"),
            node(2, 1, "[thread]"),
            node(3, 2, "smoketest call 7"),
            node(4, 3, "aten::cumsum", "neuron:0", outputs=("neuron:0",)),
            node(5, 4, "aten::_to_copy", "neuron:0", outputs=("cpu",)),
            node(6, 5, "aten::copy_", "cpu", "neuron:0"),
            node(7, 6, "aten::_copy_from", "neuron:0", "cpu"),
            node(8, 4, "aten::mul", "cpu", outputs=("cpu",)),
            node(9, 4, "aten::_copy_from", "cpu", "neuron:0"),
            node(10, 4, "aten::item", "neuron:0"),
            node(11, 4, "aten::copy_", "neuron:0", "neuron:0"),
            node(12, 2, "aten::copy_", "cpu", "neuron:0"),
        ]
    }
    assert list(crossings(trace, "neuron")) == [
        Crossing(7, "aten::_to_copy", 48),
        Crossing(7, "aten::_copy_from", 48),
        Crossing(7, "aten::item", 48),
    ]


def test_a_recorder_of_somebody_elses_is_left_alone_and_the_problem_said(tmp_path: Path) -> None:
    theirs = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "theirs.json"))
    theirs.start()
    try:
        witness = marking()
        with witness:
            torch.ones(2).exp()
    finally:
        theirs.stop()
        theirs.unregister_callback()
    assert witness.problem == "PyTorch's execution trace cannot be recorded in this process"
    assert [key.op for key in witness.calls] == ["aten::ones", "aten::exp"]
    names = {each["name"] for each in json.loads((tmp_path / "theirs.json").read_text())["nodes"]}
    assert "aten::exp" in names


def test_a_trace_of_another_form_is_a_problem_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "crossings", lambda trace, device: iter([trace["no such key"]]))
    witness = marking()
    with witness:
        torch.ones(2).exp()
    assert witness.problem == "PyTorch's execution trace cannot be understood"


SCRIPT = """
import json, sys
from pathlib import Path
import torch
import smoketest
from smoketest.findings import SitePolicy, merge
from smoketest.witness.context import Context
from smoketest.witness.copies import MarkingWitness
from smoketest.witness.hidden import copies
from smoketest.witness.sites import ModuleStack, Origins, StackWalker

smoketest.emulate(warn=False)
library = torch.library.Library("bouncing", "FRAGMENT")
library.define("double(Tensor x) -> Tensor")
library.define("backward(Tensor x) -> Tensor")
library.impl("double", lambda x: (x.cpu() * 2).to("neuron"), "PrivateUse1")
library.impl("backward", lambda x: x * float(x.sum()), "PrivateUse1")

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.ops.bouncing.double(x)
    @staticmethod
    def backward(ctx, grad):
        return torch.ops.bouncing.backward(grad)

x = torch.ones(3, 4).to("neuron").requires_grad_(True)
policy = SitePolicy(Path(__file__).parent)
context, modules = Context("forward"), ModuleStack()
witness = MarkingWitness(Origins(StackWalker(policy), modules), context, "neuron", frozenset)
with modules, witness:
    y = Double.apply(x)
    kept = y.detach().cpu()  # the user's own copy
    z = torch.atan2(y, y)
    context.phase = "backward"
    z.sum().backward()
found = merge(copies(witness.calls, policy))
rows = [[f.op, f.phase, f.site.code, f.calls_per_step, f.bytes_per_step, f.message[-25:]] for f in found]
print(json.dumps([witness.problem, rows]))
"""


def test_what_kernels_copy_inside_is_found_in_forward_and_backward_and_the_users_own_copy_is_not(
    tmp_path: Path,
) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == [
        None,
        [
            ["bouncing::backward", "backward", "return torch.ops.bouncing.backward(grad)", 1, 4,
             "n device and host 1 times"],
            ["bouncing::double", "forward", "return torch.ops.bouncing.double(x)", 1, 96, "n device and host 2 times"],
        ],
    ]  # fmt: skip
