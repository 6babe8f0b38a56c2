"""What a worker tells its supervisor: one JSON object a line, over a pipe of their own.

A worker is started as ``python -m smoketest.worker REQUEST.json``, with the number of the pipe's writing end in the
request. Everything the user's code prints goes elsewhere. The supervisor journals each line as it arrives; a worker
that dies leaves what it sent, and the breadcrumb: a small shared file that always holds what it was doing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from smoketest.findings.report import (
    CompilePart,
    DeviceInfo,
    EagerPart,
    Environment,
    Finding,
    FitPart,
    Kind,
    NotChecked,
    OperatorRow,
    ParityPart,
    Step,
    WorkloadInfo,
)

__all__ = [
    "BREADCRUMB_SIZE",
    "Breadcrumb",
    "Deaths",
    "Estimated",
    "Event",
    "Facts",
    "Failed",
    "FindingsSoFar",
    "Heartbeat",
    "Hello",
    "Launch",
    "Message",
    "Note",
    "PartName",
    "PhaseStarted",
    "Progress",
    "Request",
    "Result",
    "ScriptRun",
    "StepDone",
    "TimedPartOver",
    "Why",
    "parse_event",
    "request_of",
]

PartName = Literal["eager", "compile", "strict", "reference"]
BREADCRUMB_SIZE = 1024


class Message(BaseModel):
    """Base of all messages: frozen and closed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ScriptRun(Message):
    """A training script to run instead of a check's workload.

    Attributes:
        path: of the script, absolute.
        arguments: its command line.
        map_cuda: whether what it asks of CUDA is given by the device.
    """

    path: Path
    arguments: tuple[str, ...] = ()
    map_cuda: bool = False


class Request(Message):
    """What a worker is asked to do.

    Attributes:
        part: which part of the check.
        check: the check after validation, as JSON (`smoketest.config.Check`).
        device: the device asked for; the worker settles ``auto`` and says in `Facts` what it took.
        root: folder that file names in reports are relative to.
        events: file descriptor the worker writes its events to; of a rank the path of a named pipe.
        printed: named pipe that stdout and stderr of a rank go to; None where they go where they are.
        rank: of a worker that the launcher started among others; the rest of it is in its environment.
        losses: of the reference part: what the steps gave, the mean over ranks; None where one process made them.
        breadcrumb: path of the shared file, `BREADCRUMB_SIZE` bytes.
        stop_at_error: raise where the device raises, instead of going on.
        strict_limits: have the emulated device keep to limits too that only a pre-release is known to have.
        debug: send our own frames with a failure too.
        output: the report's folder, for files that go beside it; None where nothing is kept.
        state_file: where the eager worker keeps the state before the traced step, for the reference worker.
        record_file: where it leaves what the device gave in that step. Both have no name, and go with the supervisor.
        script: what to run instead of the check's workload; None where that is run.
        imports: modules, and names in modules (``module:name``), to import first: they merely define things.
    """

    part: PartName
    check: dict[str, Any]
    device: Literal["auto", "emulated", "neuron", "cpu"]
    root: Path
    events: int | Path
    breadcrumb: Path
    stop_at_error: bool = False
    strict_limits: bool = False
    debug: bool = False
    output: Path | None = None
    state_file: Path | None = None
    record_file: Path | None = None
    script: ScriptRun | None = None
    printed: Path | None = None
    rank: int | None = None
    losses: tuple[float | None, ...] | None = None
    imports: tuple[str, ...] = ()


class Launch(Message):
    """What the launcher is asked to do: start a worker for each rank.

    Attributes:
        ranks: how many.
        module: that is the worker.
        folder: of the ranks' requests, see `request_of`.
        deaths: file descriptor for its one message, `Deaths`.
    """

    ranks: int
    module: str
    folder: Path
    deaths: int


def request_of(folder: Path, rank: int) -> Path:
    """Where the request of a rank stands; a worker that is given a folder looks there."""
    return folder / f"rank{rank}.json"


class Deaths(Message):
    """Which ranks ended otherwise than with code 0: exit codes, or minus a signal's number."""

    codes: dict[int, int]


class Hello(Message):
    """The worker is up."""

    event: Literal["hello"] = "hello"
    part: PartName
    pid: int


class Facts(Message):
    """What was run where; sent once the workload stands."""

    event: Literal["facts"] = "facts"
    environment: Environment
    device: DeviceInfo
    workload: WorkloadInfo


class PhaseStarted(Message):
    """A phase began: setup, forward, backward, optimizer, or one of the compile probe's (capture, lower)."""

    event: Literal["phase"] = "phase"
    name: str
    step: int | None = None
    role: str | None = None


class Progress(Message):
    """How far a countable piece of work is."""

    event: Literal["progress"] = "progress"
    what: str
    done: int
    total: int


class StepDone(Message):
    """A step of the eager part is over."""

    event: Literal["step"] = "step"
    step: Step


class TimedPartOver(Message):
    """The last timed step is over: other parts may start without disturbing it."""

    event: Literal["timed_part_over"] = "timed_part_over"


class FindingsSoFar(Message):
    """All findings of the part up to now; replaces what was sent before."""

    event: Literal["findings"] = "findings"
    findings: tuple[Finding, ...]


class Note(Message):
    """Something that was not checked."""

    event: Literal["note"] = "note"
    not_checked: NotChecked


class Why(Message):
    """What the strict witness saw: why ops with a kernel ran on the CPU, by functional base name.

    ``problem`` is what the step raised there, beside refusals; the kinds are those of the ops before.
    """

    event: Literal["why"] = "why"
    kinds: dict[str, Kind]
    problem: str | None = None


class Estimated(Message):
    """Whether the job fits, as far as it is known; replaces what was sent before."""

    event: Literal["estimated"] = "estimated"
    fit: FitPart


class Heartbeat(Message):
    """The worker lives, whatever its main thread does; sent every second."""

    event: Literal["heartbeat"] = "heartbeat"


class Failed(Message):
    """The part ends with an error that has a message of its own.

    Attributes:
        exit_code: 2, 3, 4 or 5 as in the design's section 7.
        message: one sentence, with its place in front where it has one.
        hint: what to do.
        traceback: the user's own frames, formatted; empty where their code did not raise.
        debug: our frames too, where asked for.
        is_advised: whether the hint says all there is to do, so that the doctor need not look.
    """

    event: Literal["failed"] = "failed"
    exit_code: int
    message: str
    hint: str | None = None
    traceback: str = ""
    debug: str = ""
    is_advised: bool = False


class Result(Message):
    """The part is over: one of ``eager``, ``compile`` and ``parity`` is given, and that part's half of the rows."""

    event: Literal["result"] = "result"
    eager: EagerPart | None = None
    compile: CompilePart | None = None
    parity: ParityPart | None = None
    operators: tuple[OperatorRow, ...] = ()


Event = Annotated[
    Hello
    | Facts
    | PhaseStarted
    | Progress
    | StepDone
    | TimedPartOver
    | FindingsSoFar
    | Note
    | Estimated
    | Why
    | Heartbeat
    | Failed
    | Result,
    Field(discriminator="event"),
]
_EVENT: TypeAdapter[Any] = TypeAdapter(Event)


def parse_event(line: str | bytes) -> Message:
    """The message on one line of a worker's pipe. Raises `pydantic.ValidationError` for anything else."""
    event: Message = _EVENT.validate_json(line)
    return event


class Breadcrumb(Message):
    """Where the worker was when it was last able to say so; read after its death.

    Attributes:
        step: from 0; people are told it from 1.
        steps: how many the run makes.
        role: of the step (warmup, timed, traced).
        phase: of the step, or setup.
        op: the last op known to have begun.
        module: in which it began.
        entered: how many phases began so far, micro-batches counted: ranks that are in step have the same number.
        since: when the phase began, or the op where one is known, on the monotonic clock, which processes share.
        took: seconds of the longest phase that is over: of the steps, or before them of what came before.
    """

    step: int | None = None
    steps: int | None = None
    role: str | None = None
    phase: str | None = None
    op: str | None = None
    module: str | None = None
    entered: int = 0
    since: float | None = None
    took: float = 0.0

    def sentence(self) -> str:
        """Such as ``in step 2 of 5 (timed), backward, after aten::convolution_backward in stem.conv``."""
        where = []
        if self.step is not None:
            of = f" of {self.steps}" if self.steps is not None else ""
            where.append(f"step {self.step + 1}{of}" + (f" ({self.role})" if self.role else ""))
        if self.phase:
            where.append(self.phase)
        text = "in " + ", ".join(where) if where else "before the first step"
        if self.op:
            text += f", after {self.op}"
            text += f" in {self.module}" if self.module else ""
        return text

    def pack(self) -> bytes:
        """`BREADCRUMB_SIZE` bytes: JSON, cut to fit, padded with spaces."""
        short = self.model_copy(update={k: v[:200] for k, v in self if isinstance(v, str)})
        return short.model_dump_json().encode()[:BREADCRUMB_SIZE].ljust(BREADCRUMB_SIZE)

    @classmethod
    def unpack(cls, data: bytes) -> Breadcrumb:
        """What `pack` wrote; an empty breadcrumb where nothing readable stands."""
        try:
            return cls.model_validate_json(data.strip(b" \0"))
        except ValueError:
            return cls()
