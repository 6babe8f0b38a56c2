"""What the witnesses saw adds up to the same findings, whoever of them saw it."""

from __future__ import annotations

from pathlib import Path

import torch

from smoketest.findings import Observation, SitePolicy, merge
from smoketest.findings.report import OperatorRow
from smoketest.operators.profile import OperatorProfile, load_profile
from smoketest.witness.dispatch import Calls, FailedOp, OpKey
from smoketest.witness.failures import continued, op_in_error, raised
from smoketest.witness.reconcile import Evidence, observations, operator_rows
from smoketest.witness.warnings import SeenWarning

HERE = str(Path(__file__).resolve())
POLICY = SitePolicy(Path(__file__).parent)
PROFILE: OperatorProfile = load_profile(None)
F32 = ((torch.float32, (4, 3)),)


def key(op: str, *names: str, phase: str = "forward", module: str = "net.0", line: int = 3) -> OpKey:
    return OpKey(op, phase, module, (HERE, line), frozenset(names), True)  # type: ignore[arg-type]


def calls(count: int = 1, crossing: int = 96) -> Calls:
    return Calls(count, crossing, {F32: None})


def see(evidence: Evidence, **options: object) -> list[Observation]:
    return observations(evidence, PROFILE, POLICY, **options)  # type: ignore[arg-type]


def test_a_traced_fallback_has_place_count_bytes_and_grounds() -> None:
    (seen,) = see(Evidence(traced={key("aten::atan2", "aten::atan2.out"): calls(3)}))
    assert (seen.rule, seen.op, seen.called_as) == ("NST101", "aten::atan2.out", "aten::atan2")
    assert (seen.kind, seen.grounds, seen.phase) == ("unimplemented", "reported", "forward")
    assert seen.site is not None
    assert (seen.site.file, seen.site.line) == ("test_reconcile.py", 3)
    assert (seen.module, seen.calls, seen.exact, seen.bytes) == ("net.0", 3, True, 96)
    assert seen.shapes == ("f32[4, 3]",)
    assert seen.witnesses == {"tracker", "dispatch"}


def test_loud_and_silent_devices_give_the_same_findings_but_for_the_witnesses() -> None:
    traced = {key("aten::atan2", "aten::atan2.out"): calls()}
    tracked = {("aten::atan2.out", "forward"), ("aten::erfinv.out", "optimizer")}
    warned = [SeenWarning("aten::atan2.out", "forward"), SeenWarning("aten::erfinv.out", "optimizer")]
    silent = merge(see(Evidence(set(tracked), None, [], traced)))  # type: ignore[arg-type]
    loud = merge(see(Evidence(set(tracked), None, warned, traced)))  # type: ignore[arg-type]
    assert [one.model_copy(update={"witnesses": ()}) for one in loud] == [
        one.model_copy(update={"witnesses": ()}) for one in silent
    ]
    assert [one.witnesses for one in silent] == [("dispatch", "tracker"), ("tracker",)]
    assert [one.witnesses for one in loud] == [("dispatch", "tracker", "warnings"), ("tracker", "warnings")]


def test_a_name_only_the_tracker_knows_is_a_finding_without_a_site() -> None:
    traced = {key("aten::atan2", "aten::atan2.out"): calls()}
    tracked = {("aten::atan2.out", "forward"), ("aten::atan2.out", "optimizer")}
    seen = see(Evidence(tracked, None, [], traced))  # type: ignore[arg-type]
    assert [(one.phase, one.site is None, one.calls, one.exact) for one in seen] == [
        ("forward", False, 1, True),
        ("optimizer", True, None, False),
    ]


def test_a_device_without_a_tracker_is_known_by_its_warnings() -> None:
    seen = observations(Evidence(warned=[SeenWarning("aten::mish.out", "backward")]), None, POLICY)
    assert [(one.op, one.phase, one.grounds, one.witnesses) for one in seen] == [
        ("aten::mish.out", "backward", "measured", frozenset({"warnings", "registry"}))
    ]
    assert seen[0].message == "aten::mish.out ran on the CPU"


def test_a_composite_reaching_another_kernel_gives_a_lower_bound_and_no_bytes() -> None:
    (seen,) = see(Evidence(traced={key("aten::native_group_norm", "aten::var_mean.correction"): calls(2)}))
    assert (seen.calls, seen.exact, seen.bytes) == (2, False, None)
    (foreach,) = see(Evidence(traced={key("aten::_foreach_tan", "aten::tan.out"): calls(1)}))
    assert (foreach.calls, foreach.exact, foreach.bytes) == (1, False, 96)


def test_kernels_count_what_a_composite_reached() -> None:
    reached = calls(1)
    reached.kernels.update({"aten::tan.out": 10})
    traced = {key("aten::_foreach_tan", "aten::tan.out"): reached}
    tracked = {("aten::tan.out", "forward")}
    (seen,) = see(Evidence(tracked, None, [], traced, counted_by="kernels"))  # type: ignore[arg-type]
    assert (seen.calls, seen.exact, seen.bytes) == (10, True, 96)
    assert seen.witnesses == {"kernels", "dispatch", "tracker"}


def test_predictions_are_worded_by_what_they_stand_on() -> None:
    possible = see(Evidence(traced={key("aten::native_batch_norm", "aten::native_batch_norm"): calls()}))[0]
    assert possible.grounds == "no_kernel_known"
    assert possible.message == (
        "possible fallback: the operator profile torch-neuronx-prerelease-2026-04 has no kernel for"
        " aten::native_batch_norm; a release may well run it on the device"
    )
    reported = see(Evidence(traced={key("aten::acos", "aten::acos.out"): calls()}))[0]
    assert reported.message.startswith("predicted fallback: aten::acos was seen to run on the CPU of a real device")
    setup = see(Evidence(tracked={("aten::native_batch_norm", "setup")}))[0]
    assert setup.phase == "setup"
    assert setup.message.startswith("at setup only: possible fallback")


def test_a_fallback_of_the_warm_up_alone_is_said_to_be_that() -> None:
    tracked = {("aten::atan2.out", "forward"), ("aten::acos.out", "forward")}
    acos, atan2 = see(Evidence(set(tracked), {("aten::acos.out", "forward")}))  # type: ignore[arg-type]
    assert atan2.message.startswith("in the warm-up only: predicted fallback")
    assert acos.message.startswith("predicted fallback")
    not_yet = see(Evidence(set(tracked)))  # type: ignore[arg-type]
    assert not any("warm-up" in seen.message for seen in not_yet)


def test_the_overload_of_untraced_steps_wins_over_the_one_a_mode_chooses() -> None:
    traced = {key("aten::_ctc_loss.Tensor", "aten::_ctc_loss.Tensor"): calls()}
    (seen,) = see(Evidence({("aten::_ctc_loss", "forward")}, None, [], traced))
    assert (seen.op, seen.site is None) == ("aten::_ctc_loss", False)


def test_in_an_unsplit_step_the_traced_phases_are_the_ones_told() -> None:
    traced = {key("aten::atan2", "aten::atan2.out", phase="backward"): calls()}
    (seen,) = see(Evidence({("aten::atan2.out", None)}, None, [], traced))
    assert seen.phase == "backward"


def test_33_layers_are_one_finding_per_phase_and_line() -> None:
    traced = {
        key("aten::native_batch_norm", "aten::native_batch_norm", module=f"layers.{n}.norm", phase=phase): calls()
        for n in range(33)
        for phase in ("forward", "backward")
    }
    findings = merge(see(Evidence(traced=traced)))
    assert [(one.phase, one.calls_per_step) for one in findings] == [("backward", 33), ("forward", 33)]
    assert [(m.pattern, m.calls) for m in findings[0].modules] == [("layers.*.norm", 33)]


def test_counts_of_a_step_that_broke_off_are_lower_bounds() -> None:
    traced = {key("aten::atan2", "aten::atan2.out"): calls()}
    assert see(Evidence(traced=traced, complete=False))[0].exact is False


def test_an_op_gone_past_is_op_failed_and_nothing_it_reached_is_a_fallback() -> None:
    cell = "aten::_thnn_fused_lstm_cell"
    traced = {key(cell, cell, "aten::tan.out"): calls(5)}
    evidence = Evidence({(cell, "forward")}, [], traced)
    assert see(evidence, raised=[cell]) == []
    (seen,) = continued([cell], traced, POLICY)
    assert (seen.rule, seen.op, seen.calls, seen.module, seen.phase) == ("NST104", cell, 5, "net.0", "forward")
    (elsewhere,) = continued([cell], {}, POLICY)
    assert (elsewhere.site, elsewhere.exact) == (None, False)


def test_an_exceptions_op_is_the_one_it_names_else_the_one_it_came_out_of() -> None:
    text = "NotImplementedError: Could not run 'aten::_thnn_fused_gru_cell' with arguments from the 'CPU' backend."
    assert op_in_error(text) == "aten::_thnn_fused_gru_cell"
    assert op_in_error("RuntimeError: Expected all tensors to be on the same device (aten::mul.Tensor)") == (
        "aten::mul.Tensor"
    )
    assert op_in_error("RuntimeError: std::bad_alloc in c10::Error") is None
    failed = FailedOp("aten::mul.Tensor", "forward", "net.0", (HERE, 5))
    seen = raised("RuntimeError: no", failed, False, (HERE, 7), "forward", POLICY)
    assert (seen.op, seen.site and seen.site.line) == ("aten::mul.Tensor", 5)
    bare = raised("RuntimeError: no", None, False, (HERE, 7), "forward", POLICY)
    assert (bare.op, bare.site and bare.site.line) == (None, 7)
    assert bare.message == "this line raised on the device, and plain CPU runs it: RuntimeError: no"


def test_lengths_of_the_device_are_told_to_stay_on_the_cpu() -> None:
    error = "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D neuron:0 Long tensor"
    told = raised(error, None, False, None, "forward", POLICY).remedy
    assert (told or "").startswith("The lengths have to be on the CPU: leave them there when the batch is moved")


def test_the_remedy_of_an_exception_fits_its_cause() -> None:
    def remedy(error: str) -> str | None:
        return raised(error, None, False, None, "forward", POLICY).remedy

    move = (
        "Move the tensor with the model: register it as a buffer (`register_buffer`), or its module in an nn.ModuleList"
        " or nn.ModuleDict, or make it on the input's device."
    )
    assert remedy("RuntimeError: Expected all tensors to be on the same device") == move
    assert remedy("RuntimeError: Non-scalar tensor arg1 is on cpu device, expected neuron") == move
    assert remedy("NotImplementedError: Could not run 'aten::x' with arguments from the 'CPU' backend") is None
    assert (remedy("RuntimeError: bad shape") or "").startswith("The device refuses what plain CPU takes")


def test_rows_say_where_each_functional_overload_ran() -> None:
    traced = {
        key("aten::add_.Tensor"): calls(2),
        key("aten::add.Tensor"): calls(3),
        key("aten::sort", "aten::sort.values_stable"): calls(),
        key("aten::native_group_norm", "aten::var_mean.correction"): calls(),
        key("aten::atan2", "aten::atan2.out"): calls(),
        key("aten::atan2"): calls(),
        key("aten::exp")._replace(on_device=False): calls(),
    }
    assert operator_rows(traced, "neuron", ["aten::_thnn_fused_lstm_cell"]) == (
        OperatorRow(op="aten::_thnn_fused_lstm_cell", eager="failed", compile="not_reached"),
        OperatorRow(op="aten::add.Tensor", eager="device", compile="not_reached", calls_per_step=5),
        OperatorRow(op="aten::atan2", eager="mixed", compile="not_reached", calls_per_step=2),
        OperatorRow(op="aten::exp", eager="host", compile="not_reached", calls_per_step=1),
        OperatorRow(op="aten::native_group_norm", eager="mixed", compile="not_reached", calls_per_step=1),
        OperatorRow(op="aten::sort", eager="cpu", compile="not_reached", calls_per_step=1),
    )
