"""The emulated device exists before any test runs, where tests of it run in the process of pytest.

Autograd takes on no device after its first backward, and a test on plain CPU may be the first to run one.

What tests draw is the same each time: they begin with the same random numbers, and hypothesis gives the same examples
and has no limit of time. ``SMOKETEST_LONG=1`` has it look for others.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from pathlib import Path

import pytest

IN_PROCESS = Path(__file__).parent / "devices"

# Where the tests themselves run in GitHub Actions, the runs they start are not to be told there.
for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
    os.environ.pop(name, None)


if importlib.util.find_spec("hypothesis"):  # a machine with the device may have no more than tests/neuron needs
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "steady",
        derandomize=os.environ.get("SMOKETEST_LONG") != "1",
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("steady")


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(IN_PROCESS in item.path.parents for item in session.items):
        import smoketest

        smoketest.emulate(warn=False)


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Whatever ran before in this process."""
    random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
