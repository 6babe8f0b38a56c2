"""A stage for each test: a folder with a model that misbehaves when it is told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.harness import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "stage")
