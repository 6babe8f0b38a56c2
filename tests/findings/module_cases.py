"""Runs the modules of `smoketest.findings.modules` beside those they replace, and prints what was seen.

``python module_cases.py FOLDER`` emulates the device and compiles, so it is a process of its own; FOLDER gets the
source that the probe reads.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import smoketest
from smoketest.findings import SitePolicy
from smoketest.findings.modules import MODULES
from smoketest.operators.profile import load_profile
from smoketest.probe.probe import probe


@dataclass(frozen=True)
class Case:
    """`original` makes a module with the op, `new` one with the replacement, which is `name` in its source."""

    name: str
    original: Callable[[], nn.Module]
    new: Callable[[Any], nn.Module]
    make: Callable[[], torch.Tensor]


class Sampler(nn.Module):
    """Samples images at points that are learnt, some of them outside."""

    def __init__(self, sample: Callable[..., torch.Tensor], **settings: Any) -> None:
        super().__init__()
        self.grid, self.sample, self.settings = nn.Parameter(torch.zeros(4, 3, 2, 2)), sample, settings

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sample(x, self.grid.to(x.dtype), **self.settings)


def batch_norm(kind: type[nn.Module], *shape: int) -> Case:
    def make() -> torch.Tensor:
        return torch.randn(4, 3, *shape) * 3 + torch.arange(3.0).view(3, *[1 for _ in shape])

    return Case("BatchNorm", lambda: kind(3), lambda made: made(3), make)


def sampler(**settings: Any) -> Case:
    original = partial(Sampler, torch.nn.functional.grid_sample, **settings)
    return Case("grid_sample", original, lambda made: Sampler(made, **settings), lambda: torch.randn(4, 3, 5, 6))


CASES = {
    "native_batch_norm 1d, of rows": batch_norm(nn.BatchNorm1d),
    "native_batch_norm 1d": batch_norm(nn.BatchNorm1d, 6),
    "native_batch_norm 2d": batch_norm(nn.BatchNorm2d, 5, 6),
    "native_batch_norm 3d": batch_norm(nn.BatchNorm3d, 2, 5, 6),
    "grid_sampler_2d zeros": sampler(padding_mode="zeros", align_corners=False),
    "grid_sampler_2d border": sampler(padding_mode="border", align_corners=True),
}


class Recurrent(nn.Module):
    """A recurrent module with all that it gives in one tensor, with a state given to it or not."""

    def __init__(self, made: Callable[..., nn.Module], size: int, given: int, **settings: Any) -> None:
        super().__init__()
        self.rnn, self.given = made(3, size, **settings), given
        ways = settings.get("num_layers", 1) * (2 if settings.get("bidirectional") else 1)
        self.h = nn.Parameter(torch.zeros(ways, 4, size))
        self.c = nn.Parameter(torch.zeros(ways, 4, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self.h.dtype)
        state = (None, (self.h, self.c), self.h)[self.given]
        y, last = self.rnn(x, state) if self.given else self.rnn(x)
        left = 0 * (self.h + self.c).sum()  # so that both have a gradient, asked for or not
        return torch.cat([part.flatten() for part in (y, *(last if isinstance(last, tuple) else (last,)))]) + left


def recurrent(kind: type[nn.Module], given: int = 0, **settings: Any) -> Case:
    """`given`: no state, 1: the two of an LSTM, 2: that of a GRU."""
    return Case(
        kind.__name__,
        partial(Recurrent, kind, 5, given, **settings),
        lambda made: Recurrent(made, 5, given, **settings),
        (lambda: torch.randn(4, 3, 3)) if settings.get("batch_first") else (lambda: torch.randn(3, 4, 3)),
    )


EVERYTHING = {"num_layers": 2, "bidirectional": True, "batch_first": True}
CASES |= {
    "_thnn_fused_lstm_cell all": recurrent(nn.LSTM, 1, **EVERYTHING),
    "_thnn_fused_lstm_cell dropout": recurrent(nn.LSTM, num_layers=2, dropout=0.5, bias=False),
    "_thnn_fused_gru_cell all": recurrent(nn.GRU, 2, **EVERYTHING),
}


def filled(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def like(original: nn.Module, make: Callable[[], nn.Module]) -> nn.Module:
    """A new module with the weights and statistics that the original was made with."""
    module = make()
    module.load_state_dict({name: value.clone() for name, value in original.state_dict().items()})
    return module


def trained(module: nn.Module, make: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    """Results, gradients and state of two training calls and one in eval mode."""
    torch.manual_seed(1)
    seen = []
    for training in (True, True, False):
        x = make().requires_grad_()
        y = module.train(training)(x)
        y.backward(torch.randn(y.shape))
        seen += [y, x.grad]
    return seen + [p.grad for p in module.parameters()] + list(module.state_dict().values())


def fallbacks(device: Any, module: nn.Module, make: Callable[[], torch.Tensor]) -> list[str]:
    """Ops that fell back in training and in eval mode, or the op that has a kernel nowhere."""
    module = module.to("neuron")
    device.clear_op_tracking()
    for dtype in (torch.float32, torch.bfloat16):
        for training in (True, False):
            x = make().to(dtype).to("neuron").requires_grad_()
            try:
                module.train(training)(x).float().sum().backward()
            except NotImplementedError as error:
                return [str(error).split("'")[1]]
    return sorted(device.get_fallback_ops())


def findings(module: nn.Module, make: Callable[[], torch.Tensor], folder: Path) -> list[str]:
    x = make()

    def step(compiled: Any, index: int) -> None:
        compiled(x).sum().backward()

    result = probe(module, step, profile=load_profile(None), site_policy=SitePolicy(folder))
    assert result.ops_probed
    return [f"{seen.rule} {seen.op} {seen.phase}: {seen.message}" for seen in result.observations]


def main(folder: Path) -> None:
    """Print {case: {"difference": number, "original": [op], "fallbacks": [op], "findings": {mode: [text]}}}."""
    torch.set_num_threads(1)
    device = smoketest.emulate(warn=False)
    sys.path.insert(0, str(folder))
    seen = {}
    for label, case in CASES.items():
        op = label.partition(" ")[0]
        (folder / f"written_{op}.py").write_text(f"import torch\n\n\n{MODULES[op]}", encoding="utf-8")
        made = getattr(importlib.import_module(f"written_{op}"), case.name)
        torch.manual_seed(0)
        original = filled(case.original())

        new, old = partial(case.new, made), case.original
        ours, theirs = (trained(like(original, make), case.make) for make in (new, old))
        seen[label] = {
            "difference": max(float((a - b).detach().abs().max()) for a, b in zip(ours, theirs, strict=True)),
            "original": fallbacks(device, like(original, old), case.make),
            "fallbacks": fallbacks(device, like(original, new), case.make),
            "training": findings(like(original, new).train(), case.make, folder),
            "eval": findings(like(original, new).eval(), case.make, folder),
        }
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
