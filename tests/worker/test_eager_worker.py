"""The eager worker as a real process: what it says of models that run, fall back, raise and die."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parent.parent / "cases"
CONFIGS = Path(__file__).parent.parent.parent / "configs"

GPT2 = {
    "model": {
        "target": "transformers:GPT2LMHeadModel",
        "config": {
            "class": "transformers:GPT2Config",
            "n_layer": 2,
            "n_head": 2,
            "n_embd": 32,
            "vocab_size": 64,
            "n_positions": 16,
        },
    },
    "batch": {
        "tensors": {
            "input_ids": {"shape": [2, 16], "dtype": "int64", "low": 0, "high": 64},
            "labels": {"like": "input_ids"},
        }
    },
    "loss": "output.loss",
    "optimizer": {"name": "AdamW", "lr": 1e-3},
    "training": {"steps": 2, "clip_grad_norm": 1.0},
}

COUNT_CALLS = """
import sys, torch
import smoketest
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GPT2LMHeadModel
smoketest.emulate()
calls, host = [], []
def on_device(values):
    return any(v.device.type == "neuron" if isinstance(v, torch.Tensor) else on_device(v) for v in values
               if isinstance(v, (torch.Tensor, list, tuple)))
class Count(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.namespace != "profiler":
            (calls if on_device([args, list((kwargs or {}).values()), result]) else host).append(func)
        return result
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=64, n_positions=16)).to("neuron")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ids = torch.randint(0, 64, (2, 16)).to("neuron")
def step():
    model(input_ids=ids, labels=ids).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
step()
with Count():
    step()
print(len(calls) + len(host), len({*calls, *host}), len(host))
"""

TROUBLE = """import torch
from torch import nn


class Angles(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 3)

    def forward(self, x, index):
        angle = torch.atan2(x[:, 1], x[:, 0])
        polar = torch.acos(x[:, 2].clamp(-0.9, 0.9))
        normal = torch.linalg.cross(x, x.flip(0))
        order, _ = torch.sort(angle + polar)
        pooled = torch.zeros(4, 3, device=x.device).scatter_reduce(0, index, normal, "amax", include_self=False)
        mask = torch.ones(4, device=x.device)
        mask.index_fill_(0, index[:1, 0], 0.0)
        return self.out(x + normal) + order.mean() + (pooled * mask[:, None]).sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Angles() for _ in range(3))

    def forward(self, x, index):
        for layer in self.layers:
            x = layer(x, index)
        return x


def make_model():
    return Net()


def make_batch(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(8, 3, generator=generator)
    return (x, torch.randint(0, 4, (8, 3), generator=generator)), {}


def loss_fn(output, batch):
    return output.square().mean()
"""


def workload(tmp_path: Path, text: str, name: str = "net.py", **parts: Any) -> dict[str, Any]:
    file = tmp_path / name
    file.write_text(text)
    return {"workload": str(file), **parts}


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


@pytest.fixture(scope="module")
def gpt2(run_worker: Any) -> Any:
    return run_worker(GPT2)


def test_gpt2_is_clean_and_every_op_call_of_a_step_is_counted(gpt2: Any) -> None:
    worker = gpt2
    assert worker.code == 0
    assert worker.findings == ()
    assert worker.eager.status == "ran"
    assert [(step.index, step.role) for step in worker.eager.steps] == [
        (0, "warmup"),
        (1, "timed"),
        (2, "timed"),
        (3, "traced"),
    ]
    counted = subprocess.run([sys.executable, "-c", COUNT_CALLS], capture_output=True, text=True, check=True).stdout
    seen = worker.eager
    assert f"{seen.op_calls} {seen.distinct_ops} {seen.host_calls}\n" == counted


def test_every_counted_call_is_in_a_row_and_what_takes_cpu_tensors_only_is_said_to_be_the_hosts(gpt2: Any) -> None:
    rows = {row.op: row for row in gpt2.of("result")[0].operators}
    assert sum(row.calls_per_step for row in rows.values()) == gpt2.eager.op_calls
    # AdamW keeps its step counters on the CPU and reads each twice.
    hosts = {op: row.calls_per_step for op, row in rows.items() if row.eager == "host"}
    assert hosts["aten::_local_scalar_dense"] == 2 * 28  # tensors of parameters
    assert set(hosts) == {"aten::_local_scalar_dense", "aten::_foreach_add.Tensor"}
    assert {row.eager for row in rows.values()} == {"device", "host"}


def test_losses_are_those_of_plain_cpu(gpt2: Any, run_worker: Any) -> None:
    device, cpu = gpt2, run_worker(GPT2, "cpu")
    for left, right in zip(device.eager.steps, cpu.eager.steps, strict=True):
        assert left.loss == pytest.approx(right.loss, rel=1e-4)
    losses = [step.loss for step in device.eager.steps]
    assert len(set(losses)) == 4


def test_events_come_in_order_and_times_are_given(gpt2: Any) -> None:
    worker = gpt2
    kinds = [event.event for event in worker.events if event.event != "heartbeat"]
    assert kinds[0] == "hello"
    assert kinds[-1] == "result"
    assert kinds.index("timed_part_over") > [i for i, kind in enumerate(kinds) if kind == "step"][2]
    phases = [(event.step, event.role, event.name) for event in worker.of("phase")]
    assert phases[:5] == [
        (None, None, "setup"),
        (0, "warmup", "setup"),
        (0, "warmup", "forward"),
        (0, "warmup", "backward"),
        (0, "warmup", "optimizer"),
    ]
    facts = worker.of("facts")[-1]
    assert (facts.device.kind, facts.device.profile) == ("emulated", "torch-neuronx-prerelease-2026-04")
    assert facts.workload.model == "GPT2LMHeadModel"
    assert facts.workload.batch == {"input_ids": "i64[2, 16]", "labels": "i64[2, 16]"}
    assert facts.workload.optimizer == "AdamW"
    assert facts.environment.torch.startswith("2.")
    for step in worker.eager.steps:
        assert all(ms is not None and ms > 0 for ms in (step.forward_ms, step.backward_ms, step.optimizer_ms))


@pytest.mark.parametrize(
    ("recorded", "text", "phases"),
    [
        ("aten::atan2.out", "angle = torch.atan2", {"forward": 3}),
        ("aten::acos.out", "polar = torch.acos", {"forward": 3}),
        ("aten::linalg_cross.out", "normal = torch.linalg.cross", {"forward": 3, "backward": 4}),
        ("aten::sort.values_stable", "order, _ = torch.sort", {"forward": 3}),
        ("aten::scatter_reduce.two_out", ".scatter_reduce(0, index", {"forward": 3}),
        ("aten::index_fill_.int_Scalar", "mask.index_fill_", {"forward": 3}),
    ],
)
def test_a_fallback_has_its_line_phase_modules_and_count(
    trouble: Any, recorded: str, text: str, phases: dict[str, int]
) -> None:
    found = {finding.phase: finding for finding in trouble.findings if finding.op == recorded}
    assert {phase: finding.calls_per_step for phase, finding in found.items()} == phases
    for finding in found.values():
        assert finding.rule == "NST101"
        assert (finding.site.file, finding.site.line) == ("net.py", line_of(TROUBLE, text))
        assert text in finding.site.code
        assert [module.pattern for module in finding.modules] == ["layers.*"]
        assert finding.exact
        assert finding.grounds == "reported"
        assert finding.bytes_per_step > 0
        assert finding.witnesses == ("dispatch", "kernels", "tracker", "warnings")


def test_rows_show_what_each_op_did(trouble: Any) -> None:
    rows = {row.op: (row.eager, row.calls_per_step) for row in trouble.of("result")[0].operators}
    assert rows["aten::atan2"] == ("cpu", 3)
    assert rows["aten::linear"] == ("device", 3)


@pytest.fixture(scope="module")
def trouble(tmp_path_factory: pytest.TempPathFactory, run_worker: Any) -> Any:
    folder = tmp_path_factory.mktemp("trouble")
    return run_worker(workload(folder, TROUBLE))


SILENT = """
import sys
from pathlib import Path
from smoketest.config.models import Check
from smoketest.devices.base import open_device
from smoketest.findings import SitePolicy
from smoketest.worker import eager
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.environment import read_environment
from smoketest.worker.job import Job
file = Path(sys.argv[1])
events = []
eager.run(Job(
    check=Check(name="check", workload=file),
    device=open_device("emulated", warn=False),
    policy=SitePolicy(file.parent),
    environment=read_environment({}),
    emit=events.append,
    breadcrumb=BreadcrumbFile(file.with_name("crumb")),
))
print([e for e in events if e.event == "findings"][-1].model_dump_json(by_alias=True))
"""


def test_a_silent_device_gives_the_findings_of_a_loud_one(trouble: Any, tmp_path: Path) -> None:
    from smoketest.supervise.protocol import parse_event

    check = workload(tmp_path, TROUBLE)
    command = [sys.executable, "-c", SILENT, check["workload"]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    silent: Any = parse_event(done.stdout)
    assert {finding.witnesses for finding in silent.findings} == {("dispatch", "kernels", "tracker")}
    assert [finding.model_copy(update={"witnesses": ()}) for finding in silent.findings] == [
        finding.model_copy(update={"witnesses": ()}) for finding in trouble.findings
    ]
    assert "fell back" not in done.stderr


WARNING = """import warnings
import torch
def make_model(): return torch.nn.Linear(2, 2)
def make_batch(step): return (torch.ones(3, 2),), {}
def loss_fn(output, batch):
    warnings.warn("the user's own", stacklevel=1)
    return torch.atan2(output, output + 1).sum()
"""


def test_the_users_warnings_are_shown_and_the_devices_are_findings(run_worker: Any, tmp_path: Path) -> None:
    worker = run_worker(workload(tmp_path, WARNING))
    assert "UserWarning: the user's own" in worker.output
    assert "fell back" not in worker.output
    assert [finding.op for finding in worker.findings if finding.phase == "forward"] == ["aten::atan2.out"]


def test_a_filter_of_error_changes_nothing_for_the_devices_warnings(run_worker: Any, tmp_path: Path) -> None:
    text = WARNING.replace("    warnings.warn", "    # warnings.warn").replace(
        "import torch\n", "import torch\nwarnings.simplefilter('error')\n"
    )
    worker = run_worker(workload(tmp_path, text))
    assert worker.eager.status == "ran"
    assert worker.findings[0].witnesses == ("dispatch", "kernels", "tracker", "warnings")
    started_so = run_worker(
        workload(tmp_path, WARNING.replace("    warnings.warn", "    # warnings.warn"), "other.py"),
        python=("-W", "error::UserWarning"),
    )
    assert started_so.eager.status == "ran"
    assert len(started_so.findings) == len(worker.findings)


def test_33_batch_norms_are_one_finding_per_phase_and_line(run_worker: Any, tmp_path: Path) -> None:
    text = """import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(2)
    def forward(self, x):
        return self.norm(x)
def make_model(): return nn.Sequential(*(Block() for _ in range(33)))
def make_batch(step): return (torch.randn(2, 2, 4, 4),), {}
def loss_fn(output, batch): return output.square().mean()
"""
    worker = run_worker(workload(tmp_path, text))
    assert [(f.op, f.phase, f.calls_per_step, f.site.line) for f in worker.findings] == [
        ("aten::native_batch_norm_backward", "backward", 33, 8),
        ("aten::native_batch_norm", "forward", 33, 8),
    ]
    assert {(m.pattern, m.calls) for f in worker.findings for m in f.modules} == {("*.norm", 33)}
    assert {f.grounds for f in worker.findings} == {"no_kernel_known"}


TRAIN_STEP = """import torch
from torch import nn
def make_model(): return nn.ModuleDict({"g": nn.Linear(2, 2), "d": nn.Linear(2, 1)})
def make_batch(step): return (torch.ones(3, 2),), {}
def make_optimizer(model):
    return {name: torch.optim.Adam(part.parameters()) for name, part in model.items()}
def train_step(model, batch, optimizers):
    fake = model["g"](batch[0][0])
    loss = model["d"](fake).atan2(fake[:, :1]).mean()
    loss.backward()
    optimizers["g"].step()
    optimizers["d"].step()
    for optimizer in optimizers.values():
        optimizer.zero_grad()
    return loss
"""


def test_a_custom_step_is_not_split_but_its_ops_have_their_phase(run_worker: Any, tmp_path: Path) -> None:
    worker = run_worker(workload(tmp_path, TRAIN_STEP))
    assert {step.forward_ms for step in worker.eager.steps} == {None}
    assert [(f.op, f.phase, f.site.line) for f in worker.findings] == [("aten::atan2.out", "forward", 9)]
    assert worker.of("facts")[-1].workload.optimizer == "Adam, Adam"
    said = {note.not_checked.what for note in worker.of("note")}
    assert "times of forward, backward and optimizer" in said


def test_an_op_that_raises_on_the_device_is_a_finding_at_its_line(run_worker: Any) -> None:
    worker = run_worker({"workload": str(CASES / "031_sparse_grad_embedding_sparseadam.py")})
    assert worker.code == 0
    assert worker.of("failed") == []
    assert worker.eager.status == "failed"
    (failed,) = [finding for finding in worker.findings if finding.rule == "NST104"]
    assert failed.op == "aten::_sparse_coo_tensor_with_dims_and_tensors"
    assert (failed.phase, failed.modules[0].pattern) == ("backward", "i")
    assert failed.site.code == "return (x * self.i(pos)).sum(-1) - (x * self.i(neg)).sum(-1)"
    assert failed.message.startswith(
        f"{failed.op} raised on the emulated device, and plain CPU runs it: NotImplementedError"
    )
    assert re.match(r"aten::_sparse_coo_\w+ raised in step 1 of 5 \(warmup\), backward: ", worker.eager.reason)


def test_a_stray_cpu_tensor_is_a_finding_at_its_line(run_worker: Any) -> None:
    worker = run_worker({"workload": str(CASES / "068_stray_cpu_tensor_attribute.py")})
    (failed,) = [finding for finding in worker.findings if finding.rule == "NST104"]
    assert (failed.rule, failed.op, failed.phase) == ("NST104", "aten::mul.Tensor", "forward")
    assert failed.site.code == "frames = wav.unfold(-1, 16, 8) * self.window"
    assert "Expected all tensors to be on the same device" in failed.message
    assert "register_buffer" in failed.remedy
    left = [finding for finding in worker.findings if finding.rule == "NST107"]
    assert [(finding.site.code.partition("  ")[0], finding.message) for finding in left] == [
        (
            "self.window = torch.hann_window(n)",
            "window stayed on the CPU: it is neither parameter nor buffer, and `.to()` moves no others",
        ),
        (
            "self.scales = [torch.tensor(0.5), torch.linspace(0.5, 1.5, h)]",
            "scales[1] stayed on the CPU: it is neither parameter nor buffer, and `.to()` moves no others",
        ),
    ]
    assert len(worker.findings) == 3


def test_a_gru_goes_on_past_its_cells_unless_told_to_stop(run_worker: Any) -> None:
    check = {"workload": str(CASES / "028_gru_cell_attention_decoder.py")}
    on = run_worker(check)
    assert on.eager.status == "ran"
    assert on.eager.continued_past == ("aten::_thnn_fused_gru_cell", "aten::_thnn_fused_gru_cell_backward")
    forward = {f.site.code: f for f in on.findings if f.op == "aten::_thnn_fused_gru_cell"}
    assert set(forward) == {
        "mem, h = self.enc(self.emb(src))",
        "h = self.cell(torch.cat([self.emb(tgt[:, t]), ctx], -1), h)",
    }
    assert {f.rule for f in on.findings} == {"NST104"}
    rows = {row.op: row.eager for row in on.of("result")[0].operators}
    assert rows["aten::_thnn_fused_gru_cell"] == "failed"

    stopped = run_worker(check, stop_at_error=True)
    assert stopped.eager.status == "failed"
    (failed,) = stopped.findings
    assert (failed.rule, failed.op) == ("NST104", "aten::_thnn_fused_gru_cell")
    assert failed.site.code == "mem, h = self.enc(self.emb(src))"


RAISING = """import torch
def make_model(): return torch.nn.Linear(2, 2)
def make_batch(step): return (torch.ones(3, 5),), {}
def loss_fn(output, batch): return output.mean()
"""


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_what_raises_on_plain_cpu_too_is_the_users_error(run_worker: Any, tmp_path: Path, device: str) -> None:
    text = RAISING.replace(
        "def make_model(): return torch.nn.Linear(2, 2)",
        "class Net(torch.nn.Linear):\n"
        "    def forward(self, x):\n        return super().forward(x)\n"
        "def make_model(): return Net(2, 2)",
    )
    failed = run_worker(workload(tmp_path, text), device).failed
    assert failed.exit_code == 4
    assert failed.message.startswith("net.py:4: the training step")
    assert "mat1 and mat2 shapes cannot be multiplied (3x5 and 2x2)" in failed.message
    assert "return super().forward(x)" in failed.traceback
    assert "smoketest/" not in failed.traceback
    assert failed.debug == ""


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        (
            ("return output.mean()", "return output"),
            "the loss must be a scalar tensor; loss_fn gave one of shape (3, 2)",
            "reduce it, for example with .mean()",
        ),
        (
            ("(torch.ones(3, 2),)", "(1.0,)"),
            "make_batch(0) gave no tensor: it returned a tuple of 2",
            "return (args, kwargs) as the model is called: (tensor,), {} for one input",
        ),
        (
            ("torch.nn.Linear(2, 2)", "None"),
            "make_model() gave None, not an nn.Module",
            "does it end in a return statement?",
        ),
    ],
)
def test_unusable_user_code_ends_in_exit_4_with_one_message(
    run_worker: Any, tmp_path: Path, change: tuple[str, str], message: str, hint: str
) -> None:
    text = RAISING.replace("torch.ones(3, 5)", "torch.ones(3, 2)").replace(*change)
    worker = run_worker(workload(tmp_path, text))
    assert (worker.failed.exit_code, worker.failed.message, worker.failed.hint) == (4, message, hint)
    assert worker.failed.traceback == ""
    assert worker.of("result") == []


def test_our_own_frames_are_sent_only_when_asked_for(run_worker: Any, tmp_path: Path) -> None:
    failed = run_worker(workload(tmp_path, RAISING), "cpu", debug=True).failed
    assert "smoketest/worker/eager.py" in failed.debug


DYING = """import os
import torch
from torch import nn
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.linear = nn.Linear(2, 2)
    def forward(self, x):
        x = self.linear(x)
        self.calls += 1
        if self.calls > AFTER:
            HOW
        return x
def make_model(): return nn.Sequential(Inner())
def make_batch(step): return (torch.ones(3, 2),), {}
def loss_fn(output, batch): return output.mean()
"""


@pytest.mark.parametrize("device", ["emulated", "cpu"])
def test_os_exit_leaves_a_breadcrumb_with_op_module_and_phase(run_worker: Any, tmp_path: Path, device: str) -> None:
    worker = run_worker(workload(tmp_path, DYING.replace("AFTER", "0").replace("HOW", "os._exit(3)")), device)
    assert worker.code == 3
    assert worker.of("result") == []
    op = {"emulated": "aten::linear", "cpu": "aten::addmm"}[device]  # the device has a kernel for it
    assert worker.crumb.sentence() == f"in step 1 of 5 (warmup), forward, after {op} in 0.linear"


def test_a_segfault_in_a_timed_step_leaves_step_and_phase_and_pythons_last_lines(
    run_worker: Any, tmp_path: Path
) -> None:
    how = "import ctypes; ctypes.string_at(0)"
    worker = run_worker(workload(tmp_path, DYING.replace("AFTER", "2").replace("HOW", how)))
    assert worker.code == -signal.SIGSEGV
    assert worker.crumb.sentence() == "in step 3 of 5 (timed), forward"
    assert "Fatal Python error: Segmentation fault" in worker.output
    assert len(worker.of("step")) == 2


def test_kill_9_in_mid_run_leaves_what_was_sent(run_worker: Any, tmp_path: Path) -> None:
    def kill(event: Any, pid: int) -> None:
        if event.event == "step" and event.step.index == 3:
            os.kill(pid, signal.SIGKILL)

    worker = run_worker(workload(tmp_path, TROUBLE, training={"steps": 10_000}), on_event=kill)
    assert worker.code == -signal.SIGKILL
    assert worker.crumb.role == "timed"
    assert {f.op for f in worker.findings} >= {"aten::atan2.out", "aten::sort.values_stable"}


def test_a_worker_with_a_python_of_its_own_says_what_a_forked_one_says(run_worker: Any, tmp_path: Path) -> None:
    """The tests here fork theirs from a process that has PyTorch, which `smoketest run` does not."""
    forked, fresh = (run_worker(workload(tmp_path, TROUBLE), fresh=fresh) for fresh in (False, True))
    assert fresh.code == forked.code == 0
    assert fresh.findings == forked.findings != ()
    assert [event.event for event in fresh.events if event.event != "heartbeat"] == [
        event.event for event in forked.events if event.event != "heartbeat"
    ]
    assert [step.loss for step in fresh.eager.steps] == [step.loss for step in forked.eager.steps]
    assert fresh.eager.op_calls == forked.eager.op_calls


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_is_quiet(run_worker: Any, tmp_path: Path, number: signal.Signals) -> None:
    def stop(event: Any, pid: int) -> None:
        if event.event == "step" and event.step.index == 1:
            os.kill(pid, number)

    worker = run_worker(workload(tmp_path, TROUBLE, training={"steps": 10_000}), on_event=stop)
    assert worker.code == -number
    assert "Traceback" not in worker.output


def test_the_worker_ends_when_its_supervisor_is_gone(tmp_path: Path) -> None:
    from smoketest.supervise.protocol import Request

    reading, writing = os.pipe()
    check = workload(tmp_path, DYING.replace("AFTER", "0").replace("HOW", "import time; time.sleep(600)"))
    request = Request(
        part="eager", check={"name": "x", **check}, device="cpu", root=tmp_path, events=writing,
        breadcrumb=tmp_path / "crumb",
    )  # fmt: skip
    (tmp_path / "request.json").write_text(request.model_dump_json())
    command = [sys.executable, "-m", "smoketest.worker", str(tmp_path / "request.json")]
    process = subprocess.Popen(command, pass_fds=(writing,), stdin=subprocess.DEVNULL)
    os.close(writing)
    os.read(reading, 10)
    os.close(reading)
    assert process.wait(timeout=200) == 5


def test_processes_that_user_code_starts_do_not_hold_the_event_pipe(run_worker: Any, tmp_path: Path) -> None:
    start = "import subprocess\nchild = subprocess.Popen(['sleep', '600'], stdout=-3, stderr=-3)\nprint(child.pid)\n"
    worker = run_worker(workload(tmp_path, start + RAISING.replace("torch.ones(3, 5)", "torch.ones(3, 2)")), "cpu")
    assert worker.eager.status == "ran"
    os.kill(int(worker.output.split()[0]), signal.SIGKILL)  # still there, and the pipe was at its end all the same


def test_a_device_that_is_not_there_is_exit_3(run_worker: Any, tmp_path: Path) -> None:
    from smoketest.devices.base import neuron_available

    if neuron_available():
        pytest.skip("this machine has torch-neuronx")
    failed = run_worker(workload(tmp_path, RAISING), "neuron").failed
    assert failed.exit_code == 3
    assert failed.hint


def test_an_error_in_the_users_own_backward_is_the_users(run_worker: Any, tmp_path: Path) -> None:
    text = """import torch
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, grad): raise ValueError("not today")
class Net(torch.nn.Linear):
    def forward(self, x): return Bad.apply(super().forward(x))
def make_model(): return Net(2, 2)
def make_batch(step): return (torch.ones(3, 2),), {}
def loss_fn(output, batch): return output.mean()
"""
    failed = run_worker(workload(tmp_path, text)).failed
    assert failed.exit_code == 4
    assert failed.message == "net.py:6: the training step, on plain CPU, raised ValueError: not today"


FIRST_TIME = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.ready = False

    def forward(self, x):
        if not self.ready:
            self.scale.copy_(torch.atan2(self.scale, self.scale))
            self.ready = True
        return self.out(x) * self.scale


def make_model():
    return Net()


def make_batch(step):
    return (torch.ones(2, 4),), {}


def loss_fn(output, batch):
    return output.square().mean()
"""


def test_a_fallback_in_the_warm_up_only_is_said_to_be_that(run_worker: Any, tmp_path: Path) -> None:
    worker = run_worker(workload(tmp_path, FIRST_TIME))
    (found,) = worker.findings
    assert (found.op, found.phase, found.site, found.calls_per_step) == ("aten::atan2.out", "forward", None, None)
    assert found.message.startswith("in the warm-up only: predicted fallback")


def net(forward: str, rest: str = "") -> str:
    """A workload whose model has two linear layers, a and b, and this forward."""
    return (
        "import os, threading, torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)\n"
        f"    def forward(self, x):\n        {forward}\n"
        "def make_model(): return Net()\n"
        "def make_batch(step): return {'x': torch.ones(2, 4)}\n"
        "def loss_fn(output, batch): return output.sum()\n"
        f"{rest}\n"
    )


SHORT = {"training": {"steps": 1, "warmup": 1}}


@pytest.mark.parametrize(
    ("forward", "first", "on_cpu", "op", "how"),
    [
        (
            "return self.a(x) * float('nan')",
            "in 3 of 3 steps, first in step 1 of 3 (warmup)",
            "plain CPU gives the same",
            "aten::mul.Tensor",
            "aten::mul.Tensor was the first op to make a NaN, out of finite values",
        ),
        (
            "return self.a(x) / (x.device.type == 'cpu')",
            "in 3 of 3 steps, first in step 1 of 3 (warmup)",
            "plain CPU's loss of that step is finite",
            "aten::div.Tensor",
            "aten::div.Tensor was the first op to make an infinity, out of finite values",
        ),
        (
            "self.n = getattr(self, 'n', 0) + 1; return self.a(x) / (self.n < 2)",
            "in 2 of 3 steps, first in step 2 of 3 (timed)",
            "plain CPU gives the same",
            "aten::div.Tensor",
            "aten::div.Tensor was the first op to make an infinity, out of finite values",
        ),
    ],
)
def test_a_loss_that_is_not_finite_is_a_finding_at_the_op_that_made_it(
    run_worker: Any, tmp_path: Path, forward: str, first: str, on_cpu: str, op: str, how: str
) -> None:
    worker = run_worker(workload(tmp_path, net(forward), **SHORT))
    assert worker.eager.status == "ran"
    (finding,) = [finding for finding in worker.findings if finding.rule == "NST105"]
    assert (finding.phase, finding.class_, finding.op) == ("forward", "non_finite", op)
    assert finding.site.code == forward
    assert [module.pattern for module in finding.modules] == ["Net"]
    assert finding.message == f"the loss is NaN or infinite {first}; {on_cpu}; {how}"


@pytest.mark.parametrize(
    "text",
    [
        net("return self.a(x.cpu())", "class Stays(Net):\n    def to(self, *a, **k): return self\nmake_model = Stays"),
        net("return self.a(x)", "def train_step(model, batch, optimizer): return 1.0"),
    ],
    ids=["a model that does not move", "a step that does nothing"],
)
def test_a_step_in_which_nothing_runs_on_the_device_is_not_checked_for_fallbacks(
    run_worker: Any, tmp_path: Path, text: str
) -> None:
    worker = run_worker(workload(tmp_path, text, **SHORT))
    notes = {note.not_checked.what: note.not_checked.why for note in worker.of("note")}
    assert notes["fallbacks"] == (
        "no op of forward or backward ran on the device: is the model moved by model.to(device)?"
    )
    assert worker.eager.op_calls - worker.eager.host_calls < 2


THREAD = """out = []
        thread = threading.Thread(target=lambda: out.append(torch.lgamma(self.a(x))))
        thread.start(); thread.join()
        return self.b(out[0])"""
POOL = """return self.b(pool.submit(torch.lgamma, self.a(x)).result())


from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(1)"""


def test_ops_in_a_thread_that_the_step_starts_have_line_and_count(run_worker: Any, tmp_path: Path) -> None:
    worker = run_worker(workload(tmp_path, net(THREAD), **SHORT))
    assert not [note for note in worker.of("note") if "threads" in note.not_checked.what]
    (found,) = [f for f in worker.findings if f.op == "aten::lgamma.out"]
    assert found.site.code == "thread = threading.Thread(target=lambda: out.append(torch.lgamma(self.a(x))))"
    assert ([(m.pattern, m.calls) for m in found.modules], found.calls_per_step) == ([("Net", 1)], 1)
    assert worker.eager.op_calls > worker.eager.host_calls


def test_ops_in_a_thread_of_an_earlier_step_are_told_and_no_total_is_claimed(run_worker: Any, tmp_path: Path) -> None:
    worker = run_worker(workload(tmp_path, net(POOL), **SHORT))
    notes = {note.not_checked.what: note.not_checked.why for note in worker.of("note")}
    assert notes["lines and counts of ops in threads that the user's code starts"] == (
        "the dispatch mode does not see them; in the traced step ops ran in 1 of them"
    )
    assert [f.site for f in worker.findings if f.op == "aten::lgamma.out"] == [None]
    assert (worker.eager.op_calls, worker.eager.host_calls, worker.eager.distinct_ops) == (None, None, None)


ON_THE_DEVICE_ONLY = {
    "forward": "y = torch.lgamma(self.a(x).abs() + 1)\n        if y.device.type != 'cpu': raise ValueError('mine')\n"
    "        return y",
    "backward": "y = self.a(x)\n        def h(g):\n            if g.device.type != 'cpu': raise ValueError('mine')\n"
    "        y.register_hook(h)\n        return self.b(y)",
}


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("warmup", [0, 1])
def test_an_exception_of_the_code_itself_is_blamed_on_its_line_and_on_no_op(
    run_worker: Any, tmp_path: Path, phase: str, warmup: int
) -> None:
    text = net(ON_THE_DEVICE_ONLY[phase])
    worker = run_worker(workload(tmp_path, text, training={"steps": 1, "warmup": warmup}))
    (failed,) = [finding for finding in worker.findings if finding.rule == "NST104"]
    assert (failed.op, failed.called_as, failed.phase) == (None, None, phase)
    assert failed.site.line == line_of(text, "mine")
    assert failed.message == "this line raised on the emulated device, and plain CPU runs it: ValueError: mine"
    assert "check of the device's type" in failed.remedy
    assert worker.eager.reason.startswith("the user code raised in step 1 of ")


def test_an_exception_that_the_users_code_catches_blames_no_op(run_worker: Any, tmp_path: Path) -> None:
    forward = """try:
            x + torch.ones(2, 4)
        except RuntimeError:
            pass
        y = self.a(x)
        assert y.device.type == 'cpu', 'mine'
        return y"""
    worker = run_worker(workload(tmp_path, net(forward), **SHORT))
    (failed,) = [finding for finding in worker.findings if finding.rule == "NST104"]
    assert (failed.op, failed.site.code) == (None, "assert y.device.type == 'cpu', 'mine'")


@pytest.mark.parametrize("child", ["raise SystemExit(7)", "pass"])
def test_a_process_that_the_users_code_forks_says_nothing_of_its_own(
    run_worker: Any, tmp_path: Path, child: str
) -> None:
    # One fork, by the first call: a child that raises has it made again, to tell of it.
    forks = "Net.calls = getattr(Net, 'calls', 0) + 1\n        if Net.calls == 1 and os.fork() == 0"
    text = net(f"{forks}: {child}\n        return self.a(x)")
    worker = run_worker(workload(tmp_path, text, **SHORT))
    assert len(worker.of("hello")) == len(worker.of("result")) == 1
    assert [step.index for step in worker.eager.steps] == [0, 1, 2]
    assert worker.of("failed") == []


DIES = """class Fn(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t): return t.clone()
            @staticmethod
            def backward(ctx, g):
                Net.n = getattr(Net, 'n', 0) + 1
                if Net.n == {number}: os.kill(os.getpid(), 9)
                return g
        return Fn.apply(torch.lgamma(self.a(x).abs() + 1))"""


@pytest.mark.parametrize(("number", "has_line"), [(1, False), (4, True)])
def test_a_worker_that_dies_in_backward_has_told_what_its_forward_showed(
    run_worker: Any, tmp_path: Path, number: int, has_line: bool
) -> None:
    worker = run_worker(workload(tmp_path, net(DIES.replace("{number}", str(number))), **SHORT))
    assert worker.code == -signal.SIGKILL
    found = [finding for finding in worker.findings if finding.op == "aten::lgamma.out"]
    assert [finding.phase for finding in found] == ["forward"]
    assert [finding.site is not None for finding in found] == [has_line]


USERS_OWN = """import torch
class Stop(BaseException): pass
class Wordless(Exception):
    def __str__(self): raise ValueError("no words")
class Net(torch.nn.Linear):
    def forward(self, x):
        raise WHAT
def make_model(): return Net(2, 2)
def make_batch(step): return (torch.ones(3, 2),), {}
def loss_fn(output, batch): return output.mean()
"""


@pytest.mark.parametrize("part", ["eager", "compile"])
@pytest.mark.parametrize(
    ("what", "words"),
    [("Stop('mine')", "Stop: mine"), ("KeyboardInterrupt", "KeyboardInterrupt"), ("GeneratorExit", "GeneratorExit")],
)
def test_whatever_the_users_code_raises_is_told_at_its_line(
    run_worker: Any, tmp_path: Path, what: str, words: str, part: str
) -> None:
    failed = run_worker(workload(tmp_path, USERS_OWN.replace("WHAT", what)), part=part).failed
    assert (failed.exit_code, failed.message.partition(": ")[0]) == (4, "net.py:7")
    assert failed.message.endswith(f" raised {words}")
    assert "smoketest/" not in failed.traceback


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (r"ValueError('lone \udcff')", r"raised ValueError: lone \udcff"),
        ("Wordless", "raised Wordless: (its text cannot be had: __str__ raised ValueError)"),
    ],
)
def test_texts_that_no_message_can_hold_are_told_as_far_as_possible(
    run_worker: Any, tmp_path: Path, what: str, words: str
) -> None:
    failed = run_worker(workload(tmp_path, USERS_OWN.replace("WHAT", what))).failed
    assert failed.exit_code == 4
    assert failed.message.endswith(words)


@pytest.mark.parametrize("how", ["import torch._dynamo; torch._dynamo.config.disable = True", "variable"])
def test_where_dynamo_is_switched_off_the_probe_is_skipped_and_says_why(
    run_worker: Any, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "torch._dynamo.config.disable switches torch.compile off"
    if how == "variable":
        monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
        how, reason = "", "TORCHDYNAMO_DISABLE=1 switches torch.compile off"
    (result,) = run_worker(workload(tmp_path, net("return self.a(x)", how), **SHORT), part="compile").of("result")
    assert (result.compile.status, result.compile.reason) == ("skipped", reason)


def test_a_model_without_a_graph_is_said_to_be_not_lowered(run_worker: Any, tmp_path: Path) -> None:
    text = net("return self.a(x)", "Net.forward = torch.compiler.disable(Net.forward)")
    worker = run_worker(workload(tmp_path, text, **SHORT), part="compile")
    notes = {note.not_checked.what: note.not_checked.why for note in worker.of("note")}
    assert notes["what the compiler makes of the model"] == "Dynamo captured no graph of it: nothing was lowered"


def test_an_exception_that_comes_of_a_warning_comes_on_plain_cpu_too(run_worker: Any, tmp_path: Path) -> None:
    forward = "import sys, warnings; sys.stderr = object(); warnings.warn('hi')\n        return self.a(x)"
    failed = run_worker(workload(tmp_path, net(forward), **SHORT)).failed
    assert failed.exit_code == 4
    assert failed.message == (
        "net.py:8: the training step, on plain CPU, raised AttributeError: 'object' object has no attribute 'write'"
    )


MOVES = """class Holder:
    def __init__(self): self.x = torch.ones(2, 4)
    def to(self, device):
        if {when}: raise ValueError("no move")
        return self.x.to(device)
def make_batch(step): return {'x': Holder()}"""


def test_a_batch_that_cannot_move_to_the_device_is_told_in_setup(run_worker: Any, tmp_path: Path) -> None:
    text = net("return self.a(x)", MOVES.replace("{when}", "device.type != 'cpu'"))
    worker = run_worker(workload(tmp_path, text, **SHORT))
    (failed,) = worker.findings
    assert (failed.rule, failed.op, failed.phase) == ("NST104", None, "setup")
    assert failed.site.line == line_of(text, "no move")
    assert worker.eager.reason == "the user code raised in step 1 of 3 (warmup), setup: ValueError: no move"


def test_a_batch_that_cannot_move_at_all_is_the_users_error_and_called_so(run_worker: Any, tmp_path: Path) -> None:
    text = net("return self.a(x)", MOVES.replace("{when}", "True"))
    failed = run_worker(workload(tmp_path, text, **SHORT)).failed
    line = line_of(text, "no move")
    assert failed.message == f"net.py:{line}: moving the batch to the device, on plain CPU, raised ValueError: no move"
