"""What all workers of a run find alike in their environment."""

from __future__ import annotations

import sys
import time

import pytest

from smoketest.supervise.process import WorkerProcess

PRINTS = [sys.executable, "-c", "import os; print(os.environ['PYTHONHASHSEED'], hash('alpha'))"]


def printed() -> str:
    process = WorkerProcess(PRINTS, lambda writing: None)
    text = b""
    until = time.monotonic() + 60
    while not process.has_ended() and time.monotonic() < until:
        text += process.read_output()
        time.sleep(0.01)
    text += process.read_output()
    assert process.close() == 0
    return text.decode()


def test_sets_of_texts_have_one_order_in_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    first = printed()
    assert first.split()[0] == "0"
    assert printed() == first


@pytest.mark.parametrize(("given", "used"), [("7", "7"), ("random", "0")])
def test_the_order_is_the_users_where_they_chose_one(monkeypatch: pytest.MonkeyPatch, given: str, used: str) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", given)
    assert printed().split()[0] == used
