"""The emulated device exists before any test runs, where tests of it run in the process of pytest.

Autograd takes on no device after its first backward, and a test on plain CPU may be the first to run one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

IN_PROCESS = Path(__file__).parent / "devices"


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(IN_PROCESS in item.path.parents for item in session.items):
        import smoketest

        smoketest.emulate(warn=False)
