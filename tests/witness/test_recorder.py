"""What crosses the borders of modules is recorded, whatever modules there are."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from smoketest.witness.recorder import Recorder
from smoketest.workload.moving import tensors_in


def test_a_module_of_torchscript_is_left_out_and_those_around_it_are_recorded() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    model = nn.Sequential(nn.Linear(4, 4), scripted, nn.Linear(4, 2))
    with Recorder(model, tensors_in) as recorder:
        model(torch.ones(1, 4)).sum().backward()
    seen = {(crossing.module, crossing.role, crossing.is_gradient) for crossing in recorder.events}
    assert {("", "takes", False), ("0", "gives", False), ("2", "takes", False), ("2", "gives", False)} <= seen
    assert ("2", "takes", True) in seen
