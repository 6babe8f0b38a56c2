"""Temporary folders of a process that was killed are taken away by the next one, and nobody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from smoketest.supervise.scratch import ScratchFolder

HOLD = "from smoketest.supervise.scratch import ScratchFolder; f = ScratchFolder(); print(f.path, flush=True); input()"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def another(tmp_path: Path) -> tuple[subprocess.Popen[str], Path]:
    """Another process that holds a folder, and the folder, which looks as if it were old."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert holder.stdout is not None
    folder = Path(holder.stdout.readline().strip())
    os.utime(folder / ".made-by-smoketest", (0, 0))
    return holder, folder


def kill(holder: subprocess.Popen[str]) -> None:
    with holder:
        holder.send_signal(signal.SIGKILL)


def test_a_folder_is_gone_when_it_is_closed_even_twice(tmp_path: Path) -> None:
    folder = ScratchFolder()
    (folder.path / "inside").write_text("x")
    folder.close()
    folder.close()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_process_that_was_killed_goes_with_the_next_one_and_one_in_use_stays(tmp_path: Path) -> None:
    (dead, left), (alive, used) = another(tmp_path), another(tmp_path)
    try:
        kill(dead)
        assert left.exists(), "nobody could take it away"
        ScratchFolder().close()
        assert list(tmp_path.iterdir()) == [used]
    finally:
        kill(alive)


def test_what_was_made_just_now_or_by_somebody_else_stays(tmp_path: Path) -> None:
    young = ScratchFolder()
    mine = tmp_path / "smoketest-scratch-notes"
    mine.mkdir()
    (tmp_path / "smoketest-scratch-link").symlink_to(mine)
    ScratchFolder().close()
    assert young.path.exists()
    assert sorted(path.name for path in tmp_path.iterdir() if path != young.path) == [
        "smoketest-scratch-link", "smoketest-scratch-notes",
    ]  # fmt: skip
    young.close()
