"""Data loaders: batches by number, whatever is drawn in between, and shapes without the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from smoketest.config.models import Check
from smoketest.errors import UserCodeError
from smoketest.workload.build import loader_of
from smoketest.workload.loader import LoaderBatches, sampled_shapes


def shuffled() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(10), torch.arange(10) * 2), batch_size=4, shuffle=True)


def numbers(batch: Any) -> list[int]:
    return batch[0].tolist()  # type: ignore[no-any-return]


def check_with(folder: Path, source: str, **batch: Any) -> Check:
    file = folder / "data.py"
    file.write_text(f"import torch\n{source}")
    model = {"target": "torch.nn:Identity"}
    return Check.model_validate({"name": "c", "model": model, "batch": {"loader": f"{file}:loader", **batch}})


def test_epochs_follow_each_other_and_are_shuffled_anew() -> None:
    batches = LoaderBatches(shuffled, "loader", seed=0)
    seen = [numbers(batches(step)) for step in range(6)]
    assert [len(batch) for batch in seen] == [4, 4, 2, 4, 4, 2]
    for epoch in (seen[:3], seen[3:]):
        assert sorted(number for batch in epoch for number in batch) == list(range(10))
    assert seen[:3] != seen[3:]


def test_what_the_model_draws_changes_no_batch_and_no_batch_changes_what_the_model_draws() -> None:
    torch.manual_seed(3)
    quiet = LoaderBatches(shuffled, "loader", seed=0)
    expected = [numbers(quiet(step)) for step in range(5)]
    drawn = torch.rand(2)
    torch.manual_seed(3)
    noisy = LoaderBatches(shuffled, "loader", seed=0)
    seen = [numbers(noisy(0))]
    assert torch.equal(torch.rand(2), drawn)
    for step in range(1, 5):
        torch.rand(7)
        seen.append(numbers(noisy(step)))
    assert seen == expected


def test_a_batch_that_was_passed_is_the_same_again() -> None:
    batches = LoaderBatches(shuffled, "loader", seed=0)
    first = [numbers(batches(step)) for step in range(4)]
    assert [numbers(batches(step)) for step in (1, 3, 0)] == [first[1], first[3], first[0]]


def test_a_generator_begins_again() -> None:
    batches = LoaderBatches(lambda: (torch.tensor([n]) for n in range(3)), "loader", seed=0)
    assert [int(batches(step)) for step in (0, 1, 2, 3, 1)] == [0, 1, 2, 0, 1]


def test_workers_give_what_no_workers_give() -> None:
    def with_workers() -> DataLoader[Any]:
        return DataLoader(TensorDataset(torch.arange(6)), batch_size=2, num_workers=1, multiprocessing_context="fork")

    batches = LoaderBatches(with_workers, "loader", seed=0)
    assert [numbers(batches(step)) for step in range(3)] == [[0, 1], [2, 3], [4, 5]]


def test_an_object_of_the_file_and_what_a_function_returns_are_loaders(tmp_path: Path) -> None:
    for number, source in enumerate(("loader = [torch.ones(2)]", "def loader():\n    yield torch.ones(2)\n")):
        (folder := tmp_path / str(number)).mkdir()
        loader = loader_of(check_with(folder, source))
        assert loader is not None
        assert torch.equal(loader(0), torch.ones(2))


def test_names_make_a_dict_of_a_list(tmp_path: Path) -> None:
    loader = loader_of(check_with(tmp_path, "loader = [[torch.ones(2), torch.zeros(1)]]", names=["x", "y"]))
    assert loader is not None
    assert {name: tuple(value.shape) for name, value in loader(0).items()} == {"x": (2,), "y": (1,)}


@pytest.mark.parametrize(
    ("source", "names", "message"),
    [
        ("loader = []", None, "loader gave no batch: its iteration ends at once"),
        ("loader = ['text']", None, "loader gave no tensor: a batch is a str"),
        ("loader = 3", None, "loader is no iterable of batches: it is of type int"),
        ("loader = [[torch.ones(1)]]", ["x", "y"], "batch.names has 2 names, and loader gives a list of 1"),
        ("def loader():\n    yield torch.ones(1)\n    raise OSError('no such shard')\n", None,
         "taking batch 1 of loader raised OSError: no such shard"),
    ],
)  # fmt: skip
def test_a_loader_that_cannot_be_used_is_told_why(
    tmp_path: Path, source: str, names: list[str] | None, message: str
) -> None:
    loader = loader_of(check_with(tmp_path, source, names=names))
    assert loader is not None
    with pytest.raises(UserCodeError) as caught:
        list(map(loader, range(2)))
    assert message in caught.value.message


def test_shapes_are_those_of_one_epoch_and_the_steps_begin_anew() -> None:
    def texts() -> Iterator[dict[str, torch.Tensor]]:
        for length in (5, 9, 5):
            yield {"ids": torch.zeros(2, length, dtype=torch.int64)}

    batches = LoaderBatches(lambda: list(texts()), "loader", seed=0)
    shapes = sampled_shapes(batches.epoch(10))
    assert shapes == [(("ids", "int64", (2, 5)),), (("ids", "int64", (2, 9)),), (("ids", "int64", (2, 5)),)]
    assert tuple(batches(1)["ids"].shape) == (2, 9)
    assert len(sampled_shapes(batches.epoch(2))) == 2
