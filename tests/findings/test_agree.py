from __future__ import annotations

from smoketest.findings import Observation, merge
from smoketest.findings.agree import agreed
from smoketest.operators.profile import load_profile
from smoketest.witness.reconcile import Evidence, observations

OPS = ("aten::randperm.generator_out", "aten::_sample_dirichlet", "aten::_weight_norm_interface_backward")


def eager() -> list[Observation]:
    """What the eager part says of ops of which the shipped table has no lowering to tell."""
    evidence = Evidence(tracked={(op, "forward") for op in OPS})
    return observations(evidence, load_profile(None), None)  # type: ignore[arg-type]


def refused(grounds: str) -> list[Observation]:
    ops = ("aten::randperm", "aten::_sample_dirichlet", "aten::_weight_norm_interface_backward")
    return [Observation("NST201", op=op, phase="forward", grounds=grounds) for op in ops]  # type: ignore[arg-type]


def test_a_fallback_of_an_op_that_the_probe_showed_not_to_lower_stands_on_the_probes_grounds() -> None:
    before = merge(eager() + refused("cannot_lower"))
    after = agreed(before)
    assert [found.id for found in after] == [found.id for found in before]
    assert {found.grounds for found in after} == {"cannot_lower"}
    assert [found.message for found in after if found.op == "aten::_sample_dirichlet" and found.rule == "NST101"] == [
        "predicted fallback: the operator profile torch-neuronx-prerelease-2026-04 has no kernel for"
        " aten::_sample_dirichlet, and the op does not lower through torch-mlir either"
    ]


def test_without_a_probe_or_where_it_says_possible_the_fallback_stays_possible() -> None:
    for probed in ([], refused("no_kernel_known")):
        after = [found for found in agreed(merge(eager() + probed)) if found.rule == "NST101"]
        assert {found.grounds for found in after} == {"no_kernel_known"}
        assert all(found.message.startswith("possible fallback: ") for found in after)
