"""Whether a job fits, out of its sizes."""

from __future__ import annotations

from smoketest.findings.fit import DEVICE_BYTES, Sizes, Steps, estimate

GIB = 2**30


def sizes(parameter_bytes: int = 4 * GIB, optimizer_bytes: int | None = 8 * GIB, why: str | None = None) -> Sizes:
    return Sizes(parameter_bytes // 4, parameter_bytes, 0, parameter_bytes, optimizer_bytes, "AdamW", why)


def test_a_logical_core_of_a_trn2_has_24_gib() -> None:
    assert DEVICE_BYTES == 25_769_803_776


def test_all_that_is_known_is_summed_and_held_against_the_device() -> None:
    part = estimate(sizes(), Steps(7 * GIB), built=True, host_bytes=16 * GIB, host_limit=64 * GIB)
    assert part.total_bytes == 23 * GIB
    assert part.fits is True
    assert (part.basis, part.host_bytes, part.host_limit) == ("built", 16 * GIB, 64 * GIB)
    assert estimate(sizes(), Steps(9 * GIB), built=True, host_bytes=0, host_limit=None).fits is False


def test_nothing_fits_for_certain_before_the_activations_and_the_optimizer_are_known() -> None:
    assert estimate(sizes(), None, built=False, host_bytes=0, host_limit=None).fits is None
    unknown = sizes(optimizer_bytes=None, why="it keeps it elsewhere")
    part = estimate(unknown, Steps(0), built=True, host_bytes=0, host_limit=None)
    assert part.fits is None
    assert part.optimizer_bytes is None
    assert "the state of the AdamW is not known: it keeps it elsewhere" in part.assumptions


def test_what_is_too_large_already_does_not_fit_whatever_is_not_known() -> None:
    part = estimate(sizes(16 * GIB, None), None, built=False, host_bytes=0, host_limit=None)
    assert (part.total_bytes, part.fits, part.activation_bytes) == (32 * GIB, False, None)


def test_kernels_take_the_seconds_that_people_reported_for_one() -> None:
    part = estimate(sizes(), Steps(0, 3, 50, 2, ("aten::mm on f32[2, 2]",)), built=True, host_bytes=0, host_limit=None)
    assert (part.kernels, part.compile_seconds, part.new_kernels) == (50, (100.0, 3000.0), 2)
    assert part.moving == ("aten::mm on f32[2, 2]",)
    assert any(text.startswith("3 tensors kept for backward have no storage") for text in part.assumptions)
    none = estimate(sizes(), Steps(0), built=True, host_bytes=0, host_limit=None)
    assert (none.kernels, none.compile_seconds, none.new_kernels) == (None, None, None)


def test_the_assumptions_are_written_out() -> None:
    assert estimate(sizes(), Steps(0), built=True, host_bytes=0, host_limit=None).assumptions == (
        "one logical core of a Trn2 (LNC=2) has 24 GiB, as its users report; one replica, nothing sharded over cores",
        "gradients have the dtype of their parameters, and every parameter that requires one gets one",
        "left out: what an op needs while it runs, fragmentation, the compiled kernels and the runtime",
        "activations are those of the batch of this check; under torch.compile fewer may be kept",
        "a kernel is compiled for each op with its shapes and dtypes, views and plain copies apart; those that the"
        " release has compiled ahead or in its cache cost nothing, and constants may add more",
    )
