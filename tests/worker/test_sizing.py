"""What is larger than this machine is not started, and sizing it is cheap and cannot go wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from smoketest.findings.fit import Sizes
from smoketest.worker.forked import Done, NotDone, run_forked
from smoketest.worker.memory import machine_memory
from smoketest.worker.sizing import _read, host_bytes, refusal
from smoketest.workload.meta import Layers

GIB = 2**30
LLAMA_70B = """\
name: llama
model:
  target: transformers:LlamaForCausalLM
  config: {class: transformers:LlamaConfig, num_hidden_layers: 80, hidden_size: 8192, intermediate_size: 28672,
           num_attention_heads: 64, num_key_value_heads: 8, vocab_size: 128256}
batch:
  tensors:
    input_ids: {shape: [1, 128], dtype: int64, low: 0, high: 128256}
    labels: {like: input_ids}
loss: output.loss
optimizer: {name: AdamW}
device: emulated
"""
NET = """
import torch
from torch import nn

print("imported", flush=True)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        print("made", flush=True)
        {first}
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()

def make_model():
    return Net()

def make_batch(step):
    return (torch.ones({rows}, 4),), {{}}

def loss_fn(output, batch):
    return output.sum()
"""
ONCE = Sizes(10**9, 4 * 10**9, 0, 4 * 10**9, 8 * 10**9, "AdamW")


def net(folder: Path, first: str = "pass", rows: str = "3") -> dict[str, Any]:
    (folder / "net.py").write_text(NET.format(first=first, rows=rows))
    return {"workload": str(folder / "net.py"), "training": {"steps": 1}}


# A model that does not fit


def test_a_llama_of_70_billion_parameters_is_refused_in_a_minute_and_2_gb(tmp_path: Path) -> None:
    (tmp_path / "llama.yaml").write_text(LLAMA_70B)
    process = subprocess.Popen(
        [sys.executable, "-m", "smoketest", "run", "llama.yaml"], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    watchdog = threading.Timer(100, process.kill)
    watchdog.start()
    assert process.stderr is not None
    said = process.stderr.read()
    watchdog.cancel()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    assert process.returncode == 3, said
    assert used.ru_utime + used.ru_stime < 60  # of the process and of all it waited for: whatever else runs here
    assert used.ru_maxrss * 1024 < 2 * 10**9  # the largest of these
    report = json.loads((tmp_path / "reports" / "llama" / "report.json").read_text())
    assert report["headline"].startswith(
        "the model was not started: its 70,553,706,496 parameters need 1,051.3 GiB for weights, gradients and AdamW"
        " state, and this machine has "
    )
    fit = report["fit"]
    assert (fit["basis"], fit["fits"], fit["parameters"]) == ("meta", False, 70_553_706_496)
    assert fit["parameter_bytes"] == fit["gradient_bytes"] == 4 * 70_553_706_496
    assert fit["optimizer_bytes"] == pytest.approx(8 * 70_553_706_496, rel=0.01)
    assert report["compile"]["status"] == "skipped"
    assert "--set model.config.num_hidden_layers=" in said
    assert "smoketest doctor" not in said


def test_the_refusal_tells_how_many_layers_take_half_of_the_memory() -> None:
    by_layers = Layers("model.config.n_layer", 24, base=(GIB, 4 * GIB), each=(GIB, 4 * GIB))
    error = refusal(ONCE, 100 * GIB, 64 * GIB, by_layers, model_only=False)
    assert error.exit_code == 3
    assert error.message == (
        "the model was not started: its 1,000,000,000 parameters need 100.0 GiB for weights, gradients and AdamW"
        " state, and this machine has 64.0 GiB"
    )
    assert error.hint == (
        "--set model.config.n_layer=7 fits: it takes 32.0 GiB, half of the memory left for activations and for what"
        " runs beside it; or run it on a larger machine"
    )


def test_on_a_real_device_only_the_weights_have_to_fit_the_host() -> None:
    by_layers = Layers("model.config.n_layer", None, base=(GIB, 4 * GIB), each=(GIB, 4 * GIB))
    error = refusal(ONCE, 100 * GIB, 64 * GIB, by_layers, model_only=True)
    assert "need 100.0 GiB for weights, and this machine has 64.0 GiB" in error.message
    assert error.hint is not None
    assert error.hint.startswith("--set model.config.n_layer=31 fits: it takes 32.0 GiB")
    assert host_bytes(ONCE, "neuron") == 4 * 10**9
    assert host_bytes(ONCE, "emulated") == host_bytes(ONCE, "cpu") == 16 * 10**9


def test_buffers_that_only_a_copy_to_the_device_makes_large_are_told_as_that() -> None:
    mask = Sizes(272, 1088, 160 * 10**9, 1088, 2192, "AdamW", built_bytes=1092)
    assert (host_bytes(mask, "neuron"), host_bytes(mask, "cpu")) == (1092, 1092 + 1088 + 2192)
    error = refusal(mask, host_bytes(mask, "emulated"), 23 * GIB, None, model_only=False)
    assert error.message == (
        "the model was not started: its 272 parameters need 149.0 GiB for weights, buffers, gradients and AdamW state,"
        " and this machine has 23.0 GiB"
    )
    assert error.hint is not None
    assert error.hint.startswith("149.0 GiB are buffers: moving a model to a device copies each one whole")


def test_where_no_number_of_layers_fits_it_says_so() -> None:
    wide = Layers("model.config.n_layer", 2, base=(30 * GIB, 30 * GIB), each=(4 * GIB, 4 * GIB))
    assert refusal(ONCE, 100 * GIB, 64 * GIB, wide, model_only=False).hint == (
        "no number of layers fits well: with --set model.config.n_layer=1 it takes 34.0 GiB. Make it narrower too, or"
        " its vocabulary smaller; or run it on a larger machine"
    )
    unknown = replace(ONCE, optimizer_bytes=None)
    error = refusal(unknown, 100 * GIB, 64 * GIB, None, model_only=False)
    assert "need at least 100.0 GiB for weights and gradients, and this machine" in error.message
    assert error.hint == (
        "make the model smaller in the check, with the same structure: fewer layers, or narrower; or run it on a"
        " larger machine"
    )


# A model that does


def fits(worker: Any) -> list[Any]:
    return [event.fit for event in worker.of("estimated")]


def test_a_model_is_sized_before_it_is_built_and_again_after_its_steps(run_worker: Any, tmp_path: Path) -> None:
    worker = run_worker(net(tmp_path))
    assert worker.eager.status == "ran"
    before, after = fits(worker)
    assert (before.basis, after.basis) == ("meta", "built")
    same = ("parameters", "parameter_bytes", "gradient_bytes", "optimizer_bytes", "host_bytes")
    assert [getattr(before, name) for name in same] == [getattr(after, name) for name in same]
    assert (before.parameters, before.optimizer_bytes) == (20, 2 * 4 * 20 + 2 * 4)
    assert (before.activation_bytes, before.fits) == (None, None)
    assert after.activation_bytes == 4 * (3 * 4 + 3 * 4)  # the input, and relu's result
    assert after.fits is True
    assert after.kernels > 5
    assert (after.new_kernels, after.moving) == (0, ())
    assert worker.output.splitlines().count("made") == 1, "what the constructor prints while it is sized is not heard"


def test_shapes_that_move_from_step_to_step_are_named(run_worker: Any, tmp_path: Path) -> None:
    worker = run_worker(net(tmp_path, rows="3 + step"))
    after = fits(worker)[-1]
    assert after.new_kernels > 0
    assert "aten::relu on f32[6, 4], after f32[5, 4]" in after.moving
    assert after.activation_bytes == 4 * 2 * 6 * 4


def test_a_model_that_cannot_be_sized_first_runs_all_the_same_and_a_further_step_may_raise(
    run_worker: Any, tmp_path: Path
) -> None:
    worker = run_worker(net(tmp_path, "torch.ones(2**20).sum().item()", rows="3 if step < 3 else 3 / 0"))
    assert worker.eager.status == "ran"
    said = {event.not_checked.what: event.not_checked.why for event in worker.of("note")}
    start = "it cannot be built on PyTorch's meta device to size it first: "
    assert said["whether the model fits"].startswith(start)
    assert "meta tensors" in said["whether the model fits"]
    assert "ZeroDivisionError" in said["activations kept for backward, and whether shapes move"]
    (after,) = fits(worker)
    assert (after.basis, after.parameters, after.optimizer_bytes) == ("built", 20, 168)
    assert (after.activation_bytes, after.kernels, after.fits) == (None, None, None)


# The child


def children() -> str:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return path.read_text() if path.exists() else ""


def test_a_forked_child_gives_what_its_work_does_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> bytes:
        os.write(1, b"heard by nobody")
        os.write(2, b"nor this")
        return b"x" * 200_000 + str(os.getpid()).encode()

    answer = run_forked(work, seconds=60, memory=GIB)
    assert isinstance(answer, Done)
    assert answer.data[:200_000] == b"x" * 200_000
    assert int(answer.data[200_000:]) != os.getpid()
    assert capfd.readouterr() == ("", "")


def test_what_a_child_raises_is_told_and_exit_handlers_do_not_run_in_it(tmp_path: Path) -> None:
    import atexit

    mark = tmp_path / "mark"
    handler = atexit.register(lambda: mark.write_text("ran"))
    assert run_forked(lambda: json.loads("{"), seconds=60, memory=GIB) == NotDone(
        "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    )
    assert run_forked(lambda: sys.exit("no"), seconds=60, memory=GIB) == NotDone("SystemExit: no")
    atexit.unregister(handler)
    assert not mark.exists()


def test_a_child_that_takes_too_long_or_dies_ends_and_is_reaped() -> None:
    before, started = children(), time.monotonic()
    assert run_forked(lambda: time.sleep(600), seconds=0.3, memory=GIB) == NotDone("it took longer than 0.3 s")  # type: ignore[arg-type, func-returns-value]
    assert time.monotonic() - started < 30
    killed = run_forked(lambda: os.kill(os.getpid(), signal.SIGKILL), seconds=60, memory=GIB)  # type: ignore[arg-type, func-returns-value]
    assert killed == NotDone("the process that did it ended with signal 9")
    left = run_forked(lambda: os._exit(7), seconds=60, memory=GIB)
    assert left == NotDone("the process that did it ended with code 7")
    assert children() == before


def test_what_the_work_forks_neither_answers_nor_holds_the_run_nor_remains() -> None:
    def both() -> bytes:
        os.fork()
        return str(os.getpid()).encode() * 50_000

    answer = run_forked(both, seconds=60, memory=GIB)
    assert isinstance(answer, Done)
    width = len(answer.data) // 50_000
    assert answer.data == answer.data[:width] * 50_000

    def holds() -> bytes:
        forked = os.fork()
        if forked == 0:
            time.sleep(600)
        return str(forked).encode()

    started = time.monotonic()
    answer = run_forked(holds, seconds=60, memory=GIB)
    assert isinstance(answer, Done)
    assert time.monotonic() - started < 30
    until = time.monotonic() + 30
    while Path(f"/proc/{int(answer.data)}/cmdline").exists() and Path(f"/proc/{int(answer.data)}/cmdline").read_text():
        assert time.monotonic() < until, "the process that the work forked is alive"
        time.sleep(0.05)


def test_an_answer_that_cannot_be_read_is_none() -> None:
    for data in (b"", b"}{", b"[]", b'{"parameters": 1}'):
        assert _read(Done(data), lambda found: Sizes(**found)) == NotDone(
            "the process that did it gave no answer that can be read"
        )


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit needs /proc")
def test_a_child_gets_no_more_memory_than_it_may_have() -> None:
    def numbers() -> bytes:
        return bytes(bytearray(300 * 2**20)[:1])

    assert isinstance(run_forked(numbers, seconds=60, memory=GIB), Done)
    assert run_forked(numbers, seconds=60, memory=100 * 2**20) == NotDone("it took more memory than 100 MiB")
    tensors = run_forked(lambda: bytes(torch.ones(100 * 2**20)[:1].numpy()), seconds=60, memory=100 * 2**20)
    assert isinstance(tensors, NotDone)
    assert "memory" in tensors.why


# This machine


def limit(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_memory_is_the_machine_s_where_no_control_group_limits_it(tmp_path: Path) -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine_memory(tmp_path) == physical
    limit(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    limit(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    limit(tmp_path, "proc/self/cgroup", "garbage")
    assert machine_memory(tmp_path) == physical


@pytest.mark.parametrize(
    ("groups", "path"),
    [
        ("", "sys/fs/cgroup/memory.max"),
        ("", "sys/fs/cgroup/memory/memory.limit_in_bytes"),
        ("0::/user/job\n", "sys/fs/cgroup/user/job/memory.max"),
        ("0::/user/job\n", "sys/fs/cgroup/user/memory.max"),
        ("5:cpuset:/\n4:memory,hugetlb:/job\n0::/\n", "sys/fs/cgroup/memory/job/memory.limit_in_bytes"),
    ],
)
def test_the_tightest_limit_of_a_control_group_counts(tmp_path: Path, groups: str, path: str) -> None:
    limit(tmp_path, "proc/self/cgroup", groups)
    limit(tmp_path, path, "1000000\n")
    assert machine_memory(tmp_path) == 1_000_000
