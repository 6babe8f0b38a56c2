from __future__ import annotations

from pathlib import Path

from smoketest.findings import SitePolicy
from smoketest.probe.capture import Capture, CaptureError, SkippedFrame
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


def test_what_the_op_raises_without_torch_compile_too_is_no_graph_break(tmp_path: Path) -> None:
    raised = CaptureError(
        "TorchRuntimeError", "Tensor device mismatch", "GB5173", (), eager="RuntimeError: two devices"
    )
    other = SkippedFrame("encode", "Unsupported context manager", "GB0142", ())
    seen = Capture(skipped=(MIXED, other), error=raised)
    (found,) = around_the_graphs(seen, False, SitePolicy(tmp_path))
    assert found.message.startswith("Dynamo skipped encode(): ")
