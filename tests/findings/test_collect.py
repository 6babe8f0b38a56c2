from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoketest.findings import Finding, ModuleCalls, Observation, Site, merge
from smoketest.findings.collect import MAX_SHAPES
from smoketest.findings.rules import RULES

SITES = [
    None,
    *(Site(file=file, line=line, code=f"line {line % 2}") for file in ("a.py", "b.py") for line in (1, 2, 3)),
]
OBSERVATIONS = st.builds(
    Observation,
    rule=st.sampled_from(["NST101", "NST104", "NST201", "NST204"]),
    op=st.sampled_from([None, "aten::sort", "aten::sort.values_stable", "aten::index_fill_.int_Scalar"]),
    called_as=st.sampled_from([None, "aten::sort", "aten::msort"]),
    kind=st.sampled_from([None, "unimplemented", "rejected"]),
    grounds=st.sampled_from([None, "measured", "cannot_lower", "no_kernel_known"]),
    phase=st.sampled_from([None, "forward", "backward", "setup"]),
    site=st.sampled_from(SITES),
    module=st.sampled_from([None, "", "h.0.attn", "h.1.attn", "head"]),
    shapes=st.lists(st.sampled_from(["f32[1]", "f32[2]", "i64[3]"]), max_size=3).map(tuple),
    calls=st.none() | st.integers(0, 5),
    exact=st.none() | st.booleans(),
    bytes=st.none() | st.integers(0, 100),
    witnesses=st.frozensets(st.sampled_from(["dispatch", "tracker", "warning"])),
    stage=st.sampled_from([None, "captured", "imported"]),
    message=st.sampled_from(["", "one", "two"]),
    remedy=st.sampled_from([None, "do this"]),
)


@settings(deadline=None)
@given(st.lists(OBSERVATIONS, max_size=12), st.randoms(use_true_random=False))
def test_findings_do_not_depend_on_the_order_of_observations(seen: list[Observation], chance: random.Random) -> None:
    shuffled = list(seen)
    chance.shuffle(shuffled)
    assert merge(shuffled) == merge(seen)


@settings(deadline=None)
@given(st.lists(OBSERVATIONS, max_size=12))
def test_one_finding_for_each_rule_op_phase_and_site_and_nothing_lost(seen: list[Observation]) -> None:
    findings = merge(seen)
    keys = {(o.rule, o.op, o.phase, (o.site.file, o.site.line) if o.site else None) for o in seen}
    assert len(findings) == len(keys)
    assert len({finding.id for finding in findings}) == len(findings)
    assert sum(finding.calls_per_step or 0 for finding in findings) == sum(o.calls or 0 for o in seen)
    assert sum(finding.bytes_per_step or 0 for finding in findings) == sum(o.bytes or 0 for o in seen)


def one(*observations: Observation) -> Finding:
    (finding,) = merge(observations)
    return finding


def test_a_layer_used_48_times_is_one_finding() -> None:
    site = Site(file="model.py", line=7, code="return self.norm(x)")
    finding = one(
        *(
            Observation(
                "NST101",
                op="aten::native_batch_norm",
                called_as="aten::native_batch_norm",
                phase="forward",
                site=site,
                module=f"encoder.layer.{i}.norm",
                shapes=("f32[4, 8]",),
                calls=1,
                exact=True,
                bytes=256,
                witnesses=frozenset({"dispatch", "tracker"}),
            )
            for i in range(48)
        )
    )
    assert finding.modules == (ModuleCalls(pattern="encoder.layer.*.norm", calls=48),)
    assert (finding.calls_per_step, finding.bytes_per_step, finding.exact) == (48, 48 * 256, True)
    assert finding.shapes == ("f32[4, 8]",)
    assert finding.witnesses == ("dispatch", "tracker")
    assert finding.class_ == "fallback"


@pytest.mark.parametrize(
    ("parts", "calls", "exact"),
    [
        ([(2, True), (3, True)], 5, True),
        ([(2, True), (3, False)], 5, False),
        ([(2, True), (None, None)], 2, False),
        ([(None, None), (None, None)], None, None),
        ([(None, False)], None, False),
    ],
)
def test_a_count_is_exact_only_if_all_of_it_is(
    parts: list[tuple[int | None, bool | None]], calls: int | None, exact: bool | None
) -> None:
    finding = one(*(Observation("NST101", op="aten::sort", calls=c, exact=e) for c, e in parts))
    assert (finding.calls_per_step, finding.exact) == (calls, exact)


def test_the_firmest_grounds_win() -> None:
    grounds = ["no_kernel_known", "measured", "cannot_lower", None]
    assert one(*(Observation("NST101", grounds=g) for g in grounds)).grounds == "measured"  # type: ignore[arg-type]


def test_only_so_many_shapes_are_kept() -> None:
    finding = one(Observation("NST101", shapes=tuple(f"f32[{i}]" for i in range(100, 130))))
    assert len(finding.shapes) == MAX_SHAPES


def test_an_op_only_the_tracker_saw_is_a_finding_without_site() -> None:
    finding = one(Observation("NST101", op="aten::sort.values_stable", exact=False, witnesses=frozenset({"tracker"})))
    assert finding.site is None
    assert finding.calls_per_step is None


def test_an_op_without_a_remedy_that_met_complex_numbers_gets_theirs() -> None:
    product = Observation(rule="NST201", op="aten::mul.Tensor", phase="forward", shapes=("c64[2, 8], c64[1, 8]",))
    (found,) = merge([product])
    assert found.remedy is not None
    assert found.remedy.startswith("Keep real and imaginary parts as two real tensors")
    (real,) = merge([replace(product, shapes=("f32[2, 8], f32[1, 8]",))])
    assert real.remedy == RULES["NST201"].remedy


def test_a_dynamic_shape_is_told_with_the_ops_own_remedy() -> None:
    (unique,) = merge([Observation(rule="NST206", op="aten::_unique2", phase="forward")])
    assert unique.remedy is not None
    assert unique.remedy.startswith(
        "No rewrite that is known to stay on the device. Find the distinct values in the data loader"
    )
    (other,) = merge([Observation(rule="NST206", op="aten::view", phase="forward")])
    assert other.remedy is not None
    assert other.remedy.startswith("Give the tensor a fixed size")
