"""What one of several ranks raised is an error of the check's, unless an op of the device raised it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import smoketest
from smoketest.errors import UserCodeError
from smoketest.witness.dispatch import FailedOp
from smoketest.witness.failures import names_device, raised_by_device
from smoketest.worker.blame import blame_ranks, unused_parameters
from smoketest.workload.advice import hint_for

UNUSED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that"
    " your module has parameters that were not used in producing loss.\nParameter indices which did not receive grad"
    " for rank 1: 0 2\n In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG"
)
NAMES = ["body.weight", "body.bias", "spare.weight"]
END = (
    "; one process on plain CPU runs the same step: what differs is the ranks (or `parallel:`), unless the line looks"
    " at the device"
)


def caught(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


def raise_it(error: Exception) -> None:
    raise error


def blamed(error: Exception, failed: FailedOp | None = None) -> UserCodeError:
    with pytest.raises(UserCodeError) as told:
        blame_ranks(error, failed, NAMES)
    return told.value


def test_a_line_that_raises_is_named_and_one_process_is_said_to_run_it() -> None:
    error = blamed(caught(lambda: raise_it(ValueError("bad input on this rank"))))
    assert error.message == "the training step raised ValueError: bad input on this rank" + END
    assert error.exit_code == 4
    assert str(error.place).startswith("tests/worker/test_blame_of_ranks.py:")


def test_what_the_interpreter_raises_is_no_refusal_of_the_device() -> None:
    assert blamed(caught(lambda: dict[str, int]()["expert"])).message.startswith(
        "the training step raised KeyError: 'expert'"
    )


def test_the_attribute_of_a_model_behind_ddp_s_wrapper_has_a_hint() -> None:
    class DistributedDataParallel(nn.Module):
        """By its name alone: the words are those of nn.Module."""

    error = blamed(caught(lambda: DistributedDataParallel().generator))
    assert error.hint == (
        "under `parallel: ddp` the step gets PyTorch's wrapper: the model is model.module, and only a call of"
        " model(...) averages gradients"
    )


def test_parameters_that_ddp_finds_unused_are_named() -> None:
    error = blamed(RuntimeError(UNUSED))
    assert error.hint == (
        "some parameters take no part in the loss, which DDP cannot do with: remove them, or use `parallel: fsdp2`;"
        " here: body.weight, spare.weight"
    )
    assert unused_parameters("no such words", NAMES) is None


@pytest.mark.parametrize(("text", "hint"), [
    ("RuntimeError: aten.mul.Tensor: got mixed torch.Tensor and DTensor, need to", "call the module itself"),
    ("ValueError: Invalid device id: 0", 'write the bare "neuron"'),
    ("ValueError: trying to initialize the default process group twice!", "`if not dist.is_initialized()`"),
])  # fmt: skip
def test_words_of_torch_distributed_have_a_hint(text: str, hint: str) -> None:
    assert hint in (hint_for(text) or "")


def test_a_tensor_among_dtensors_is_of_the_ranks_though_an_op_raised() -> None:
    error = RuntimeError("aten.mul.Tensor: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor")
    assert "call the module itself" in (blamed(error, FailedOp("aten::mul.Tensor", None, None, None)).hint or "")


class BadBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        raise ValueError("bad data on this rank")


def test_a_line_that_raises_in_backward_is_named_too() -> None:
    smoketest.emulate(warn=False)
    loss = BadBackward.apply(torch.ones(2, device="neuron", requires_grad=True)).sum()  # type: ignore[no-untyped-call]
    error = blamed(caught(loss.backward))
    assert error.message == "the training step raised ValueError: bad data on this rank" + END


def test_what_the_device_itself_refuses_is_told_from_what_c_plus_plus_raises_in_its_kernel() -> None:
    smoketest.emulate(warn=False)
    two, three = torch.ones(2, device="neuron"), torch.ones(3, device="neuron")
    assert raised_by_device(caught(lambda: two + torch.ones(2)))
    assert not raised_by_device(caught(lambda: two @ three))
    assert not raised_by_device(caught(lambda: raise_it(ValueError("mine"))))


def test_shapes_that_do_not_fit_under_a_plan_are_the_plan_s_and_refusals_stay_the_device_s() -> None:
    smoketest.emulate(warn=False)
    two, three = torch.ones(2, device="neuron"), torch.ones(3, device="neuron")
    with pytest.raises(UserCodeError, match="the tensor-parallel plan does not fit the model") as told:
        blame_ranks(caught(lambda: two @ three), FailedOp("aten::dot", None, None, None), NAMES, by_plan=True)
    assert "a rowwise layer has to take them up" in (told.value.hint or "")
    blame_ranks(caught(lambda: two + torch.ones(2)), FailedOp("aten::add", None, None, None), NAMES, by_plan=True)
    blame_ranks(NotImplementedError("Could not run 'aten::lgamma' with arguments"), None, NAMES, by_plan=True)


def test_what_pytorch_says_of_a_tensor_on_the_device_is_told_from_what_code_says_of_it() -> None:
    smoketest.emulate(warn=False)
    rows, lengths = torch.ones(2, 3, 1, device="neuron"), torch.tensor([3, 1], device="neuron")
    assert names_device(caught(lambda: nn.utils.rnn.pack_padded_sequence(rows, lengths, batch_first=True)), "neuron")
    assert not names_device(caught(lambda: rows[0] @ rows[0]), "neuron")
    assert not names_device(caught(lambda: raise_it(RuntimeError("a tensor on neuron:0"))), "neuron")


def test_an_op_without_a_kernel_stays_a_finding_about_the_device() -> None:
    blame_ranks(caught(lambda: torch.ones(2) @ torch.ones(3)), None, NAMES)
    blame_ranks(NotImplementedError("Could not run 'aten::lgamma' with arguments"), None, NAMES)
    blame_ranks(IndexError("of an op"), FailedOp("aten::index.Tensor", None, None, None), NAMES)
