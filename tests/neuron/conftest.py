"""The places of this folder's tests: doubles of torch-neuronx, and the genuine one where there is one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # small.py and running.py, for whoever runs these tests alone

from running import Place, place_of_double

from smoketest.devices.installed import find_problem

LONG = "SMOKETEST_LONG"
GENUINE = "genuine"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(LONG):
        return
    for item in items:
        if item.get_closest_marker("doubles"):
            item.add_marker(pytest.mark.skip(reason=f"one of the many doubles: `make doubles`, or set {LONG}=1"))


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Place]:
    """The place of a double by name, or of the ``genuine`` package; made once."""
    places: dict[str, Place] = {}

    def of(name: str) -> Place:
        if name not in places:
            folder = tmp_path_factory.mktemp(name)
            places[name] = genuine(folder) if name == GENUINE else place_of_double(name, folder)
        return places[name]

    return of


def genuine(folder: Path) -> Place:
    problem = find_problem()
    if problem is not None:
        pytest.skip(f"needs a Trn2 or Trn3 machine with the genuine torch-neuronx: {problem.message}")
    return Place(folder, dict(os.environ))
