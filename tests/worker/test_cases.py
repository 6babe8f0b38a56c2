"""The cases: models from public reports train on the emulated device, or end as their headers say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smoketest.findings.identity import functional_base
from smoketest.operators.profile import load_profile

CASES = Path(__file__).parent.parent / "cases"
STEMS = sorted(file.stem for file in CASES.glob("[0-9]*.py"))
NATIVE = {functional_base(op) for op in load_profile(None).native}
SILENT_VIEWS = {functional_base(op) for op in load_profile(None).view_whitelist}
UNIMPLEMENTED = {functional_base(op) for op in load_profile(None).unimplemented} - SILENT_VIEWS

RAISE = {
    "031_sparse_grad_embedding_sparseadam": "aten::_sparse_coo_tensor_with_dims_and_tensors",
    "068_stray_cpu_tensor_attribute": "aten::mul.Tensor",
}
"""The device has no sparse tensors, and takes no CPU tensor beside its own."""

NOTHING = {
    "018_qwen_block_clean_control",
    "021_partial_last_batch_recompile",
    "054_foreach_adam_ema_clip",
    "056_checkpoint_dropout_rng",
    "057_tied_lm_head_device_move",
    "061_inplace_slice_autograd",
}
"""The pre-release has kernels for all they use."""

CELLS = {
    "026_ocr_bilstm_ctc": {"aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_lstm_cell_backward_impl"},
    "028_gru_cell_attention_decoder": {"aten::_thnn_fused_gru_cell", "aten::_thnn_fused_gru_cell_backward"},
}
"""Neither the device nor the CPU has a kernel for these; the emulated device goes on past them."""


@pytest.fixture(scope="module")
def outcomes() -> Any:
    command = [sys.executable, str(Path(__file__).with_name("run_cases.py")), str(CASES)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", [stem for stem in STEMS if stem not in RAISE])
def test_it_trains_with_the_losses_of_plain_cpu(outcomes: Any, case: str) -> None:
    device, cpu = outcomes[case]["device"], outcomes[case]["cpu"]
    assert (device["status"], cpu["status"]) == ("ran", "ran")
    assert len(device["losses"]) == 5
    assert device["losses"] == pytest.approx(cpu["losses"], rel=1e-4)


@pytest.mark.parametrize("case", STEMS)
def test_an_op_expected_in_trouble_is_found_where_the_profile_has_no_kernel(outcomes: Any, case: str) -> None:
    if case in RAISE:
        pytest.skip("it ends before it reaches them all")
    found = {(functional_base(f["op"]), f["phase"]) for f in outcomes[case]["device"]["findings"] if f["op"]}
    expected = outcomes["meta"][case]["expect"]
    for phase, names in expected.items():
        for alternatives in names:
            bases = {functional_base(name) for name in alternatives.split("|")}
            if bases <= UNIMPLEMENTED - NATIVE:
                assert any((base, phase) in found for base in bases), f"{alternatives} in {phase}"


@pytest.mark.parametrize("case", STEMS)
def test_a_finding_is_an_op_without_a_kernel_and_has_a_place(outcomes: Any, case: str) -> None:
    findings = outcomes[case]["device"]["findings"]
    profile = load_profile(None)
    for finding in findings:
        if finding["rule"] in ("NST102", "NST103"):
            continue
        if finding["rule"] == "NST101":
            assert finding["kind"] == "unimplemented"
            assert not profile.is_native(finding["op"])
        assert finding["site"]["file"] == f"{case}.py", finding
        assert finding["site"]["code"] in (CASES / f"{case}.py").read_text()
    assert (findings == []) == (case in NOTHING)


WAITS = {
    "002_radius_graph_masked_select": {
        "vec = torch.masked_select(diff, mask.view(-1, 1).expand(-1, 3)).view(-1, 3)": 1,
        "src = torch.masked_select(a, mask)": 1,
        "dst = torch.masked_select(b, mask)": 1,
        "self_edges = torch.nonzero(src < dst).flatten()": 1,
    },
    "007_flow_warp_gather_tiles": {"if not bool((wt > 0).any()):": 4},
    "016_depth_decoder_item_breaks": {"start = cache.seen.item()": 4},
    # the two tensors of lengths
    "026_ocr_bilstm_ctc": {"return F.ctc_loss(output, targets, inp, lengths, zero_infinity=True)": 2},
    "037_gp_marginal_cholesky": {"low = torch.linalg.cholesky(k)": 1},  # its error code
    "053_fp16_grad_scaler": {"if not found.item():": 1},  # in the optimizer's step
}
"""Where the host waits for the device, and how often in a step; nowhere else."""


@pytest.mark.parametrize("case", STEMS)
def test_the_host_waits_at_these_lines_and_no_others(outcomes: Any, case: str) -> None:
    waits = {
        f["site"]["code"]: f["calls_per_step"] for f in outcomes[case]["device"]["findings"] if f["rule"] == "NST103"
    }
    assert waits == WAITS.get(case, {})


@pytest.mark.parametrize("case", [stem for stem in STEMS if stem not in RAISE])
def test_every_tensor_of_a_step_is_that_of_plain_cpu(outcomes: Any, case: str) -> None:
    device = outcomes[case]["device"]
    (parity,) = device["parity"]
    assert (parity["status"], parity["steps"], device["differs"]) == ("ran", 5, [])
    assert parity["tensors"] >= 15
    assert not [what for what in device["notes"] if "trac" in what]  # the traced step is the untraced one


def test_tensors_that_the_move_left_behind_are_told_at_the_lines_that_made_them(outcomes: Any) -> None:
    left = {
        f["site"]["code"].partition("  ")[0]: f["message"].partition(" stayed")[0]
        for f in outcomes["068_stray_cpu_tensor_attribute"]["device"]["findings"]
        if f["rule"] == "NST107"
    }
    assert left == {
        "self.window = torch.hann_window(n)": "window",
        "self.scales = [torch.tensor(0.5), torch.linspace(0.5, 1.5, h)]": "scales[1]",
    }


@pytest.mark.parametrize("case", [stem for stem in STEMS if stem not in RAISE])
def test_nothing_else_is_changed_by_the_move(outcomes: Any, case: str) -> None:
    assert [f for f in outcomes[case]["device"]["findings"] if f["rule"] == "NST107"] == []


def test_lazy_modules_are_said_to_need_a_forward_before_the_move(outcomes: Any) -> None:
    why = outcomes["058_lazy_modules"]["device"]["notes"]["how lazy modules get their parameters on the device"]
    assert why.startswith(
        "one forward on the CPU, before the move and the optimizer, made those of net.0, net.1, net.5"
    )


@pytest.mark.parametrize("case", sorted(CELLS))
def test_cells_without_any_kernel_are_failed_ops_and_the_step_goes_on(outcomes: Any, case: str) -> None:
    findings = outcomes[case]["device"]["findings"]
    assert {f["op"] for f in findings if f["rule"] == "NST104"} == CELLS[case]
    assert not any(f["op"] in CELLS[case] for f in findings if f["rule"] == "NST101")


@pytest.mark.parametrize("case", sorted(RAISE))
def test_a_model_the_device_cannot_run_is_a_failed_op(outcomes: Any, case: str) -> None:
    assert outcomes[case]["cpu"]["status"] == "ran"
    device = outcomes[case]["device"]
    assert device["status"] == "failed"
    assert [f["op"] for f in device["findings"] if f["rule"] == "NST104"] == [RAISE[case]]
