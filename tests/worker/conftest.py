"""Runs real workers, each a process of its own, and collects what they say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from forks import Forks

from smoketest.findings.report import EagerPart, Finding
from smoketest.supervise.protocol import BREADCRUMB_SIZE, Breadcrumb, Message, Request, parse_event


@dataclass
class Worker:
    """A worker that was run, and what it left."""

    events: list[Any] = field(default_factory=list)
    code: int | None = None
    output: str = ""
    crumb: Breadcrumb = field(default_factory=Breadcrumb)

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.event == kind]

    @property
    def findings(self) -> tuple[Finding, ...]:
        sent = self.of("findings")
        return sent[-1].findings if sent else ()

    @property
    def eager(self) -> EagerPart:
        (result,) = self.of("result")
        part: EagerPart = result.eager
        return part

    @property
    def failed(self) -> Any:
        (failed,) = self.of("failed")
        return failed


RunWorker = Callable[..., Worker]


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    forks = Forks()
    yield forks
    forks.close()


@pytest.fixture(scope="session")
def run_worker(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> RunWorker:
    """Runs a worker in the folder of the check's workload file, which file names are relative to as well.

    It is forked from a process that has PyTorch; ``fresh``, or anything that PyTorch's import could see, has a Python
    of its own started.
    """

    def run(
        check: dict[str, Any],
        device: str = "emulated",
        *,
        python: tuple[str, ...] = (),
        stop_at_error: bool = False,
        strict_limits: bool = False,
        on_event: Callable[[Message, int], None] | None = None,
        debug: bool = False,
        part: str = "eager",
        fresh: bool = False,
    ) -> Worker:
        folder = tmp_path_factory.mktemp("worker")
        home = Path(check["workload"]).parent if "workload" in check else folder
        reading, writing = os.pipe()
        crumb = folder / "breadcrumb"
        crumb.write_bytes(b" " * BREADCRUMB_SIZE)
        request = Request(
            part=part,  # type: ignore[arg-type]
            check={"name": "check"} | check,
            device=device,  # type: ignore[arg-type]
            root=home,
            events=writing,
            breadcrumb=crumb,
            stop_at_error=stop_at_error,
            strict_limits=strict_limits,
            debug=debug,
        )
        (folder / "request.json").write_text(request.model_dump_json())
        heard, printing = os.pipe()
        wait: Callable[[], int]
        if fresh or python or device == "neuron" or not forks.fits():
            process = subprocess.Popen(
                [sys.executable, *python, "-m", "smoketest.worker", str(folder / "request.json")],
                pass_fds=(writing,),
                stdin=subprocess.DEVNULL,
                stdout=printing,
                stderr=printing,
                cwd=home,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            pid, wait = process.pid, process.wait
        else:
            pid, wait = forks.start(folder / "request.json", home, writing, printing), forks.wait
        os.close(writing)
        os.close(printing)
        worker = Worker()
        output = os.fdopen(heard, "rb")
        reader = threading.Thread(target=lambda: setattr(worker, "output", output.read().decode()))
        reader.start()
        watchdog = threading.Timer(250, os.kill, (pid, signal.SIGKILL))
        watchdog.start()
        with os.fdopen(reading, "rb") as events:
            for line in events:
                event = parse_event(line)
                worker.events.append(event)
                if on_event is not None:
                    on_event(event, pid)
        worker.code = wait()
        watchdog.cancel()
        reader.join()
        output.close()
        worker.crumb = Breadcrumb.unpack(crumb.read_bytes())
        return worker

    return run
