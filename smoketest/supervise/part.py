"""A worker that runs: its process, its files, and what it has sent so far."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pydantic import ValidationError

from smoketest.findings import Finding, NotChecked
from smoketest.findings.report import FitPart, Step
from smoketest.supervise import protocol
from smoketest.supervise.compilers import CompileWatch
from smoketest.supervise.files import CappedLog, PassedFile
from smoketest.supervise.launched import NamedFile, RankProcess
from smoketest.supervise.opening import OPENING, ended
from smoketest.supervise.outcome import (
    OTHERS,
    Crashed,
    EndedWithOthers,
    Failed,
    Outcome,
    Ran,
    Record,
    Seen,
    describe_death,
)
from smoketest.supervise.output import HeardOps, with_heard
from smoketest.supervise.process import WorkerProcess

__all__ = ["Part", "Worker", "malformed"]

_CALLED = {"compile": "the compile probe", "strict": "the step that asks kernels why", "reference": "the CPU reference"}
"""What parts besides the eager one are called where a whole run is told of."""


@dataclass(frozen=True)
class Worker:
    """A worker process, the files it was given, and its own number of the pipe it sends events through."""

    process: WorkerProcess
    log: CappedLog
    crumb: PassedFile
    request: PassedFile
    events: int

    def close(self) -> None:
        """End it: it is not needed."""
        self.process.close()
        for file in (self.log, self.crumb, self.request):
            file.close()


class Part:
    """A worker that runs, and what it has sent."""

    def __init__(
        self,
        name: protocol.PartName,
        process: WorkerProcess | RankProcess,
        log: CappedLog,
        crumb: PassedFile | NamedFile,
        timeout: float,
        listens: bool,
    ) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.crumb = crumb
        self.timeout = timeout
        self.listens = listens  # to what the backend prints
        self.heard = HeardOps()
        self.opened = process.started  # when it began to open a device
        self.setting_up = True  # no step has begun, as far as it has told
        self.facts: protocol.Facts | None = None
        self.steps: list[Step] = []
        self.compilers = CompileWatch(process.pid, process.started)
        self.phase_began = process.started
        self.step_began = process.started  # or what went before the first
        self.findings: tuple[Finding, ...] = ()
        self.notes: list[NotChecked] = []
        self.phase: str | None = None
        self.counted: protocol.Progress | None = None  # of that phase
        self.last_sign = process.started
        self.last_word: float | None = None  # when its result or its failure came
        self.why: protocol.Why | None = None
        self.fit: FitPart | None = None
        self.result: protocol.Result | None = None
        self.failed: protocol.Failed | None = None
        self.stopped: Outcome | None = None  # why we ended it
        self.stopped_at: float | None = None

    @property
    def rank(self) -> int | None:
        """Its number among several that make the steps together; None where it is the only one."""
        return self.process.rank if isinstance(self.process, RankProcess) else None

    @property
    def label(self) -> str:
        """What to call it, and its log: ``eager``, or ``eager-rank1``."""
        return self.name if self.rank is None else f"{self.name}-rank{self.rank}"

    @property
    def has_failed(self) -> bool:
        """Whether it has said that it comes to no end."""
        eager = self.result.eager if self.result is not None else None
        return self.failed is not None or (eager is not None and eager.status != "ran")

    @property
    def last_seen(self) -> float:
        """When it said its last word, or was stopped; now where it did neither. Its death comes seconds later."""
        return self.last_word or self.stopped_at or time.monotonic()

    def where(self) -> str:
        """Where the worker was: after its breadcrumb, else after the last phase it spoke of."""
        crumb = protocol.Breadcrumb.unpack(self.crumb.read())
        if crumb != protocol.Breadcrumb() or self.phase is None:
            return crumb.sentence()
        return f"in {self.phase}" + (f", {self.counted.done} of {self.counted.total}" if self.counted else "")

    def where_of_run(self) -> str:
        """Where the run was: of a part that comes after the eager one, its name first."""
        if self.name not in _CALLED:
            return self.where()
        known = self.phase is not None or protocol.Breadcrumb.unpack(self.crumb.read()) != protocol.Breadcrumb()
        return f"in {_CALLED[self.name]}" + (f" ({self.where()})" if known else "")

    @property
    def opening(self) -> bool:
        """Whether it is at its first use of a real device."""
        return self.phase == OPENING and self.facts is None

    def close(self) -> None:
        """Close its files."""
        self.log.close()
        self.crumb.close()

    def take(self, message: protocol.Message) -> None:
        """Keep what a message says."""
        match message:
            case protocol.Hello(pid=pid):
                if isinstance(self.process, RankProcess):
                    self.process.worker = pid
            case protocol.Facts():
                self.facts, self.step_began = message, self.last_sign
            case protocol.PhaseStarted(name=name, step=step):
                self.phase, self.counted = name, None
                self.opened = self.last_sign if name == OPENING else self.opened
                self.phase_began = self.last_sign
                self.setting_up &= step is None
            case protocol.Progress():
                self.counted = message
            case protocol.StepDone(step=done):
                self.steps.append(self._told_of_compiling(done))
                self.setting_up = False
            case protocol.FindingsSoFar(findings=findings):
                self.findings = findings
            case protocol.Note(not_checked=note):
                self.notes.append(note)
            case protocol.Estimated(fit=fit):
                self.fit = fit
            case protocol.Why():
                self.why = message
            case protocol.TimedPartOver():
                pass  # for the parts that wait for it
            case protocol.Failed():
                self.failed, self.last_word = message, self.last_sign
            case protocol.Result():
                self.result, self.last_word = message, self.last_sign

    def end(self, code: int | None) -> Record:
        """How the part ended, once its process did."""
        on_neuron = self.facts is not None and self.facts.device.kind == "neuron"
        if self.name == "eager" and on_neuron and self.listens:
            self._add_heard()  # the kernels of an emulated device are known: nothing is to be heard of them
        why = self.why or protocol.Why(kinds={})
        seen = Seen(self.facts, tuple(self.steps), self.findings, tuple(self.notes), why.kinds, why.problem, self.fit)
        return Record(self._outcome(code), seen)

    def _last_lines(self) -> str:
        printed = self.log.last_lines()
        return printed or (self.process.last_lines() if isinstance(self.process, RankProcess) else "")

    def _add_heard(self) -> None:
        """Make findings of what the output names."""
        self.heard.end()
        self.findings = with_heard(self.findings, self.heard.ops)
        if self.heard.overflowed:
            why = f"it names more ops than the {len(self.heard.ops)} that are told"
            self.notes.append(NotChecked(what="fallbacks that only the output names, all of them", why=why))

    def _told_of_compiling(self, step: Step) -> Step:
        """The step, and whether a compiler was seen at work in it; its device may have counted already."""
        if self.facts is None or self.facts.device.kind != "neuron":
            return step
        seen = self.compilers.seen_since(self.step_began)
        self.step_began = self.last_sign
        return step.model_copy(update={"compiling": True if seen else step.compiling})

    def _with_steps(self, result: protocol.Result) -> protocol.Result:
        """The result with the steps as they were told one by one."""
        if result.eager is None or len(result.eager.steps) != len(self.steps):
            return result
        return result.model_copy(update={"eager": result.eager.model_copy(update={"steps": tuple(self.steps)})})

    def _outcome(self, code: int | None) -> Outcome:
        if self.stopped is not None:
            return self.stopped
        if self.failed is not None:
            return Failed(self.failed)
        if self.result is not None:
            return Ran(self._with_steps(self.result))
        if isinstance(self.process, RankProcess) and self.process.ended_by_launcher:
            return EndedWithOthers(f"the {self.name} worker was ended {self.where()}, {OTHERS}")
        if code is None:
            return Crashed(f"the {self.name} worker could not be killed {self.where()}")
        if self.opening:
            return ended(describe_death(code, self.name, "at its first use"))
        return Crashed(describe_death(code, self.name, self.where()), self._last_lines())


def malformed(part: Part, error: Exception) -> protocol.Failed:
    """How a part ends whose worker sent what is no event."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        detail = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".lstrip(": ")
    else:
        detail = "an event without end"
    return protocol.Failed(
        exit_code=5,
        message=f"internal error: the {part.name} worker sent a malformed event ({detail})",
        hint="look into log/events.jsonl beside the report",
    )
