"""`smoketest.watch()` in a process of its own with the emulated device, as in a notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import json, sys, threading, warnings
import torch
import smoketest

told = {}
try:
    smoketest.watch().__enter__()
except smoketest.errors.SmoketestError as error:
    told["no device"] = str(error)

device = smoketest.emulate(warn="loud" in sys.argv)
if "strict" in sys.argv:
    warnings.simplefilter("error")

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(), Layer()])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(4, 4)
    def forward(self, x):
        y = self.out(x)
        return torch.atan2(y, y.exp())

model = Net().to("neuron")
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(3, 4).to("neuron")

def step():
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()

def rows(found):
    return found and [
        [f.rule, f.op, f.phase, f.site and f.site.code, f.calls_per_step, f.exact,
         [[m.pattern, m.calls] for m in f.modules], sorted(set(f.witnesses) - {"warnings"})]
        for f in found
    ]

def all_of(seen):
    return {"fallbacks": rows(seen.fallbacks), "host_syncs": rows(seen.host_syncs), "hidden": rows(seen.hidden),
            "clean": seen.clean}

def unseen(seen):
    return {entry.what: entry.why for entry in seen.not_checked}

with smoketest.watch() as seen:
    step()
    told["inside"] = all_of(seen)
told["plain"] = all_of(seen)
told["not checked, plain"] = unseen(seen)
told["the device's own list"] = device.get_fallback_ops()
with smoketest.watch(model, trace=True) as seen:
    value = step().item()
told["traced"] = all_of(seen)
told["not checked, traced"] = unseen(seen)
with smoketest.watch() as seen:
    x + x
told["clean"] = all_of(seen)
for trace in (False, True):
    with smoketest.watch(trace=trace) as seen:
        torch.ones(3) + 1  # on the CPU
    told["nothing", trace] = [rows(seen.fallbacks), seen.clean, unseen(seen).get("fallbacks")]
filters = list(warnings.filters)
real = type(device).get_fallback_ops
try:
    with smoketest.watch(model, trace=True) as seen:
        torch.atan2(x, x)
        raise KeyError("mine")
except KeyError as error:
    told["raised"] = str(error)
told["until it raised"] = all_of(seen)
told["restored"] = [warnings.filters == filters, device.observe.__self__._tracker.observer is None,
                    len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()),
                    len(torch.nn.modules.module._global_forward_hooks)]
layer = model.layers[0]
def of_one(parameters, row):
    return torch.func.functional_call(layer, parameters, (row,)).sum()
with smoketest.watch(model, trace=True) as seen:
    torch.func.vmap(torch.func.grad(of_one), (None, 0))(dict(layer.named_parameters()), x)
told["torch.func"] = rows(seen.fallbacks)
def elsewhere():
    torch.acos(x.detach() * 0.1)
with smoketest.watch(model, trace=True) as seen:
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
told["another thread"] = rows(seen.fallbacks)
told["not checked, thread"] = unseen(seen)
class Trouble(Exception):
    pass
def in_trouble():
    raise Trouble("the device hangs")
for mine in (True, False):
    try:
        with smoketest.watch() as seen:
            torch.atan2(x, x)
            type(device).get_fallback_ops = lambda self: in_trouble()
            if mine:
                raise KeyError("mine")
    except (KeyError, Trouble) as error:
        told["trouble", mine] = [type(error).__name__]
    finally:
        type(device).get_fallback_ops = real
    told["trouble", mine] += [seen.clean, unseen(seen).get("fallbacks of the block")]
outer = smoketest.watch()
with outer:
    try:
        with smoketest.watch():
            pass
    except RuntimeError as error:
        told["nested"] = str(error)
    torch.atan2(x, x)
told["outer"] = [f.op for f in outer.fallbacks]
try:
    smoketest.watch().clean
except RuntimeError as error:
    told["unused"] = str(error)
with outer:
    pass
told["again"] = all_of(outer)["fallbacks"]
print(json.dumps({str(key): value for key, value in told.items()}))
"""


def run(folder: Path, *options: str) -> dict[str, Any]:
    file = folder / "script.py"
    file.write_text("import smoketest.errors\n" + SCRIPT)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, str(file), *options], capture_output=True, text=True, check=False, env=environment, cwd=folder
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tmp_path_factory.mktemp("watch"))


def test_without_trace_it_tells_the_names_of_what_ran_on_the_cpu(told: dict[str, Any]) -> None:
    row = ["NST101", "aten::atan2.out", None, None, None, False, [], ["tracker"]]
    assert told["plain"] == {"fallbacks": [row], "host_syncs": None, "hidden": None, "clean": False}
    assert told["inside"] == told["plain"]


def test_with_trace_it_tells_line_module_phase_and_count(told: dict[str, Any]) -> None:
    line = "return torch.atan2(y, y.exp())"
    modules = [["layers.*", 2]]
    witnesses = ["dispatch", "kernels"]
    row = ["NST101", "aten::atan2.out", "forward", line, 2, True, modules, witnesses]
    assert told["traced"]["fallbacks"] == [row]
    (wait,) = told["traced"]["host_syncs"]
    assert wait[:5] == ["NST103", "aten::_local_scalar_dense", "forward", "value = step().item()", 1]
    assert told["traced"]["clean"] is False


def test_calls_under_torch_func_have_line_and_module(told: dict[str, Any]) -> None:
    ((rule, op, phase, line, *_, modules, _witnesses),) = told["torch.func"]
    assert (rule, op, phase, line) == ("NST101", "aten::atan2.out", "forward", "return torch.atan2(y, y.exp())")
    assert modules == [["layers.0", 1]]


def test_what_another_thread_ran_is_told_without_a_line(told: dict[str, Any]) -> None:
    assert told["another thread"] == [["NST101", "aten::acos.out", None, None, None, False, [], ["tracker"]]]


def test_clean_is_said_of_code_without_a_fallback(told: dict[str, Any]) -> None:
    assert told["clean"] == {"fallbacks": [], "host_syncs": None, "hidden": None, "clean": True}


def test_what_nobody_looked_at_is_told(told: dict[str, Any]) -> None:
    always = {"fallbacks that only the backend's C++ prints", "why ops that have a kernel ran on the CPU"}
    assert set(told["not checked, plain"]) == always | {"lines, modules, counts and host synchronisation"}
    assert set(told["not checked, traced"]) == always
    threads = "lines and counts of ops in threads that the block started"
    assert set(told["not checked, thread"]) == always | {threads}
    assert told["not checked, thread"][threads] == "the dispatch mode does not see them; ops ran in 1 of them"


@pytest.mark.parametrize("trace", [False, True])
def test_code_that_does_not_reach_the_device_is_not_called_clean(told: dict[str, Any], trace: bool) -> None:
    why = "nothing ran on the device: are model and inputs moved to it?"
    assert told[str(("nothing", trace))] == [[], None, why]


def test_a_device_that_cannot_be_asked_hides_no_exception_and_nothing_is_called_clean(told: dict[str, Any]) -> None:
    problem = "the device's list of ops could not be read: Trouble: the device hangs"
    assert told[str(("trouble", True))] == ["KeyError", None, problem]
    assert told[str(("trouble", False))] == ["Trouble", None, problem]


def test_an_exception_passes_and_all_is_restored(told: dict[str, Any]) -> None:
    assert told["raised"] == "'mine'"
    assert [row[1:4] for row in told["until it raised"]["fallbacks"]] == [
        ["aten::atan2.out", "forward", "torch.atan2(x, x)"]
    ]
    assert told["restored"] == [True, True, 0, 0]


def test_a_second_watch_is_refused_and_the_first_goes_on(told: dict[str, Any]) -> None:
    assert told["nested"] == "smoketest.watch() is active in this process already: leave that block first"
    assert told["outer"] == ["aten::atan2.out"]
    assert told["again"] == []


def test_misuse_is_answered_with_what_to_do(told: dict[str, Any]) -> None:
    assert told["no device"].endswith("hint: call smoketest.emulate() first")
    assert told["unused"] == "nothing was watched yet: use `with smoketest.watch() as seen:`"


def test_the_devices_own_list_is_left_to_others(told: dict[str, Any]) -> None:
    assert told["the device's own list"] == ["aten::atan2.out"]


def test_a_device_that_warns_and_filters_that_raise_change_nothing(told: dict[str, Any], tmp_path: Path) -> None:
    loud = run(tmp_path, "loud", "strict")
    for mine in (True, False):  # the device's list could not be read, and its warning was heard
        assert (loud.pop(str(("trouble", mine)))[1], told[str(("trouble", mine))][1]) == (False, None)
    assert loud == {key: value for key, value in told.items() if "trouble" not in key}
