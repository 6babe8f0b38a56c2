"""Training on several ranks of the emulated device gives the losses of one process on the whole batch."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.devices import ranks

LONG = pytest.mark.skipif(
    os.environ.get("SMOKETEST_LONG") != "1", reason="15 seconds; `make ranks`, or SMOKETEST_LONG=1"
)
SPREAD = ["ddp", "fsdp2", "fsdp2, layers", "fsdp2, offload"]
Seen = list[dict[str, Any]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    llama = ("llama",) if os.environ.get("SMOKETEST_LONG") == "1" else ()
    return ranks.run("parallel_training.py", 2, tmp_path_factory.mktemp("two"), "tp", *llama)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return ranks.run("parallel_training.py", 4, tmp_path_factory.mktemp("four"))


def assert_as_one(seen: Seen, name: str, one: str = "one", rel: float = 1e-5) -> None:
    reference = seen[0][one]
    assert reference[-1] < reference[0] - 0.05, "a training that changes little proves little"
    for rank in seen:
        assert rank[name] == pytest.approx(reference, rel=rel)


@pytest.mark.parametrize("name", [*SPREAD, "tp", "tp, tied"])
def test_two_ranks_train_as_one_process(two: Seen, name: str) -> None:
    assert_as_one(two, name)


@LONG
def test_two_ranks_split_a_transformers_model_by_its_own_plan(two: Seen) -> None:
    assert_as_one(two, "llama", one="one llama")


def test_two_ranks_in_bfloat16_train_as_one_process_in_bfloat16(two: Seen) -> None:
    assert_as_one(two, "fsdp2, bf16", one="one, bf16", rel=1e-2)


@LONG
@pytest.mark.parametrize("name", SPREAD)
def test_four_ranks_train_as_one_process(four: Seen, name: str) -> None:
    assert_as_one(four, name)


@LONG
def test_four_ranks_in_bfloat16_train_as_one_process_in_bfloat16(four: Seen) -> None:
    assert_as_one(four, "fsdp2, bf16", one="one, bf16", rel=1e-2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "no plan",
            "Net has no tensor-parallel plan of its own, and the check gives none\n"
            '  hint: name its layers under parallel.plan: {"layers.*.up": colwise, "layers.*.down": rowwise}',
        ),
        (
            "no such layer",
            "parallel.plan: no module of Net is called 'layers.*.up'\n"
            "  hint: it has embed, blocks, blocks.*, blocks.*.norm, blocks.*.up, blocks.*.down, head",
        ),
        (
            "no such layer to shard",
            "parallel.layers: no module of Net is called 'layers.*'\n"
            "  hint: it has embed, blocks, blocks.*, blocks.*.norm, blocks.*.up, blocks.*.down, head",
        ),
        (
            "not linear",
            "blocks.0.norm is a LayerNorm: PyTorch splits Linear and Embedding modules only\n"
            "  hint: leave it out of parallel.plan",
        ),
        (
            "untied",
            "embed.weight and head.weight are one parameter, and the plan splits them differently\n"
            "  hint: split both the same way: an embedding rowwise and its output layer colwise",
        ),
    ],
)
def test_a_plan_that_cannot_be_followed_says_what_is_missing(two: Seen, name: str, text: str) -> None:
    assert two[0]["refused"][name] == two[1]["refused"][name] == text


def test_no_collective_falls_back(two: Seen) -> None:
    assert [rank["fell back"] for rank in two] == [[], []]
