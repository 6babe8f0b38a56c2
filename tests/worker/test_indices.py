"""The index of a device, as a user of several ranks writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import smoketest
from smoketest.devices.base import open_device
from smoketest.worker.indices import lines_with_an_index, written_indices

SOURCE = """\
import torch
'''It runs on "neuron:0".'''
first = torch.device("neuron:0")
second = torch.device("neuron", 1)
mine = torch.device("neuron")
its = torch.device("neuron", rank)
x.to("neuron:3")
print(f"neuron:{rank}")
"""


def test_lines_that_name_a_device_by_a_number_are_found_and_others_are_not(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    assert lines_with_an_index(file) == [3, 4, 7]
    ((what, why),) = written_indices(open_device("emulated", None), [file])
    assert what == "process groups of the device: device_index"
    assert why == (
        "train.py:3, train.py:4, train.py:7 names one, which is right on one rank only, and passes here as a"
        ' torch.device; a process has one device, whose index is its local rank; write the bare "neuron"'
    )
    assert list(written_indices(open_device("cpu", None), [file])) == []


def test_what_is_no_python_names_none(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def (")
    assert lines_with_an_index(tmp_path / "bad.py") == lines_with_an_index(tmp_path / "no.py") == []


WRITTEN: list[Callable[[str], object]] = [
    lambda device: torch.ones(2).to(device),
    lambda device: torch.ones(2, device=device),
    lambda device: torch.ones(2).new_zeros(2, device=device),
    lambda device: nn.Linear(2, 2).to(device),
    lambda device: nn.Linear(2, 2).to(device=device),
]


@pytest.mark.parametrize("use", WRITTEN)
def test_text_that_names_the_device_of_another_rank_raises(
    use: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with smoketest.emulate(warn=False).refuse_written_indices():
        with pytest.raises(ValueError, match=r"^Invalid device id: 0$"):
            use("neuron:0")
        use("neuron")
        use("neuron:1")


def test_on_the_first_rank_index_0_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    with smoketest.emulate(warn=False).refuse_written_indices():
        torch.ones(2).to("neuron:0")
        with pytest.raises(ValueError, match=r"^Invalid device id: 1$"):
            torch.ones(2).to("neuron:1")
