"""What torch.compile(backend="neuron") refuses on the emulated device: classes, prefixes and texts of the real one.

The expected texts are those of the facts the emulation stands on ([PRE] test specifications of a source tree of April
2026, [USER] reports from closed betas), written out.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import BackendCompilerFailed
from torch.nn import functional

from smoketest.devices.emulated import EmulatedDevice
from smoketest.devices.emulated.dynamo import lower
from smoketest.probe.cache import CachedLowering
from smoketest.probe.lower import Crashed
from smoketest.probe.lowering_worker import Answer

PREFIX = "Neuron backend NEFF execution setup failed with unexpected error: "
BACKEND_LOGGER = "torch_neuronx.neuron_dynamo_backend.backend"


@pytest.fixture(autouse=True)
def fresh_dynamo(device: EmulatedDevice) -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(function, backend="neuron", dynamic=False, **options)
    return made


def failure(function: Callable[..., Any], *args: Any, **options: Any) -> BackendCompilerFailed:
    with pytest.raises(BackendCompilerFailed) as raised:
        compiled(function, **options)(*args)
    return raised.value


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if text in line)


def ones(*shape: int, grad: bool = False) -> Tensor:
    return torch.ones(*shape, device="neuron", requires_grad=grad)


def unknown_op(x: Tensor) -> Tensor:
    y = x * 2
    return torch.lgamma(y).cummax(0)[0]


def test_an_op_that_the_torch_dialect_does_not_know_fails_in_the_backends_own_stage() -> None:
    """[USER-B3] class and first line, [PRE] prefix and stage; the note with the name is MLIR's own."""
    error = failure(unknown_op, ones(3))
    place = f'loc("{__file__}":{line_of(unknown_op, "lgamma")}:0)'
    text = (
        f"{PREFIX}Failed Torch-MLIR Neuron partial lowering from TorchFX IR -> StableHLO IR:\n"
        f"{place}: error: failed to legalize operation 'torch.operator' that was explicitly marked illegal\n"
        f'{place}: note: see current operation: "torch.operator" <{{name = "torch.aten.lgamma"}}>'
    )
    assert isinstance(error, RuntimeError)
    assert str(error).startswith(f"backend='neuron' raised:\nRuntimeError: {text}")
    assert type(error.inner_exception) is RuntimeError
    cause = error.inner_exception.__cause__
    assert type(cause).__name__ == "TorchMlirCompilerError"
    assert str(cause).startswith("Failed Torch-MLIR Neuron partial lowering")


def test_only_the_first_op_is_named_as_the_compiler_stops_there() -> None:
    assert "cummax" not in str(failure(unknown_op, ones(3)))


def padded(x: Tensor) -> Tensor:
    return functional.pad(x, (1, 1, 1, 1), mode="replicate").sum()


def test_a_backward_graph_that_fails_raises_a_plain_runtime_error_from_backward() -> None:
    """[PRE]: compiled when it is first needed, so that Dynamo does not wrap the error."""
    loss = compiled(padded)(ones(1, 1, 4, 4, grad=True))
    with pytest.raises(RuntimeError, match=re.escape(PREFIX)) as raised:
        loss.backward()
    assert type(raised.value) is RuntimeError
    assert "torch.aten.replication_pad2d_backward" in str(raised.value)
    assert 'torch/nn/functional.py":' in str(raised.value), "the innermost frame of the forward line, as the importer"


def test_an_op_that_only_the_public_compiler_refuses_runs_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The profile lists a kernel of the backend's own for erfinv, so a release may lower it."""
    with caplog.at_level(logging.WARNING, logger=lower.__name__):
        assert compiled(torch.erfinv)(torch.zeros(2).to("neuron")).tolist() == [0.0, 0.0]
        compiled(lambda t: torch.erfinv(t) + 1)(torch.zeros(2).to("neuron"))
    told = [record.getMessage() for record in caplog.records if "aten::erfinv" in record.getMessage()]
    assert len(told) == 1, "once per process"
    assert "possibly does not lower" in told[0]


def test_a_graph_that_takes_the_public_compiler_down_runs_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It lowers in a process of its own; that this one dies says nothing of the device."""
    monkeypatch.setattr(CachedLowering, "lower", lambda self, graph, timeout: Crashed("SIGSEGV"))
    with caplog.at_level(logging.WARNING, logger=lower.__name__):
        assert compiled(torch.neg)(ones(17)).tolist() == [-1.0] * 17
    assert any("aten::neg: torch-mlir crashed on it: SIGSEGV" in record.getMessage() for record in caplog.records)


def test_a_higher_order_op_is_refused_by_the_importer() -> None:
    def branches(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))

    text = "Higher-order operation 'cond' not implemented in the FxImporter (tried '_import_hop_cond')"
    assert f"RuntimeError: {PREFIX}{text}" in str(failure(branches, ones(3)))


def test_checkpointing_with_random_numbers_is_refused_by_the_importer() -> None:
    """[PRE] dynamo_spec.json: run_and_save_rng_state."""

    def checkpointed(x: Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint(lambda t: functional.dropout(t.sin(), 0.5), x, use_reentrant=False)

    assert "Higher-order operation 'run_and_save_rng_state' not implemented" in str(
        failure(checkpointed, ones(3, grad=True))
    )


def test_a_boolean_mask_with_several_values_is_refused_and_one_with_one_value_is_not() -> None:
    def write(x: Tensor, mask: Tensor, value: Any) -> Tensor:
        y = x * 2
        y[mask] = value
        return y

    mask = torch.tensor([True, False, True]).to("neuron")
    assert (
        "RuntimeError: Boolean index_put is not supported in torch.compile on Neuron. "
        "Boolean indices require nonzero() which produces dynamic shapes."
    ) in str(failure(write, ones(3), mask, ones(2)))
    assert compiled(write)(ones(3), mask, 7.0).tolist() == [7.0, 2.0, 7.0]


def test_dynamic_shapes_are_refused_before_anything_is_captured() -> None:
    """[PUB] dynamic=True is rejected; [PRE] the two texts."""
    with pytest.raises(BackendCompilerFailed) as raised:
        torch.compile(lambda t: t.sin(), backend="neuron", dynamic=True)(ones(3, 4))
    assert str(raised.value).startswith(
        "backend='neuron' raised:\nException: An error occurred when running the 'DynamicShapeAnalysis' pass after the "
        "following passes: ['AliasingAnalysis']"
    )
    cause = raised.value.inner_exception.__cause__
    assert type(cause) is RuntimeError
    assert re.match(
        r"Dynamic shapes detected in the model, but torch-neuronx requires static shapes\. "
        r"Found 2 dynamic dimension\(s\): \[s\d+, s\d+\]\nSource location: .*test_compile_errors\.py:\d+\n1\. .*\n2\. ",
        str(cause),
    )


def test_without_dynamic_false_a_second_shape_is_refused() -> None:
    """[USER-B4]: Dynamo takes the size that changed for dynamic."""
    call = torch.compile(lambda t: t * 2, backend="neuron")
    call(ones(3))
    with pytest.raises(BackendCompilerFailed, match="DynamicShapeAnalysis"):
        call(ones(4))


def test_a_mixed_matmul_is_refused_as_users_met_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """[USER] Boltz-2. PyTorch itself refuses such a product before it gets here, so the compiler's answer is given."""

    def refused(self: Any, graph: Any) -> Answer:
        return Answer("torch-backend", "matmul: input datatypes mismatched; failed to legalize 'torch.aten.mm'", "mm")

    monkeypatch.setattr("smoketest.probe.verdict.Judge.whole", refused)
    text = str(failure(lambda a, b: a @ b, ones(2, 2), ones(2, 2)))
    assert "Failed Torch-MLIR Lowering Torch Backend IR -> StableHLO IR:\nloc(" in text
    assert "error: matmul: input datatypes mismatched" in text


@pytest.mark.parametrize(
    ("variable", "options"),
    [("0", None), (None, {"fallback_execution": True}), ("1", {"fallback_execution": True})],
    ids=["variable", "option", "option wins"],
)
def test_with_fallback_execution_a_graph_that_fails_runs_op_by_op_and_is_tracked(
    variable: str | None,
    options: dict[str, Any] | None,
    device: EmulatedDevice,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """[PUB] env-vars page: the variable and the option; [PRE] the two lines of the log."""
    if variable is not None:
        monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", variable)
    device.clear_op_tracking()
    with caplog.at_level(logging.WARNING, logger=BACKEND_LOGGER):
        assert compiled(torch.lgamma, options=options)(ones(2)).tolist() == [0.0, 0.0]
    assert device.get_fallback_ops() == ["aten::lgamma.out"]
    (failed, falling) = [record for record in caplog.records if record.name == BACKEND_LOGGER]
    assert failed.levelno == logging.ERROR
    assert failed.getMessage().startswith(f"Execution failed: {PREFIX}Failed Torch-MLIR")
    assert (falling.levelno, falling.getMessage()) == (
        logging.WARNING,
        "Falling back to original GraphModule execution",
    )


@pytest.mark.parametrize(("variable", "options"), [("1", None), ("0", {"fallback_execution": False}), (None, None)])
def test_without_fallback_execution_it_raises(
    variable: str | None, options: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", variable)
    assert PREFIX in str(failure(torch.lgamma, ones(2), options=options))


def test_a_backward_graph_that_fails_runs_op_by_op_with_fallback_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0")
    x = ones(1, 1, 2, 2, grad=True)
    compiled(padded)(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[[[4.0, 4.0], [4.0, 4.0]]]]


def test_an_input_on_the_cpu_is_refused_where_copying_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """[PRE] executor.py."""
    monkeypatch.setenv("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", "1")
    with pytest.raises(RuntimeError) as raised:
        compiled(lambda a, b: (a * 2, b * 2))(ones(2), torch.ones(2))
    assert str(raised.value) == (
        "Input tensor at index 1 is on cpu device, expected neuron. "
        "Move tensor to Neuron device first with tensor.to('neuron')"
    )


def test_without_torch_mlir_the_backend_refuses_and_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "missing_reason", lambda: 'torch-mlir is not installed: pip install "x[lowering]"')
    error = failure(lambda t: t + 1, ones(2))
    assert type(error.inner_exception).__name__ == "DeviceUnavailable"
    assert "lowers graphs with torch-mlir, and torch-mlir is not installed" in str(error)
    assert error.inner_exception.hint == (  # type: ignore[attr-defined]
        "pip install \"x[lowering]\", or compile with backend='aot_eager' to run without lowering"
    )


def test_a_graph_break_gives_two_programs_and_the_second_may_be_the_one_that_fails() -> None:
    def broken(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return torch.lgamma(y)

    before = len(torch.neuron.get_dynamo_metrics())  # type: ignore[attr-defined]
    assert f":{line_of(broken, 'lgamma')}:0)" in str(failure(broken, ones(3)))
    assert len(torch.neuron.get_dynamo_metrics()) == before + 1, "the first one was compiled"  # type: ignore[attr-defined]


def test_fullgraph_makes_a_graph_break_an_error_of_dynamos() -> None:
    def broken(x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return x.sin()

    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(broken, fullgraph=True)(ones(3))
