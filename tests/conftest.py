"""The emulated device exists before any test runs, where tests of it run in the process of pytest.

Autograd takes on no device after its first backward, and a test on plain CPU may be the first to run one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

IN_PROCESS = Path(__file__).parent / "devices"

# Where the tests themselves run in GitHub Actions, the runs they start are not to be told there.
for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
    os.environ.pop(name, None)


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(IN_PROCESS in item.path.parents for item in session.items):
        import smoketest

        smoketest.emulate(warn=False)
