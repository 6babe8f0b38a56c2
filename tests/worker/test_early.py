"""A worker that imports before its turn: it waits, it is what it would have been, and it leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from smoketest.supervise.process import WorkerProcess, waiting_command

WORKER = """
import os, sys
print("worker", sys.argv[1:], os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD"), repr(os.read(0, 1)), __name__)
"""


LIBRARY = "import os\nprint('imported', os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'])\n"


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "a_worker.py").write_text(WORKER)
    (tmp_path / "a_library.py").write_text(
        "import os\nprint('imported', os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'])\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    return "a_worker"


def printed(process: WorkerProcess, until: bytes) -> bytes:
    text, deadline = b"", time.monotonic() + 60
    while until not in text and time.monotonic() < deadline:
        text += process.read_output()
        time.sleep(0.01)
    return text


def test_it_imports_at_once_and_is_the_worker_when_it_is_let_go(worker: str) -> None:
    imports = ["a_library", "no_such_library:Model", "a_library:no_such_name"]
    process = WorkerProcess(waiting_command(worker, Path("request"), imports), lambda events: None, waits=True)
    assert printed(process, b"imported 0\n") == b"imported 0\n"
    time.sleep(0.2)
    assert (process.has_ended(), process.read_output()) == (False, b"")
    process.go()
    said = b"worker ['request'] None b'' __main__\n"
    assert printed(process, said) == said
    assert process.close() is not None


def test_one_that_was_stopped_while_others_worked_goes_on(worker: str) -> None:
    process = WorkerProcess(waiting_command(worker, Path("request"), []), lambda events: None, waits=True)
    process.pause()
    process.go()
    assert b"worker ['request']" in printed(process, b"__main__\n")
    process.close()


def test_one_that_is_not_needed_is_gone_though_it_was_stopped(worker: str) -> None:
    process = WorkerProcess(waiting_command(worker, Path("request"), []), lambda events: None, waits=True)
    process.pause()
    assert process.close() == -9


def test_one_whose_supervisor_is_gone_ends_without_a_word(worker: str) -> None:
    command = waiting_command(worker, Path("request"), [])
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_only_libraries_that_merely_define_things_are_imported_early() -> None:
    from smoketest.config import Check
    from smoketest.supervise.early import early_imports

    model = {"target": "transformers:BertModel", "config": {"class": "transformers:BertConfig"}}
    library = Check.model_validate({"name": "a", "model": model})
    own = Check.model_validate({"name": "a", "model": {"target": "my_project.model:Net"}})
    assert early_imports(library, "compile") == [
        "smoketest.worker.compile",
        "transformers:BertModel",
        "transformers:BertConfig",
    ]
    assert early_imports(own, "reference") == ["smoketest.worker.reference"]
    assert sys.modules.get("my_project") is None
