"""The ``neuron`` process group of the emulated device: gloo carries its tensors, and the device's rules are kept."""

from __future__ import annotations

from typing import Any

import pytest

from smoketest.devices.emulated import EmulatedDevice
from smoketest.devices.emulated.distributed import compat, rules
from tests.devices import ranks

Seen = list[dict[str, Any]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What two ranks saw."""
    return ranks.run("collectives.py", 2, tmp_path_factory.mktemp("ranks"))


def on_both(seen: Seen, part: str, name: str) -> Any:
    assert seen[0][part][name] == seen[1][part][name]
    return seen[0][part][name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("all_reduce sum", [3.0, 3.0]),
        ("all_reduce max", [2.0, 2.0]),
        ("all_reduce avg", [1.5, 1.5]),
        ("all_reduce bf16, async", [3.0, 3.0]),
        ("all_reduce of a column", [3.0, 7.0]),
        ("all_gather_single", [1.0, 1.0, 2.0, 2.0]),
        ("all_gather", [[1.0, 1.0], [2.0, 2.0]]),
        ("broadcast", [2.0, 2.0]),
        ("all_gather_object", [{"rank": 0}, {"rank": 1}]),
        ("functional", [3.0, 3.0]),
        ("gradient of all_reduce", [2.0, 2.0]),
    ],
)
def test_a_collective_gives_every_rank_the_right_values(seen: Seen, name: str, value: Any) -> None:
    assert on_both(seen, "carried", name) == value


def test_a_collective_gives_each_rank_its_own_part(seen: Seen) -> None:
    assert [rank["carried"]["reduce_scatter_single"] for rank in seen] == [[0.0, 2.0], [4.0, 6.0]]
    assert seen[0]["carried"]["reduce to 0"] == [3.0, 3.0]


def test_collectives_count_as_run_on_the_device_and_are_no_fallbacks(seen: Seen) -> None:
    assert {"c10d::allreduce_", "c10d::_allgather_base_", "c10d::_reduce_scatter_base_", "c10d::broadcast_"} <= set(
        seen[0]["executed"]
    )
    assert seen[0]["fell back"] == []


def test_a_collective_that_begins_while_another_ends_does_not_wait_for_ever(seen: Seen) -> None:
    assert [rank["many"] for rank in seen] == [100, 100]


def test_the_backend_is_that_of_the_device_without_being_named(seen: Seen) -> None:
    assert (seen[0]["backend"], seen[0]["default backend"]) == ("neuron", "neuron")


def test_a_sharded_tensor_is_distributed_gathered_saved_and_loaded(seen: Seen) -> None:
    assert [rank["sharded"]["local"] for rank in seen] == [[0.0, 1.0], [2.0, 3.0]]
    assert on_both(seen, "sharded", "redistributed") == [0.0, 2.0, 4.0, 6.0]
    assert on_both(seen, "sharded", "loaded") == [0.0, 1.0, 2.0, 3.0]
    assert on_both(seen, "sharded", "device") == "neuron:0"


NO_SEND = "neuron: the process group does not support {}: there is no send or recv between ranks"
SIZES = "unsupported world size 2, supported sizes: 4, 8, 16, or multiples of 32"
INTEGERS = "[NCC_EVRF{}] {} adds in float32, and the compiler refuses 32-bit and 64-bit integers ({})"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("send", NO_SEND.format("send")),
        ("recv", NO_SEND.format("recv")),
        ("barrier", "neuron: barrier is supported on the default process group only"),
        ("all_to_all", SIZES),
        ("all_to_all_single", SIZES),
        ("float64", "neuron: allreduce of float64 is not supported by the process group"),
        ("int64", INTEGERS.format("061", "all-reduce", "int64")),
        ("int32", INTEGERS.format("063", "reduce-scatter", "int32")),
        ("gloo group", "No backend type associated with device type neuron"),
        ("freed", "neuron: a collective was given a tensor of shape [2] whose storage is freed"),
    ],
)
def test_what_the_device_refuses_raises(seen: Seen, name: str, error: str) -> None:
    assert on_both(seen, "broken", name) == ["RuntimeError", error]


def test_a_complex_tensor_that_pytorch_hands_on_as_it_is_raises() -> None:
    with pytest.raises(RuntimeError, match="neuron: alltoall_base of complex64 is not supported by the process group"):
        rules.check("alltoall_base_", ["complex64"], size=4, is_default=True)


def test_the_compiler_option_that_allows_integer_sums_lifts_the_rule(seen: Seen) -> None:
    assert on_both(seen, "broken", "int64, downcast allowed") == ["nothing", ""]


def test_a_process_may_name_its_own_device_and_no_other(seen: Seen) -> None:
    assert on_both(seen, "broken", "own index") == ["nothing", ""]
    assert on_both(seen, "broken", "no such index") == ["ValueError", "Invalid device id: 7"]


def test_the_index_of_another_rank_is_no_device_of_this_process(seen: Seen) -> None:
    assert [rank["broken"]["set_device"] for rank in seen] == [
        ["ValueError", "Invalid device id: 1"],
        ["ValueError", "Invalid device id: 0"],
    ]


def test_a_process_group_after_the_first_op_raises_what_the_device_says_even_when_tracking_was_cleared(
    seen: Seen,
) -> None:
    told = ["AssertionError", "Neuron runtime should not be initialized before the init_process_group."]
    assert [rank["late"] for rank in seen] == [told, told]


def test_looking_for_unused_parameters_says_that_it_is_the_emulation_which_cannot(seen: Seen) -> None:
    told = [
        "DeviceUnavailable",
        "the emulated device cannot run DistributedDataParallel with find_unused_parameters=True or static_graph=True: "
        "PyTorch pins memory for them in C++, which a device in Python has no part in\n"
        "  hint: leave them off here; on the device their sum of 32-bit integers over ranks is one that the "
        "compiler is documented to refuse (NCC_EVRF061)",
    ]
    assert [rank["unused"] for rank in seen] == [told, told]


def test_a_cpu_tensor_on_a_group_of_the_device_is_carried_and_told_of_once(seen: Seen) -> None:
    assert on_both(seen, "cpu", "sum") == [4.0, 4.0]
    assert on_both(seen, "cpu", "told") == [
        "allreduce was given a CPU tensor on the neuron backend: here gloo carries it, on the device nothing would"
    ]
    assert (on_both(seen, "cpu", "before"), on_both(seen, "cpu", "after")) == ([], ["cpu_tensor"])


def test_every_rule_says_where_it_is_from_and_what_it_does() -> None:
    assert [rule.what for rule in rules.rules()] == [
        "process_group_first", "device_index", "point_to_point", "barrier", "all_to_all", "dtype",
        "integer_all_reduce", "integer_reduce_scatter", "cpu_tensor",
    ]  # fmt: skip
    assert all(rule.source and rule.effect for rule in rules.rules())


@pytest.mark.parametrize(
    ("size", "fine"), [(2, False), (3, False), (4, True), (8, True), (16, True), (24, False), (64, True)]
)
def test_all_to_all_takes_the_sizes_of_its_message(size: int, fine: bool) -> None:
    assert rules.named("all_to_all").takes(size) is fine


def test_every_rule_of_an_op_names_ops_that_pytorch_has(device: EmulatedDevice) -> None:
    known = {op.name().removeprefix("c10d::") for op in compat.collectives()}
    assert {op for rule in rules.rules() for op in rule.ops} - {"*"} <= known


@pytest.mark.parametrize("name", compat.DRIFT)
def test_pytorch_still_has_the_private_name_of_process_groups(name: str) -> None:
    """A failure here means a release of PyTorch took it away: mend `distributed/compat.py`, nothing else uses it."""
    import torch.distributed.tensor

    found: object = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
