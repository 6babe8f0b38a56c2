"""A step that takes minutes is compiling: the compiler's processes are seen from outside, and it is said."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from smoketest.supervise.compilers import CompileWatch, compilers_of

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc, and Neuron is Linux only")


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose grandchild is a neuronx-cc that waits; it ends with its input."""
    compiler = tmp_path / "neuronx-cc"
    compiler.write_text(f"#!{sys.executable}\nprint('up', flush=True)\ninput()\n")
    compiler.chmod(0o755)
    with subprocess.Popen(
        ["/bin/sh", "-c", f"( {compiler} ; true ) ; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.stdin.close()


def finish_compiling(worker: subprocess.Popen[bytes]) -> None:
    assert worker.stdin is not None
    worker.stdin.write(b"\n")
    worker.stdin.flush()
    until = time.monotonic() + 60
    while list(compilers_of(worker.pid)) and time.monotonic() < until:
        time.sleep(0.02)


def test_the_compiler_is_found_among_all_a_worker_started(worker: subprocess.Popen[bytes]) -> None:
    assert list(compilers_of(worker.pid)) == ["neuronx-cc"]
    finish_compiling(worker)
    assert list(compilers_of(worker.pid)) == []


def test_it_is_said_after_a_while_and_again_later(worker: subprocess.Popen[bytes]) -> None:
    watch = CompileWatch(worker.pid, 1000.0)
    said = {at: watch.look(at, 1000.0) for at in (1000.0, 1009.0, 1010.0, 1030.0, 1060.0, 1300.0, 1500.0, 1600.0)}
    assert {at: text for at, text in said.items() if text} == {
        1010.0: "compiling for 10 s (neuronx-cc is at work)",
        1060.0: "compiling for 60 s (neuronx-cc is at work)",
        1300.0: "compiling for 300 s (neuronx-cc is at work)",
        1600.0: "compiling for 600 s (neuronx-cc is at work)",
    }
    assert watch.at_work()
    assert watch.seen_since(1600.0)
    finish_compiling(worker)
    assert watch.look(1601.0, 1000.0) is None
    assert not watch.at_work()
    assert watch.seen_since(1600.0)
    assert not watch.seen_since(1600.5)


def test_a_process_that_is_gone_compiles_nothing() -> None:
    assert list(compilers_of(2**22 + 1)) == []


def test_a_phase_that_takes_long_without_a_compiler_is_told_too() -> None:
    watch = CompileWatch(2**22 + 1, 1000.0)
    said = {at: watch.look(at, began) for at, began in ((1059.0, 1000.0), (1060.0, 1000.0), (1100.0, 1000.0))}
    assert {at: text for at, text in said.items() if text} == {
        1060.0: "at it for 60 s; what is called first is compiled, though no compiler is seen"
    }
    assert watch.look(1150.0, 1095.0) is None, "another phase began"
    assert watch.look(1155.0, 1095.0) is not None
