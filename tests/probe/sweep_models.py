"""One model per OpInfo sample, probed: ``python -m tests.probe.sweep_models``. Minutes; not a part of ``make test``.

A model around an op of the table of ops that cannot be lowered must get a denied NST201 with that op's name, a stage
and the line of the call; one all of whose ops lower must get no NST201 or NST202 at all. The exit code is 1 where one
does not, where fewer than 60 ops of the table are met, or fewer than 200 models lower.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from smoketest.findings import SitePolicy
from smoketest.operators.evidence import base_name, cannot_lower
from smoketest.operators.profile import OperatorProfile, load_profile
from smoketest.probe.cache import CachedLowering, cache_file
from smoketest.probe.probe import ProbeResult, probe
from smoketest.probe.sweep import samples

FAILING, LOWERING = 60, 200


class Holds(nn.Module):
    """Calls one op on a flattened sample; its own parameter takes part where gradients can flow.

    The call is made here: Dynamo is kept out of the package, so it would not trace the one in `smoketest.probe.sweep`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.op, self.flat, self.shape, self.places = function.args  # type: ignore[attr-defined]

    def forward(self, *inputs: torch.Tensor) -> Any:
        given = list(self.flat)
        for place, x in zip(self.places, inputs, strict=True):
            given[place] = x * self.weight if x.is_floating_point() else x
        args, kwargs = pytree.tree_unflatten(given, self.shape)
        return self.op(*args, **kwargs)


CALL = Holds.forward.__code__.co_firstlineno + 5


def probed(
    function: Callable[..., Any], inputs: list[torch.Tensor], process: CachedLowering, profile: OperatorProfile
) -> ProbeResult | None:
    """None where the sample cannot be run or differentiated, or Dynamo leaves it out of its graphs."""
    model = Holds(function)
    given = [x.detach() for x in inputs]

    def step(call: Callable[..., Any], _index: int) -> None:
        found = [x for x in pytree.tree_leaves(call(*given)) if isinstance(x, torch.Tensor) and x.requires_grad]
        if found:
            torch.stack([x.abs().sum() for x in found]).sum().backward()

    try:
        if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(model(*given))):
            return None  # a graph that gives no tensor is a finding of its own
        step(model, 0)
    except Exception:  # an op without backward, a sample that needs what is not there
        return None
    policy = SitePolicy(Path(__file__).parents[2])
    result = probe(model, step, profile=profile, site_policy=policy, process=process, op_timeout=30.0)
    captured = result.graphs and not (result.graph_breaks or result.skipped_frames)
    return result if captured else None


def main() -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    failing: set[str] = set()
    wrong: list[str] = []
    lowering = left_out = 0
    profile = load_profile(None)
    with CachedLowering(cache_file()) as process:
        for function, inputs in samples():
            result = probed(function, inputs, process, profile)
            if result is None:
                left_out += 1
                continue
            refused = [f for f in result.findings if f.rule in ("NST201", "NST202")]
            denied = {base_name(f.op or ""): f for f in refused if f.grounds in ("cannot_lower", "reported")}
            called = {base_name(op) for op, outcome in result.operators.items() if outcome == "fails"}
            for op in called & cannot_lower().keys():
                found = denied.get(op)
                if found is None or found.stage is None or found.site is None or found.site.line != CALL:
                    wrong.append(f"{op}: {found and (found.stage, found.site)}")
                failing.add(op)
            if all(nodes.lowered == nodes.total for nodes in result.nodes.values()):
                lowering += 1
                wrong += [f"{f.op}: {f.message}" for f in refused]
    lines = [
        f"{len(failing)} ops that cannot be lowered are denied by name at their line (at least {FAILING})",
        f"{lowering} models lower without a finding (at least {LOWERING}); {left_out} samples left out",
        *(["wrong:", *wrong] if wrong else ["nothing wrong"]),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if not wrong and len(failing) >= FAILING and lowering >= LOWERING else 1


if __name__ == "__main__":
    sys.exit(main())
