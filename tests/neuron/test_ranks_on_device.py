"""Several ranks on torch-neuronx, each with a core: the process group is joined before the first use of the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from running import Place, fallbacks


@pytest.mark.doubles
def test_ranks_are_measured_each_on_its_core_and_told_as_one(place: Callable[[str], Place]) -> None:
    there = place("silent")
    alone = there.report("neuron")
    ranks = there.report("neuron", more="parallel: {kind: ddp, nproc: 2}", name="ranks")
    assert ranks.eager.status == "ran", ranks.eager.reason
    assert (ranks.ranks, ranks.device.kind) == (2, "neuron")
    assert {f.id for f in fallbacks(ranks)} == {f.id for f in fallbacks(alone)}
    assert all(finding.ranks is None for finding in ranks.findings)
    assert "c10d::allreduce_" in {row.op for row in ranks.operators}
