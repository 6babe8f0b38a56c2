from __future__ import annotations

import subprocess
import sys

import pytest

from smoketest.findings.guards import about_guard

GUARDS = [
    ("___stack0 == 1332.4100341796875", "a Python number read from a tensor has another value", "Keep it a tensor"),
    ("1/0: ___stack0 == -5.919700622558594", "a Python number read from a tensor", "recompile_limit, 8"),
    ("GLOBAL_STATE changed: grad_mode ", "gradients are on in one call and off in another", "in the same mode always"),
    ("tensor 'x' requires_grad mismatch. expected requires_grad=0", "requires a gradient in one call", "detach it"),
    ("GLOBAL_STATE changed: autocast(cpu)_enabled ", "autocast differs", "under the same autocast"),
    ("GLOBAL_STATE changed: deterministic_algorithms ", "a global setting of PyTorch", "before the first call"),
    ("tensor 'x' size mismatch at index 0. expected 32, actual 20", "a tensor has another shape", "Pad or bucket"),
    ("tensor 'L['x']' size mismatch at index 0. expected 3, actual 5", "a tensor has another shape", "Pad or bucket"),
    ("tensor 'x' rank mismatch. expected 2, actual 1", "a tensor has another shape", "Pad or bucket"),
    ("tensor 'x' stride mismatch at index 0. expected 3, actual 1", "a tensor has another layout", ".contiguous()"),
    ("tensor 'x' dtype mismatch. expected Float, actual Double", "a tensor has another dtype", "same dtype"),
    ("len(xs) == 2", "another length", "same number of entries"),
    ("s.scale == 0.5", "an attribute has changed", "before the first call"),
    ("L['self'].scale == 0.5", "an attribute has changed", "before the first call"),
    ("s.extra is None", "an attribute has changed", "before the first call"),
    ("___check_obj_id(s.act, 140145099337504), type=<class 'builtin_function_or_method'>",
     "an attribute has changed", "before the first call"),
    ("not ___dict_contains('scale', self.__dict__)", "an attribute has changed", "before the first call"),
    ("self._modules['d'].training == True", "a module is in training mode in one call", "model.eval()"),
    ("k == 1", "a Python value has changed", "Pass a tensor"),
    ("s == 'a'", "a Python value has changed", "Pass a tensor"),
    ("something of a later release", "what it depends on has changed", "Make what the guard names the same"),
]  # fmt: skip


@pytest.mark.parametrize(("guard", "cause", "remedy"), GUARDS)
def test_the_remedy_is_that_of_the_guard(guard: str, cause: str, remedy: str) -> None:
    found = about_guard(guard)
    assert cause in found.cause
    assert remedy in found.remedy


def test_only_shapes_are_padded() -> None:
    padded = [guard for guard, _, _ in GUARDS if "Pad or bucket" in about_guard(guard).remedy]
    assert padded == [guard for guard, _, _ in GUARDS if "size mismatch" in guard or "rank mismatch" in guard]


REAL = """
import logging
import torch
from torch._dynamo import utils
from smoketest.findings.guards import about_guard

torch.set_num_threads(1)
logging.disable(logging.WARNING)
x = torch.ones(2, 3)

def read(x):
    n = x.sum().item()
    return x * n

def under_no_grad(compiled):
    with torch.no_grad():
        compiled(x)

class Scaled(torch.nn.Module):
    scale = 0.5
    def forward(self, x):
        return x * self.scale

scaled = Scaled()
dropout = torch.nn.Dropout()

def rescale(compiled):
    scaled.scale = 0.7
    compiled(x)

for function, again in (
    (read, lambda compiled: compiled(x + 1)),
    (lambda x: x + 1, under_no_grad),
    (lambda x: x + 1, lambda compiled: compiled(x.clone().requires_grad_())),
    (scaled, rescale),
    (dropout, lambda compiled: (dropout.eval(), compiled(x))),
    (lambda x, k: x + k, None),
):
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    compiled = torch.compile(function, backend="eager", dynamic=False)
    if again is None:
        compiled(x, 1), compiled(x, 2)
    else:
        compiled(x), again(compiled)
    reasons = [seen.recompile_reason for seen in utils.get_compilation_metrics()]
    print([about_guard(reason).cause for reason in reasons if reason])
"""


def test_guards_of_the_installed_torch_are_understood() -> None:
    done = subprocess.run([sys.executable, "-c", REAL], stdout=subprocess.PIPE, text=True, timeout=280, check=True)
    assert done.stdout.splitlines() == [
        "['a Python number read from a tensor has another value']",
        "['gradients are on in one call and off in another']",
        "['a tensor requires a gradient in one call and not in another']",
        "['an attribute has changed']",
        "['a module is in training mode in one call and in eval mode in another']",
        "['a Python value has changed']",
    ]
