from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from smoketest.findings import SitePolicy
from smoketest.probe.capture import Capture, CaptureError, GraphBreak, SkippedFrame
from smoketest.probe.observe import around_the_graphs, said


def test_a_sentence_about_a_constant_says_that_it_is_an_argument_of_the_op() -> None:
    assert said("failed to legalize operation 'torch.constant.bool'") == (
        "failed to legalize operation 'torch.constant.bool', an argument of the op: the compiler names the first "
        "operation left over"
    )


def test_a_sentence_about_the_op_stays_as_it_is() -> None:
    assert (
        said("failed to legalize operation 'torch.aten.erfinv'") == "failed to legalize operation 'torch.aten.erfinv'"
    )


def test_a_step_in_which_nothing_was_compiled_is_told_to_call_the_model(tmp_path: Path) -> None:
    (found,) = around_the_graphs(Capture(), False, SitePolicy(tmp_path))
    assert found.message == "torch.compile found nothing to compile in the step"
    assert found.remedy is not None
    assert found.remedy.startswith("Call the model itself in the step, as `model(...)`")


MIXED = SkippedFrame("forward", "Tensor device mismatch. Expected all tensors to be on the same device", "GB5173", ())


def test_a_tensor_left_on_the_cpu_is_told_to_move_with_the_model(tmp_path: Path) -> None:
    (found,) = around_the_graphs(Capture(skipped=(MIXED,)), False, SitePolicy(tmp_path))
    assert found.rule == "NST204"
    assert found.remedy == (
        "Move the tensor that is on the CPU with the model: register it as a buffer (`register_buffer`), or make it on "
        "the input's device (`device=x.device`)."
    )


MASKED = GraphBreak(
    "Dynamic shape operator. Operator `aten.nonzero.default`'s output shape depends on input Tensor data.", "GB0036",
    ((__file__, 1),),
)  # fmt: skip
AFTER_IT = SkippedFrame(
    "torch_dynamo_resume_in_forward_at_1",
    "Backend compiler exception. Backend compiler `backend` failed with aten.nonzero.default. Adding a graph break.",
    "GB0219",
    ((__file__, 1),),
)


def test_a_size_that_depends_on_values_is_denied_although_the_rest_of_the_function_is_skipped(tmp_path: Path) -> None:
    plain = replace(AFTER_IT, reason="Data-dependent branching. Detected it", id="GB0170")
    seen = Capture(breaks=(MASKED,), skipped=(plain,))
    found = list(around_the_graphs(seen, False, SitePolicy(tmp_path)))
    assert [(one.rule, one.op) for one in found] == [("NST204", None), ("NST206", "aten::nonzero")]


def test_what_the_backend_fails_with_is_told_once_as_the_size_that_it_is_about(tmp_path: Path) -> None:
    again = GraphBreak(AFTER_IT.reason, "GB0219", (), rest_skipped=True)
    seen = Capture(breaks=(MASKED, again), skipped=(AFTER_IT,))
    (found,) = around_the_graphs(seen, False, SitePolicy(tmp_path))
    assert (found.rule, found.op) == ("NST206", "aten::nonzero")
    assert found.message.startswith("Dynamo skipped the rest of forward() after line 1: it runs as plain Python, in ")


def test_what_the_op_raises_without_torch_compile_too_is_no_graph_break(tmp_path: Path) -> None:
    raised = CaptureError(
        "TorchRuntimeError", "Tensor device mismatch", "GB5173", (), eager="RuntimeError: two devices"
    )
    other = SkippedFrame("encode", "Unsupported context manager", "GB0142", ())
    seen = Capture(skipped=(MIXED, other), error=raised)
    (found,) = around_the_graphs(seen, False, SitePolicy(tmp_path))
    assert found.message.startswith("Dynamo skipped encode(): ")
