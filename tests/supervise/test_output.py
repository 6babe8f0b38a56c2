"""What a worker prints of fallbacks, from C++ too, is heard; nothing that it prints is lost or reordered."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from smoketest.config import Check
from smoketest.findings import Finding, Observation, merge
from smoketest.findings.report import Report
from smoketest.supervise.files import LOG_HEAD
from smoketest.supervise.output import MAX_LINE, MAX_OPS, HeardOps, with_heard
from smoketest.supervise.run import Options, run_check
from tests.supervise.test_supervision import ROOT, run

LOG = b"""\
step 1 of 3\r[Neuron] [DEBUG] [Exec.cpp:31] Starting CPU fallback operation= aten::mul.Tensor
[Neuron] [DEBUG] [Exec.cpp:44] CPU fallback completed operation= aten::mul.Tensor time_us= 7
/x/torch/nn.py:3: UserWarning: [Neuron] [WARNING] [Log.h:9] Operator ' aten::atan2.out ' fell back to CPU
\x1b[33mOperator\x1b[0m '\x1b[1maten::erfinv.out\x1b[0m' executed via CPU fallback
DEBUG:root:No implementation could handle operation topk. Falling back on CPU. Args: [c10::PrivateUse1]
ERROR:root:No implementation could handle operation aten::roll. Falling back on CPU. Args: [x]
flash-attn is not installed, falling back to CPU
the operation is falling back to CPU \xff\xfe
Sequence length 77 is not a multiple of 512. Falling back to XLA/MLIR implementation instead of flash attention
Operator 'aten::sort.values_stable' fell back to CPU"""
OPS = ["aten::mul.Tensor", "aten::atan2.out", "aten::erfinv.out", "topk", "aten::sort.values_stable"]


@pytest.fixture(autouse=True)
def _doubles_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def heard(data: bytes, size: int) -> HeardOps:
    listener = HeardOps()
    for start in range(0, len(data), size):
        listener.hear(data[start : start + size])
    listener.end()
    return listener


def fallback(op: str, rule: str = "NST101", called_as: str | None = None) -> Finding:
    seen = Observation(rule=rule, op=op, called_as=called_as, witnesses=frozenset({"tracker"}))
    return merge([seen])[0]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_every_format_is_heard_in_pieces_of_any_size(size: int) -> None:
    assert list(heard(LOG, size).ops) == OPS


def test_lines_without_end_and_ops_without_end_take_no_room() -> None:
    listener = HeardOps()
    for _ in range(100):
        listener.hear(b"x" * 100_000)
        assert len(listener._partial) <= MAX_LINE
    listener.hear(b"Operator 'aten::late' fell back to CPU\n")
    assert not listener.ops, "only the beginning of a line is read"
    for number in range(MAX_OPS):
        listener.hear(b"Operator 'aten::op%d' fell back to CPU\n" % number)
    assert (len(listener.ops), listener.overflowed) == (MAX_OPS, False)
    listener.hear(b"Operator 'aten::one_more' fell back to CPU\nOperator '" + b"n" * 5000 + b"' fell back to CPU\n")
    assert (len(listener.ops), listener.overflowed) == (MAX_OPS, True)


def test_a_flood_is_listened_to_in_no_time() -> None:
    started = time.process_time()
    heard(b"cpu usage 97 %, loss 0.123456\n" * (LOG_HEAD // 30), 2**18)
    assert time.process_time() - started < 5, "of this process: whatever else runs here"


def test_a_known_fallback_gains_a_witness_and_keeps_its_id_and_an_unknown_one_is_a_finding_with_no_site() -> None:
    before = (fallback("aten::atan2.out"), fallback("aten::sort.values_stable", called_as="aten::argsort"))
    after = with_heard(before, dict.fromkeys(["atan2", "aten::argsort", "topk", "aten::topk", "aten::topk.values"]))
    assert [(f.op, f.witnesses) for f in after] == [
        ("aten::atan2.out", ("output", "tracker")),
        ("aten::sort.values_stable", ("output", "tracker")),
        ("aten::topk.values", ("output",)),
    ]
    assert [f.id for f in after[:2]] == [f.id for f in before]
    only = after[2]
    assert (only.rule, only.kind, only.grounds, only.exact, only.calls_per_step) == (
        "NST101", "unknown", "measured", False, None,
    )  # fmt: skip
    assert (only.site, only.phase, only.modules) == (None, None, ())
    assert only.message == "aten::topk.values ran on the CPU, by what the backend printed; no other witness saw it"


def test_an_op_that_is_heard_at_setup_only_is_said_to_be_that() -> None:
    listener = HeardOps()
    listener.hear(b"Operator 'aten::uniform_' fell back to CPU\nOperator 'aten::topk' fell back to CPU\n", "setup")
    listener.hear(b"Operator 'topk' fell back to CPU\n")
    assert [(f.op, f.phase, f.message.partition(" ran")[0]) for f in with_heard((), listener.ops)] == [
        ("aten::topk", None, "aten::topk"),
        ("aten::uniform_", "setup", "at setup only: aten::uniform_"),
    ]


def test_an_op_that_raised_is_not_said_to_have_run_on_the_cpu() -> None:
    before = (fallback("aten::roll", rule="NST104"),)
    assert with_heard(before, {"aten::roll": None}) == before


def test_other_findings_about_the_op_gain_no_witness() -> None:
    before = (fallback("aten::nonzero", rule="NST103"),)
    after = with_heard(before, {"aten::nonzero": None})
    assert after[0] == before[0]
    assert [(f.rule, f.op) for f in after[1:]] == [("NST101", "aten::nonzero")]


def fallbacks(report: Report) -> list[tuple[str | None, int | None, tuple[str, ...]]]:
    return [(f.op, f.site.line if f.site else None, f.witnesses) for f in report.findings if f.rule == "NST101"]


def test_what_a_process_prints_past_python_is_heard_on_a_real_device(tmp_path: Path) -> None:
    report = run(tmp_path, act="fallback_lines", device="neuron", finding=True, compile_enabled=False)
    assert fallbacks(report) == [
        ("aten::erfinv", None, ("output",)),
        ("aten::topk.values", None, ("output",)),
        ("aten::atan2.out", 3, ("output",)),
    ]
    assert report.exit_code == 1, "measured fallbacks are denied"


def test_what_is_printed_before_the_first_step_denies_nothing(tmp_path: Path) -> None:
    report = run(tmp_path, act_setup="fallback_lines", device="neuron", compile_enabled=False)
    found = [f for f in report.findings if f.rule == "NST101"]  # this machine has no torch-neuronx, which is NST301
    assert [(f.phase, f.verdict) for f in found] == [("setup", "warn")] * 3


@pytest.mark.parametrize("device", ["emulated", "cpu"])
def test_on_other_devices_a_line_makes_no_finding(tmp_path: Path, device: str) -> None:
    report = run(tmp_path, act="fallback_lines", device=device, compile_enabled=False)
    assert not fallbacks(report)


def test_what_was_printed_is_in_the_log_as_it_came(tmp_path: Path) -> None:
    run(tmp_path, act="fallback_lines", device="neuron", compile_enabled=False)
    assert (tmp_path / "out" / "double" / "log" / "eager.log").read_text() == (
        "mine, before\n"
        "[Neuron] [DEBUG] [Exec.cpp:3] Starting CPU fallback operation= aten::topk.values\n"
        "Operator ' aten::atan2.out ' fell back to CPU\n"
        "Operator 'erfinv' executed via CPU fallback\n"
        "mine, after\n"
    )


def test_a_worker_that_dies_leaves_what_was_heard(tmp_path: Path) -> None:
    report = run(tmp_path, act="fallback_lines", act_traced="kill9", device="neuron", compile_enabled=False)
    assert report.eager.status == "crashed"
    assert [op for op, *_ in fallbacks(report)] == ["aten::atan2.out", "aten::erfinv", "aten::topk.values"]


USER_CODE = """
import os
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        os.write(2, b"Operator ' aten::uniform_ ' fell back to CPU" + bytes([10]))

    def forward(self, x):
        os.write(2, b"Operator ' aten::atan2.out ' fell back to CPU" + bytes([10]))
        print("mine")
        os.write(1, b"[Neuron] [DEBUG] [Exec.cpp:3] Starting CPU fallback operation= aten::mul.Tensor" + bytes([10]))
        return torch.atan2(self.linear(x), x + 2).sum()
"""


@pytest.mark.parametrize("tracker", [True, False])
def test_a_real_worker_on_a_device_that_prints_as_cpp_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracker: bool
) -> None:
    (tmp_path / "printing.py").write_text(USER_CODE)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    if tracker:
        monkeypatch.setenv("TRACKER", "1")
    asked = Check.model_validate({
        "name": "printing", "device": "neuron", "model": {"target": f"{tmp_path / 'printing.py'}:Model"},
        "batch": {"tensors": {"x": {"shape": [2, 4], "dtype": "float32"}}}, "loss": "output",
        "training": {"steps": 1, "warmup": 1}, "compile": {"enabled": False}, "parity": {"enabled": False},
    })  # fmt: skip
    options = Options(output=tmp_path / "out", root=tmp_path, worker="tests.supervise.neuron_worker")
    report = run_check(asked, options)
    assert report.eager.reason is None
    seen = [
        (f.op, f.phase, f.site.line if f.site else None, f.witnesses) for f in report.findings if f.rule == "NST101"
    ]
    by_others = ("dispatch", "output", "registry", "tracker")
    atan2 = ("aten::atan2.out", "forward", 15, by_others) if tracker else ("aten::atan2.out", None, None, ("output",))
    mul, uniform = ("aten::mul.Tensor", None, None, ("output",)), ("aten::uniform_", "setup", None, ("output",))
    assert sorted(seen, key=str) == [atan2, mul, uniform]
