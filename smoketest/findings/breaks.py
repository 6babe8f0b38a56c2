"""What to write instead of a line that torch.compile cannot record (rule NST204), by what Dynamo says of it."""

from __future__ import annotations

import re

__all__ = ["about_break"]

_REMEDIES = (
    (
        re.compile(r"Tensor\.item\b|_local_scalar_dense|Tensor\.tolist\b"),
        "Keep the number a tensor: no `.item()`, `.tolist()`, `int(t)` or `float(t)` in forward. Index and choose with"
        " the tensor itself (`index_select`, `torch.where`), count steps in a Python number, and read what is logged"
        " after the step.",
    ),
    (
        re.compile(r"[Dd]ata-dependent branching|[Dd]ata-dependent jump|generic_jump"),
        "Compute both sides and choose with `torch.where(condition, a, b)` instead of `if`.",
    ),
    (
        re.compile(r"logging\.Logger"),
        "Take the logging call out of forward. Where it is a library's, it is a warning about how the library is"
        " called: the log says what to change, and then it is not made.",
    ),
    (
        re.compile(r"builtin.{0,40}\bprint\b|\bprint\(\)"),
        "Take `print` out of forward: return the value and print it after the step.",
    ),
    (
        re.compile(r"torch\.autograd\.grad\b"),
        "Call `torch.autograd.grad` in the loss or the step, outside the module that is compiled, on results of the"
        " uncompiled module.",
    ),
    (
        re.compile(r"sparse_\w+_tensor|to_sparse|torch\.sparse\b|\bsparse tensor"),
        "Leave the sparse tensor out of forward: the device has no sparse kernels. Keep the edges as an index and add"
        " the messages up with `index_add`, as `smoketest explain _sparse_mm` shows, or multiply by a dense matrix made"
        " once and kept as a buffer.",
    ),
    (
        re.compile(r"[Bb]ackwards? hooks?\b|register_\w*hook"),
        "Take the backward hook off the compiled module: change the gradient in the step after backward (clip or scale"
        " `parameter.grad`), or in a torch.autograd.Function.",
    ),
    (
        re.compile(r"functorch"),
        "Compile the function around the transform, as in `torch.compile(torch.func.vmap(torch.func.grad(loss)))`, and"
        " leave the module that it calls uncompiled: what is called within torch.func.grad cannot be compiled alone.",
    ),
    (
        re.compile(r"torch\.jit\.(?:script|freeze|trace)|ScriptModule|ScriptFunction"),
        "Take the plain module or function instead of the scripted one: what TorchScript runs is in no graph.",
    ),
    (
        re.compile(r"requires_grad_\(\)"),
        "Set requires_grad on the tensor outside the compiled module, and pass it in.",
    ),
)
"""Patterns in Dynamo's explanations (PyTorch 2.13), the first that fits first."""


def about_break(message: str) -> str | None:
    """What to do about a graph break or a skipped frame; None where the rule's own sentence is all there is.

    Args:
        message: Dynamo's explanation, as in the finding.
    """
    return next((remedy for pattern, remedy in _REMEDIES if pattern.search(message)), None)
