"""One check from its workers to its report: starts them, reads them, ends them, survives them."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.metadata
import importlib.util
import json
import platform
import selectors
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from smoketest.config import Check
from smoketest.config.paths import refuse_other_than_utf8
from smoketest.findings import NotChecked, Report
from smoketest.findings.cost import Plan
from smoketest.findings.report import Environment
from smoketest.findings.sites import project_root
from smoketest.supervise import protocol
from smoketest.supervise.assemble import Circumstances, assemble
from smoketest.supervise.baselines import Held, read_baseline, write_baseline
from smoketest.supervise.early import early_imports
from smoketest.supervise.files import CappedLog, Journal, PassedFile, locked, prepare_folder
from smoketest.supervise.launched import LaunchedRanks
from smoketest.supervise.names import names_here
from smoketest.supervise.opening import not_answering, noted, without_it
from smoketest.supervise.outcome import (
    OTHERS,
    EndedWithOthers,
    Failed,
    Interrupted,
    Outcome,
    Ran,
    Record,
    Skipped,
    TimedOut,
)
from smoketest.supervise.part import Part, Worker, malformed
from smoketest.supervise.process import LineTooLong, WorkerProcess, waiting_command, worker_command
from smoketest.supervise.progress import NoProgress, Progress
from smoketest.supervise.ranks import RankEnd, mean_losses, settle, speaker
from smoketest.supervise.reference import Exchange, no_reference
from smoketest.supervise.signals import Interrupts
from smoketest.supervise.strict import told, unexplained
from smoketest.supervise.surroundings import look_around
from smoketest.supervise.unfit import advised
from smoketest.supervise.written import write_report

__all__ = ["Limits", "Options", "run_check"]

_TICK = 0.1
_OF_A_SCRIPT = "the state of a script is not ours to begin again from"
_PARTS = frozenset(("eager", "compile", "reference"))
"""What every run tells of."""
_SETTINGS: dict[str, dict[str, str]] = {
    # It runs beside the compile probe: threads that wait must not keep the cores from those that work.
    "reference": {"OMP_WAIT_POLICY": "PASSIVE"},
}
"""Environment variables that a part needs, unless the user has set them."""
_TIMEOUTS = {
    "eager": "training.timeout",
    "strict": "half of training.timeout",
    "compile": "compile.timeout",
    "reference": "parity.timeout",
}


@dataclass(frozen=True)
class Limits:
    """Seconds the supervisor waits; a check's own timeouts are in the check.

    Attributes:
        silence: without a heartbeat, before a worker counts as frozen.
        grace: between asking a worker to end and killing it.
        farewell: for a worker that has sent its result to end by itself.
        device: for a real device to answer its first use.
    """

    silence: float = 60
    grace: float = 3
    farewell: float = 10
    device: float = 120


@dataclass(frozen=True)
class Options:
    """How to run a check.

    Attributes:
        output: folder that gets ``<name>/report.json`` and the rest.
        root: folder that file names in the report are relative to; the project around the current folder if None.
        eager: whether to run the eager part at all.
        compile: whether to run the compile probe at all.
        stop_at_error: raise where the device raises, instead of going on.
        strict_limits: have the emulated device keep to limits too that only a pre-release is known to have.
        debug: frames of this package in failures too.
        command: what to type to run it again, for the report.
        worker: module that is the worker.
        keep: whether files that findings name (repros) are written beside the report.
        update_baseline: whether the check's baseline is to accept what is found now.
        strict_baseline: whether an entry of the baseline that nothing needs any more fails the check.
        plan: the job that is to be booked, as far as it was told.
        limits: how long to wait.
        script: run instead of the check's workload; `compile` is then whether the modules it trains are probed.
    """

    output: Path
    root: Path | None = None
    eager: bool = True
    compile: bool = True
    stop_at_error: bool = False
    strict_limits: bool = False
    debug: bool = False
    command: str | None = None
    worker: str = "smoketest.worker"
    keep: bool = True
    update_baseline: bool = False
    strict_baseline: bool = False
    plan: Plan = field(default_factory=Plan)
    limits: Limits = field(default_factory=Limits)
    script: protocol.ScriptRun | None = None


def run_check(
    check: Check, options: Options, progress: Progress | None = None, interrupts: Interrupts | None = None
) -> Report:
    """Run a check and leave its report in ``<output>/<name>/``.

    Args:
        check: the check.
        options: how to run it.
        progress: told what happens; nothing is shown if None.
        interrupts: where the caller already looks for Ctrl-C.

    Returns:
        The report, judged and free of personal names, as it was written.

    Raises:
        ConfigError: the output folder cannot be written, another run is in it, or the baseline cannot be read.
        InternalError: the report or the baseline cannot be written.
        KeyboardInterrupt: a second Ctrl-C; the workers are dead, and no report was written.
    """
    progress = progress or NoProgress()
    root = options.root or project_root(Path.cwd())
    refuse_other_than_utf8(root)
    held = read_baseline(check, update=options.update_baseline, strict=options.strict_baseline)
    folder = options.output / check.name
    prepare_folder(folder)
    with locked(folder):
        return _run_in(folder, check, options, root, progress, interrupts, held)


def _run_in(
    folder: Path,
    check: Check,
    options: Options,
    root: Path,
    progress: Progress,
    interrupts: Interrupts | None,
    held: Held,
) -> Report:
    """`run_check`, once the folder is its own."""
    steps = check.training.warmup + check.training.steps + 1
    progress.check_started(check.name, str(folder / "log"), steps)
    try:
        with interrupts or Interrupts() as watched:
            eagers, compiled, reference = _Run(check, options, root, progress, watched, folder / "log").parts()
        around = look_around(speaker(eagers), compiled)
        eagers = tuple(around.told(advised(eager, around.diagnosis)) for eager in eagers)
        report = _scrubbed(around.on(assemble(check, eagers, compiled, reference, _circumstances(options, held))))
        write_report(report, folder)
        if held.update:
            progress.note(f"baseline: {write_baseline(report, check, held, dt.datetime.now(dt.UTC).date())}")
    finally:
        progress.check_ended()
    return report


class _Run:
    """The workers of one check, side by side."""

    def __init__(
        self, check: Check, options: Options, root: Path, progress: Progress, interrupts: Interrupts, logs: Path
    ) -> None:
        self.check = check
        self.options = options
        self.root = root
        self.progress = progress
        self.interrupts = interrupts
        self.logs = logs
        self.exchange = Exchange(wanted=check.parity.enabled)
        self.prepared: dict[str, Worker] = {}  # that import, and wait for their turn
        self.running: dict[str, Part] = {}
        self.over: dict[str, Record] = {}
        self.launched: LaunchedRanks | None = None
        self.rank_ends: list[RankEnd] = []
        self.timed_part_over = False
        self.device: Literal["emulated", "neuron", "cpu"] | None = None  # what the eager worker took
        self.without: NotChecked | None = None  # the real device, where ``auto`` goes on with the emulated one

    def parts(self) -> tuple[tuple[Record, ...], Record, Record]:
        """Run the parts to their ends, whatever these are: eager (of each rank), compile and reference."""
        self.journal = Journal(self.logs / "events.jsonl")
        self.selector = selectors.DefaultSelector()
        try:
            if self.options.eager:
                self._start_eager()
                if self._no_compile(None) is None:
                    self._prepare("compile")
            else:
                self._end("eager", Record(Skipped("left out: the compile probe alone was asked for")))
            while _PARTS - self.over.keys() or self.running:
                self._wait()
                for part in list(self.running.values()):
                    self._read(part)
                    self._look_for_compilers(part)
                    self._enforce(part)
                    if part.process.has_ended():
                        self._finish(part)
                self._maybe_ask_why()
                self._maybe_compile()
                self._maybe_refer()
                self._refuse_to_idle()
        finally:
            for part in list(self.running.values()):  # a second Ctrl-C, or a fault of ours
                part.process.close()
                part.close()
            for worker in self.prepared.values():
                worker.close()
            if self.launched is not None:
                self.launched.close()
            self.selector.close()
            self.journal.close()
            self.exchange.close()
        if self.journal.problem is not None:
            self.progress.note(f"log/events.jsonl is not whole: {self.journal.problem}")
        eagers = (told(noted(record, self.without), self.over.get("strict")) for record in self._eager_records())
        return tuple(eagers), self.over["compile"], self.over["reference"]

    def _eager_records(self) -> tuple[Record, ...]:
        """The eager part of each rank."""
        return settle(self.rank_ends) if self.rank_ends else (self.over["eager"],)

    def _start_eager(self) -> None:
        """Start the eager part, in as many processes as the check asks for."""
        if self.check.ranks == 1 or self.options.script is not None:
            self._start("eager", self.check.training.timeout)
        else:
            self._start_ranks()

    def _start_ranks(self) -> None:
        self.rank_ends = []
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            log = CappedLog(self.logs / "launcher.log")
            self.launched = LaunchedRanks(self.check.ranks, self.options.worker, log, self._request_of_rank)
            for process in self.launched.processes:
                log = CappedLog(self.logs / f"eager-rank{process.rank}.log")
                timeout, listens = self.check.training.timeout, self.check.witnesses.warnings
                self._watch(Part("eager", process, log, process.crumb, timeout, listens))
        except OSError as error:
            self._cannot_start("eager", error)
            return
        self.progress.part_started("eager")

    def _request_of_rank(self, rank: int, events: Path, crumb: Path, printed: Path, record: Path) -> bytes:
        record_file = record if rank == 0 and self.check.parity.enabled else None
        return self._request("eager", events, crumb, rank=rank, printed=printed, record_file=record_file)

    def _wait(self) -> None:
        if self.running:
            self.selector.select(_TICK)

    def _refuse_to_idle(self) -> None:
        """End what nothing can start any more: parts wait for one another, and a run must not wait for ever."""
        for name in () if self.running else _PARTS - self.over.keys():
            message = f"internal error: nothing runs, and the {name} part was neither started nor left out"
            self._end(name, Record(Failed(protocol.Failed(exit_code=5, message=message))))

    def _start(self, name: protocol.PartName, timeout: float) -> None:
        try:
            part = self._started(name, timeout)
        except OSError as error:  # no memory, no process, no descriptor, no disk left
            self._cannot_start(name, error)
            return
        self._watch(part)
        self.progress.part_started(name)

    def _cannot_start(self, name: str, error: OSError) -> None:
        message = f"internal error: the {name} worker cannot be started: {error.strerror}"
        self._end(name, Record(Failed(protocol.Failed(exit_code=5, message=message))))

    def _watch(self, part: Part) -> None:
        self.running[part.label] = part
        for end in (part.process.events, part.process.output):
            self.selector.register(end, selectors.EVENT_READ)

    def _started(self, name: protocol.PartName, timeout: float) -> Part:
        self.logs.mkdir(parents=True, exist_ok=True)  # user code may have removed it
        worker = self._waiting(name)
        if worker is None:
            worker = self._worker(name, waits=False)
        else:
            worker.request.write(self._request(name, worker.events, worker.crumb.path))
            worker.process.go()
        worker.request.close()
        return Part(name, worker.process, worker.log, worker.crumb, timeout, self.check.witnesses.warnings)

    def _worker(self, name: protocol.PartName, *, waits: bool) -> Worker:
        """A worker process with its files; one that waits gets its request when it is let go."""
        with contextlib.ExitStack() as unless_it_starts:
            log = unless_it_starts.enter_context(contextlib.closing(CappedLog(self.logs / f"{name}.log")))
            crumb = unless_it_starts.enter_context(contextlib.closing(PassedFile(b" " * protocol.BREADCRUMB_SIZE)))
            request = unless_it_starts.enter_context(contextlib.closing(PassedFile()))
            ends: list[int] = []

            def write_request(events: int) -> None:
                ends.append(events)
                if not waits:
                    request.write(self._request(name, events, crumb.path))

            if waits:
                command = waiting_command(self.options.worker, request.path, early_imports(self.check, name))
            else:
                command = worker_command(self.options.worker, request.path)
            passed = (crumb.number, request.number, *self.exchange.numbers)
            process = WorkerProcess(command, write_request, passed, waits=waits, settings=_SETTINGS.get(name, {}))
            unless_it_starts.pop_all()
        return Worker(process, log, crumb, request, ends[0])

    def _request(
        self,
        name: protocol.PartName,
        events: int | Path,
        crumb: Path,
        rank: int | None = None,
        printed: Path | None = None,
        record_file: Path | None = None,
    ) -> bytes:
        if rank is None:
            record_file = self.exchange.path_of(1) if self.launched is None else self.launched.record
        losses = mean_losses(self.rank_ends) if name == "reference" and self.rank_ends else None
        message = protocol.Request(
            part=name, check=self.check.model_dump(mode="json"), device=self._device(),
            root=self.root, events=events, breadcrumb=crumb, stop_at_error=self.options.stop_at_error,
            strict_limits=self.options.strict_limits,
            debug=self.options.debug, output=self.logs.parent.resolve() if self.options.keep else None,
            state_file=self.exchange.path_of(0) if rank is None else None, record_file=record_file,
            script=self.options.script, printed=printed, rank=rank, losses=losses,
            imports=tuple(early_imports(self.check, name)),
        )  # fmt: skip
        return message.model_dump_json().encode()

    def _prepare(self, name: protocol.PartName) -> None:
        """Have a worker import what it needs while the eager one works; not where a real device may be."""
        if "eager" in self.over or name in self.prepared or self.check.device == "neuron":
            return
        if self.check.device == "auto" and importlib.util.find_spec("torch_neuronx") is not None:
            return
        with contextlib.suppress(OSError):  # then it is started when it is its turn
            self.prepared[name] = self._worker(name, waits=True)

    def _pause_prepared(self) -> None:
        """Leave the timed steps alone, should imports take as long."""
        for worker in self.prepared.values():
            worker.process.pause()

    def _waiting(self, name: protocol.PartName) -> Worker | None:
        worker = self.prepared.pop(name, None)
        if worker is not None and worker.process.has_ended():
            worker.close()
            return None
        return worker

    def _device(self) -> Literal["auto", "emulated", "neuron", "cpu"]:
        """What a worker is asked to take: what the eager one took, else what the check says."""
        return self.device or ("emulated" if self.without is not None else self.check.device)

    def _maybe_ask_why(self) -> None:
        """Start the strict witness where it has something to tell, once the eager worker has left the device."""
        eager = self.over.get("eager")
        if eager is None or eager.status != "ran" or self.interrupts.name is not None:
            return
        if not self.check.witnesses.strict:
            return  # which the eager part has told
        if "strict" not in self.running.keys() | self.over.keys() and unexplained(eager.seen.findings):
            self._start("strict", self.check.training.timeout / 2)

    def _maybe_compile(self) -> None:
        """Start the compile probe as soon as it disturbs no timed step, or say why it is not started."""
        if "compile" in self.running or "compile" in self.over:
            return
        eager = self.over.get("eager")
        if self.interrupts.name is not None:
            self._end("compile", Record(Interrupted(f"interrupted by {self.interrupts.name} before it was started")))
        elif (reason := self._no_compile(eager)) is not None:
            self._end("compile", Record(Skipped(reason)))
        elif self.device == "neuron" and (eager is None or "strict" in self.running):
            return  # one process at a time has the core
        elif eager is not None or self.timed_part_over:
            self._start("compile", self.check.compile.timeout)

    def _no_compile(self, eager: Record | None) -> str | None:
        if not self.options.compile and self.options.script is not None:
            return "the modules that a script trains are probed with --probe"
        if not self.options.compile:
            return "switched off with --no-compile"
        if not self.check.compile.enabled:
            return "switched off in the check (compile.enabled)"
        if eager is not None and eager.seen.facts is None and not isinstance(eager.outcome, Ran | Skipped):
            return "the eager part ended before the workload stood"
        if eager is not None and isinstance(eager.outcome, Failed) and eager.outcome.error.exit_code in (2, 3, 4):
            return "the eager part ended with an error of the workload or of the environment"
        return None

    def _maybe_refer(self) -> None:
        """Start the reference once the eager part is over and has left what it is compared with, or say why not."""
        eager = self.over.get("eager")
        if eager is None or "reference" in self.running or "reference" in self.over:
            return
        reason = _OF_A_SCRIPT if self.options.script is not None else no_reference(self.check, eager, self.device)
        if self.interrupts.name is not None:
            self._end("reference", Record(Interrupted(f"interrupted by {self.interrupts.name} before it was started")))
        elif reason is not None:
            self._end("reference", Record(Skipped(reason)))
        else:
            self._start("reference", self.check.parity.timeout)

    def _read(self, part: Part) -> None:
        """Take what the worker sent and printed."""
        printed = part.process.read_output()
        part.log.write(printed)
        try:
            for line in part.process.read_lines():
                self._take_line(part, line)
        except (ValidationError, LineTooLong, UnicodeError) as error:
            self._stop(part, Failed(malformed(part, error)))
        # After the events: a step that began before this was printed has been told of by now.
        part.heard.hear(printed, "setup" if part.setting_up else None)
        for end in part.process.ended & self.selector.get_map().keys():  # it would be ready for ever
            self.selector.unregister(end)

    def _take_line(self, part: Part, line: bytes) -> None:
        part.last_sign = time.monotonic()
        try:
            message = protocol.parse_event(line)
        except ValidationError:
            self.journal.add(part.label, json.dumps(line[:2000].decode("utf-8", "replace")).encode())
            raise
        if isinstance(message, protocol.Heartbeat):
            return
        self.journal.add(part.label, line)
        part.take(message)
        if part.name == "eager":
            if isinstance(message, protocol.PhaseStarted) and message.role == "timed":
                self._pause_prepared()
            if isinstance(message, protocol.TimedPartOver):
                self.timed_part_over = True
                if self.check.parity.enabled and self.device != "cpu" and self.options.script is None:
                    self._prepare("reference")
            self.device = part.facts.device.kind if part.facts else self.device
        if not part.rank:  # of several ranks the first one speaks for all
            self.progress.event(part.name, message)

    def _look_for_compilers(self, part: Part) -> None:
        """Say so where a step takes its time since the device compiles."""
        if self.device == "neuron" and part.last_word is None:
            news = part.compilers.look(time.monotonic(), part.phase_began)
            if news is not None:
                self.progress.note(f"{part.label}, {part.where()}: {news}")

    def _enforce(self, part: Part) -> None:
        """End a worker that must end."""
        if part.stopped is not None:
            return
        if part.last_word is not None:  # what it has left to do, such as a thread of the user's, is nobody's business
            if self.interrupts.name is not None or time.monotonic() - part.last_word > self.options.limits.farewell:
                part.process.ask_to_end(self.options.limits.grace)
            return
        now = time.monotonic()
        limits = self.options.limits
        if self.interrupts.name is not None:
            self._stop(part, Interrupted(f"interrupted by {self.interrupts.name} {part.where_of_run()}"))
        elif now - part.process.started > part.timeout:
            key = _TIMEOUTS[part.name]
            text = f"the {part.name} part took longer than {part.timeout:g} s ({key})"
            self._stop(part, TimedOut(part.timeout, text, part.where()))
        elif part.rank is not None and self._another_failed(now):
            self._stop(part, EndedWithOthers(f"the {part.name} worker was ended {part.where()}, {OTHERS}"))
        elif part.opening:  # loading a backend may well keep the heartbeat from its turn
            if now - part.opened > limits.device:
                self._stop(part, not_answering(limits.device))
        elif now - part.last_sign > limits.silence and not part.compilers.at_work():
            text = f"the {part.name} worker gave no sign of life for {limits.silence:g} s"
            self._stop(part, TimedOut(limits.silence, text, part.where()))

    def _another_failed(self, now: float) -> bool:
        """Whether another rank came to no end so long ago that this one will not tell of the same."""
        failed = [part.last_word for part in self.running.values() if part.has_failed and part.last_word is not None]
        failed += [end.at for end in self.rank_ends if end.record.status != "ran"]
        return bool(failed) and now - min(failed) > self.options.limits.farewell

    def _stop(self, part: Part, why: Outcome) -> None:
        if part.stopped is None:
            part.stopped, part.stopped_at = why, time.monotonic()
            part.process.ask_to_end(self.options.limits.grace)

    def _finish(self, part: Part) -> None:
        """A worker is dead: read what is left in its pipes and keep how it ended."""
        for _ in range(1000):
            self._read(part)
            if not (rest := part.process.read_output()):
                break
            part.log.write(rest)
            part.heard.hear(rest)
        for end in {part.process.events, part.process.output} & self.selector.get_map().keys():
            self.selector.unregister(end)
        code, opening = part.process.close(), part.opening
        record = part.end(code)
        crumb = protocol.Breadcrumb.unpack(part.crumb.read())
        part.close()
        if part.log.problem is not None:
            self.progress.note(f"the log of the {part.label} part is not whole: {part.log.problem}")
        del self.running[part.label]
        if part.rank is not None:
            self.rank_ends.append(RankEnd(part.rank, record, crumb, part.last_seen, part.opening))
            if len(self.rank_ends) < self.check.ranks:
                return
            self.rank_ends.sort(key=lambda end: end.rank)
            record = speaker(settle(self.rank_ends))
            assert self.launched is not None
            self.launched.end()
            opening = any(end.opening for end in self.rank_ends)
        if opening and self.without is None and self.interrupts.name is None:
            self.without = without_it(self.check.device, record.outcome)
            if self.without is not None:
                self.progress.note(f"{self.without.why}; going on with the emulated device instead")
                self._start_eager()
                return
        self._end(part.name, record)

    def _end(self, name: str, record: Record) -> None:
        self.over[name] = record
        self.progress.part_ended(name, record.status, record.reason)


def _circumstances(options: Options, held: Held) -> Circumstances:
    environment = Environment(
        python=platform.python_version(), torch=_version("torch"), torch_neuronx=_version("torch-neuronx"),
        torch_mlir=_version("torch-mlir"), neuronx_cc=_version("neuronx-cc"), platform=platform.platform(),
    )  # fmt: skip
    now, plan = dt.datetime.now(dt.UTC), options.plan
    return Circumstances(now=now, environment=environment, command=options.command, held=held, plan=plan)


def _version(distribution: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None


def _scrubbed(report: Report) -> Report:
    from smoketest.render.scrub import scrub_report

    return scrub_report(report, **names_here())
