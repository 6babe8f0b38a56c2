"""A worker double: a real process that speaks the protocol and then does what its name asks.

Started as ``python -m tests.supervise.double REQUEST.json``, as the worker is. What to do is read from
``model.kwargs.act`` (eager), ``act_compile`` and ``act_reference`` of the check; the rest is in `Worker`.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any

from smoketest.findings import Observation, Site, merge
from smoketest.findings.report import (
    CompilePart,
    DeviceInfo,
    EagerPart,
    Environment,
    NotChecked,
    OperatorRow,
    ParityPart,
    Step,
    WorkloadInfo,
)
from smoketest.supervise import protocol


class Worker:
    def __init__(self, request: protocol.Request) -> None:
        self.request = request
        self.kwargs: dict[str, Any] = request.check["model"]["kwargs"]
        self.file = os.fdopen(request.events, "w")
        self.lock = threading.Lock()
        with request.breadcrumb.open("r+b") as file:
            self.crumb = mmap.mmap(file.fileno(), protocol.BREADCRUMB_SIZE)
        self.frozen = False
        threading.Thread(target=self.beat, daemon=True).start()

    def send(self, message: protocol.Message) -> None:
        self.raw(message.model_dump_json(by_alias=True))

    def raw(self, line: str) -> None:
        with self.lock:
            try:
                self.file.write(line + "\n")
                self.file.flush()
            except BrokenPipeError:
                os._exit(1)

    def beat(self) -> None:
        while not self.frozen:
            self.send(protocol.Heartbeat())
            time.sleep(0.1)

    def leave_crumb(self, **where: Any) -> None:
        self.crumb[:] = protocol.Breadcrumb(**where).pack()

    def run(self) -> None:
        part = self.request.part
        self.send(protocol.Hello(part=part, pid=os.getpid()))
        act = self.kwargs.get("act" if part == "eager" else f"act_{part}", "nothing")
        if act == "die_in_setup":
            self.leave_crumb(phase="setup")
            os._exit(3)
        self.send(protocol.PhaseStarted(name="setup"))
        self.send(self.facts())
        if part == "eager":
            self.eager(act)
        elif part == "reference":
            self.reference(act)
        elif part == "strict":
            self.do(act)
            self.send(protocol.Why(kinds={"aten::atan2": "recovered"}))
            self.send(protocol.Result())
        else:
            self.compile(act)

    def facts(self) -> protocol.Facts:
        kind = self.kwargs.get("device", "emulated")
        return protocol.Facts(
            environment=Environment(python="3.11", torch="2.13.0"),
            device=DeviceInfo(kind=kind, profile="double", profile_note="a double of a device"),
            workload=WorkloadInfo(model="Double", parameters=12),
        )

    def eager(self, act: str) -> None:
        if "act_setup" in self.kwargs:
            self.do(self.kwargs["act_setup"])
            self.wait_until_heard()  # what the supervisor reads late may be of a step
            self.send(protocol.PhaseStarted(name="forward", step=0, role="warmup"))
        steps = [self.step(1, "warmup"), self.step(2, "timed")]
        self.send(protocol.StepDone(step=steps[0]))
        self.leave_crumb(step=1, role="timed", phase="backward", op="aten::mm", module="stem.conv")
        self.do(act)
        self.send(protocol.StepDone(step=steps[1]))
        self.send(protocol.TimedPartOver())
        steps.append(self.step(3, "traced"))
        self.send(protocol.StepDone(step=steps[2]))
        seen = Observation(
            rule="NST101", op="aten::atan2.out", grounds="cannot_lower", phase="forward",
            site=Site(file="model.py", line=3, code="torch.atan2(x, y)"), module="stem", calls=2, exact=True,
            kind=self.kwargs.get("kind"), message="aten::atan2.out ran on the CPU",
        )  # fmt: skip
        if self.kwargs.get("finding"):
            self.send(protocol.FindingsSoFar(findings=merge([seen])))
        self.send(protocol.Note(not_checked=NotChecked(what="memory", why="a double has none")))
        self.do(self.kwargs.get("act_traced", "nothing"))
        if self.request.record_file is not None:
            self.request.record_file.write_text("by the eager part")
        row = OperatorRow(op="aten::atan2", eager="cpu", compile="not_reached", calls_per_step=2)
        part = EagerPart(status="ran", steps=tuple(steps), op_calls=10, distinct_ops=3)
        self.send(protocol.Result(eager=part, operators=(row,)))

    def compile(self, act: str) -> None:
        self.send(protocol.PhaseStarted(name="lower"))
        self.send(protocol.Progress(what="ops", done=4, total=4))
        self.do(act)
        rows = (
            OperatorRow(op="aten::atan2", eager="not_reached", compile="fails"),
            OperatorRow(op="aten::mm", eager="not_reached", compile="lowers"),
        )
        self.send(protocol.Result(compile=CompilePart(status="ran", ops_probed=4, ops_failed=0), operators=rows))

    def reference(self, act: str) -> None:
        assert self.request.record_file is not None
        assert self.request.record_file.read_text() == "by the eager part"
        self.do(act)
        seen = Observation(rule="NST106", phase="backward", module="stem", message="the gradient of stem differs")
        self.send(protocol.FindingsSoFar(findings=merge([seen] if self.kwargs.get("differs") else [])))
        part = ParityPart(status="ran", max_relative_error=1e-7, steps=3, tensors=5)
        self.send(protocol.Result(parity=part))

    def step(self, index: int, role: Any) -> Step:
        return Step(index=index, role=role, loss=1.5, forward_ms=1, backward_ms=2, optimizer_ms=0.5)

    def do(self, act: str) -> None:
        match act:
            case "nothing":
                pass
            case "kill9":
                os.kill(os.getpid(), signal.SIGKILL)
            case "segv":
                sys.stderr.write("Fatal Python error: Segmentation fault" + "\n")
                os.kill(os.getpid(), signal.SIGSEGV)
            case "exit3":
                os._exit(3)
            case "exit0":
                os._exit(0)
            case "hang":
                self.grandchild()
                asked = Path(self.kwargs["pids"] + ".asked")
                signal.signal(signal.SIGTERM, lambda *_: asked.touch())
                time.sleep(600)
            case "sleep":
                self.grandchild()
                time.sleep(600)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "freeze":
                self.frozen = True
                time.sleep(600)
            case "remove_output":
                shutil.rmtree(self.kwargs["output"])
            case "own_session":
                self.grandchild(start_new_session=True)
                time.sleep(600)
            case "close_pipes":
                self.frozen = True
                time.sleep(0.3)
                os.closerange(0, 100)
                time.sleep(600)
            case "linger":
                threading.Thread(target=time.sleep, args=(600,)).start()
            case "flood":
                for _ in range(3000):
                    sys.stdout.write("x" * 10_000 + "\n")
                sys.stdout.write("the last line\n")
            case "flood_and_die":
                for _ in range(1000):
                    sys.stdout.write("y" * 10_000 + "\n")
                sys.stderr.write("RuntimeError: the reason" + "\n")
                os._exit(9)
            case "fallback_lines":  # as C++ does, past sys.stdout and sys.stderr, and in pieces
                sys.stdout.write("mine, before\n")
                sys.stdout.flush()
                os.write(1, b"[Neuron] [DEBUG] [Exec.cpp:3] Starting CPU fallback operation= aten::topk.values\n")
                os.write(2, b"Operator ' aten::atan2.out ' fell ")
                time.sleep(0.2)
                os.write(2, b"back to CPU\nOperator 'erfinv' executed via CPU fallback")
                sys.stdout.write("\nmine, after\n")
                sys.stdout.flush()
            case "malformed":
                self.raw('{"event": "step", "step": 5')
                time.sleep(600)
            case "unknown":
                self.raw('{"event": "surprise"}')
                time.sleep(600)
            case "endless":
                self.file.write("x" * 40_000_000)
            case "orphan":
                self.grandchild()
                os._exit(7)
            case "user_error":
                self.send(protocol.Failed(exit_code=4, message="model.py:3: ValueError: no", traceback="  in f\n"))
                sys.exit(0)
            case "no_device":
                self.send(protocol.Failed(exit_code=3, message="no neuron device", hint="run smoketest doctor"))
                sys.exit(0)
            case _:
                raise AssertionError(act)

    def wait_until_heard(self) -> None:
        """Wait until the supervisor has read all that was printed, and has had its turn to look at it."""
        left = bytearray(4)
        while fcntl.ioctl(1, termios.FIONREAD, left) == 0 and any(left):
            time.sleep(0.02)
        time.sleep(1)

    def grandchild(self, **kwargs: Any) -> None:
        """A child of ours that outlives us unless the whole group is killed; its number goes to a file."""
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], **kwargs)
        Path(self.kwargs["pids"]).write_text(json.dumps([os.getpid(), child.pid]))


if __name__ == "__main__":
    Worker(protocol.Request.model_validate_json(Path(sys.argv[1]).read_text())).run()
