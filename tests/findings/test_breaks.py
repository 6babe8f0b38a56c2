"""What reports say to do about a line that torch.compile cannot record: by Dynamo's own explanations."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from torch._dynamo.exc import Unsupported

from smoketest.findings.breaks import about_break

Line = Callable[[torch.Tensor], torch.Tensor]
LOG = logging.getLogger("mine")


def reads(x: torch.Tensor) -> torch.Tensor:
    return x * x.sum().item()


def lists(x: torch.Tensor) -> torch.Tensor:
    return x * x.tolist()[0]


def branches(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def logs(x: torch.Tensor) -> torch.Tensor:
    LOG.warning("odd")
    return x + 1


def prints(x: torch.Tensor) -> torch.Tensor:
    print("seen")  # noqa: T201
    return x + 1


def differentiates(x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad((x * x).sum(), x)[0]


def jumps_on(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if torch.isnan(y).any():
        y = y * 0
    return y + 1


def explanation(line: Line) -> str:
    """What Dynamo says of a function: with fullgraph, or without where that lets it pass."""
    torch._dynamo.reset()
    x = torch.randn(3, requires_grad=True)
    try:
        torch.compile(line, backend="eager", fullgraph=True)(x)
    except Unsupported as error:
        return str(error)
    return str(torch._dynamo.explain(line)(x).break_reasons[0].reason)


@pytest.mark.parametrize(
    ("line", "start"),
    [
        (reads, "Keep the number a tensor: no `.item()`"),
        (lists, "Keep the number a tensor: no `.item()`"),
        (branches, "Compute both sides and choose with `torch.where(condition, a, b)`"),
        (logs, "Take the logging call out of forward."),
        (prints, "Take `print` out of forward"),
        (jumps_on, "Compute both sides and choose with `torch.where(condition, a, b)`"),
        (differentiates, "Call `torch.autograd.grad` in the loss or the step"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_dynamo_says_of_a_line_has_a_remedy_of_its_own(line: Line, start: str) -> None:
    said = explanation(line)
    remedy = about_break(said)
    assert remedy is not None, said
    assert remedy.startswith(start)


def test_a_sparse_constructor_has_a_remedy_of_its_own() -> None:
    said = "Dynamo does not know how to trace the builtin `torch._VariableFunctionsClass.sparse_coo_tensor.`"
    assert (about_break(said) or "").startswith("Leave the sparse tensor out of forward")


def test_a_scripted_module_has_a_remedy_of_its_own() -> None:
    said = "torch.jit.script/freeze modules unsupported. Dynamo does not support tracing into torch.jit.script"
    assert (about_break(said) or "").startswith("Take the plain module or function instead of the scripted one")


def test_what_is_called_within_torch_func_grad_has_a_remedy_of_its_own() -> None:
    said = "Unsupported functorch tracing attempt. If you are reaching here, it means dynamo failed"
    assert (about_break(said) or "").startswith("Compile the function around the transform")


def test_a_backward_hook_has_a_remedy_of_its_own() -> None:
    said = "Module-level backwards hooks require compiled autograd."
    assert (about_break(said) or "").startswith("Take the backward hook off the compiled module")


def test_of_anything_else_the_rule_speaks() -> None:
    assert about_break("graph break: builtin: some C function that is not traced [GB0059]") is None
