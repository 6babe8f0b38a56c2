"""Copies that the backend makes on its own are counted by the op in which they happen."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from smoketest.findings import SitePolicy, merge
from smoketest.witness.context import Context
from smoketest.witness.copies import FUNCTIONS, Copies, extension
from smoketest.witness.dispatch import DispatchWitness
from smoketest.witness.hidden import copies as hidden_copies
from smoketest.witness.sites import ModuleStack, Origins, StackWalker

POLICY = SitePolicy(Path(__file__).parent)


def backend() -> Any:
    """Stands for the extension module, which is to be had on a Neuron machine only."""
    return SimpleNamespace(**dict.fromkeys(FUNCTIONS, lambda value: ("copied", value)))


class Bouncing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A backend whose cumsum works on the host."""

    def __init__(self, module: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.module = module

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() == "aten::cumsum":
            for name in FUNCTIONS:
                assert getattr(self.module, name)(1) == ("copied", 1)
        return func(*args, **(kwargs or {}))


def test_a_native_op_that_copies_is_a_measured_finding_at_its_line() -> None:
    module = backend()
    originals = vars(module).copy()
    modules = ModuleStack()
    counted = Copies(module)
    origins = Origins(StackWalker(POLICY), modules)
    witness = DispatchWitness(origins, Context("forward"), "cpu", frozenset, copied=counted.take)
    x = torch.ones(4)
    with modules, counted, Bouncing(module), witness:
        module._nrt_copy_cpu_to_neuron_tensor(1)  # between ops: the user's own
        y = x.exp()
        y.cumsum(0)  # here
    assert vars(module) == originals
    (found,) = merge(hidden_copies(witness.calls, POLICY))
    assert (found.rule, found.op, found.grounds) == ("NST102", "aten::cumsum", "measured")
    assert found.site is not None
    assert found.site.code == "y.cumsum(0)  # here"
    assert found.message == "aten::cumsum counts as native and copied between device and host 2 times"
    assert found.witnesses == ("copies", "dispatch")


def test_without_the_backend_there_is_nothing_to_count() -> None:
    assert extension() is None
