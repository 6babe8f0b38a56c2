"""``smoketest run``: checks carried out, one after another."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoketest.cli.choices import completing, metavar, one_of, price
from smoketest.cli.options import Debug, Output, PrintedForm, Quiet
from smoketest.cli.show import Form, printed

if TYPE_CHECKING:
    from smoketest.cli.ci import Ended
    from smoketest.config import Check
    from smoketest.config.overrides import Override
    from smoketest.findings import Report
    from smoketest.render.summary import Row
    from smoketest.supervise.progress import Progress
    from smoketest.supervise.signals import Interrupts

__all__ = ["DeviceName", "details", "progress_for", "run"]


class DeviceName(StrEnum):
    """Devices a check can run on."""

    auto = "auto"
    neuron = "neuron"
    emulated = "emulated"
    cpu = "cpu"


@dataclass(frozen=True)
class _Settings:
    """What was typed."""

    overrides: tuple[Override, ...]
    nproc: int | None
    compile: bool
    stop_at_error: bool
    strict_limits: bool
    plan_steps: int | None
    price_per_hour: float | None
    junit: Path | None
    baseline: Path | None
    update_baseline: bool
    strict_baseline: bool
    debug: bool
    quiet: bool
    output: Path | None  # None: stdout
    form: Form


def run(
    context: typer.Context,
    configs: Annotated[
        list[Path], typer.Argument(metavar="CONFIG|DIR...", help="Checks (YAML), or folders of checks.")
    ],
    device: Annotated[
        DeviceName | None,
        typer.Option(
            "--device",
            parser=one_of(DeviceName),
            metavar=metavar(DeviceName),
            autocompletion=completing(DeviceName),
            help="Device to run on, instead of the check's.",
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Timed steps, instead of the check's.")] = None,
    nproc: Annotated[
        int | None,
        typer.Option(
            "--nproc",
            min=1,
            max=64,
            metavar="N",
            help="Processes that make the step together, started by torchrun (`parallel` in the check; else ddp).",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a value, such as training.seed=1; repeatable."),
    ] = None,
    no_compile: Annotated[bool, typer.Option("--no-compile", help="Leave the compile probe out.")] = False,
    output: Output = "reports",
    form: PrintedForm = Form.terminal,
    stop_at_error: Annotated[
        bool,
        typer.Option(
            "--stop-at-error",
            help="Stop at an op with a kernel nowhere too, as the device does. (What it refuses for another"
            " reason, such as a CPU tensor among its own or a limit, always ends the eager part.)",
        ),
    ] = False,
    strict_limits: Annotated[
        bool,
        typer.Option(
            "--strict-limits",
            help="Refuse what only a pre-release is known to refuse too: the eager part ends at the first such op.",
        ),
    ] = False,
    plan_steps: Annotated[
        int | None,
        typer.Option(
            "--plan-steps", min=1, max=10**15, help="Optimizer steps of the job to be booked: a device run tells hours."
        ),
    ] = None,
    price_per_hour: Annotated[
        float | None,
        typer.Option(
            "--price-per-hour", parser=price, metavar="PRICE", help="Of the machine, in any currency: also tells money."
        ),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", help="Gets JUnit XML: a case for each part and class of findings."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="FILE|DIR",
            help="Accept what is in it and fail for what is new or worse (of a folder: NAME.json).",
        ),
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Write the baseline: accept what is found now.")
    ] = False,
    strict_baseline: Annotated[
        bool, typer.Option("--strict-baseline", help="Fail too where the baseline has what nothing needs any more.")
    ] = False,
    debug: Debug = False,
    quiet: Quiet = False,
) -> None:
    """Run checks: a few training steps on a device, and the compile probe.

    A report on what ran on the CPU instead, and on what fails lowering, goes to DIR/NAME for each check; a summary of
    several checks to DIR.
    """
    from smoketest.cli.ci import cannot_write, tell_github, write_junit
    from smoketest.cli.output import say
    from smoketest.config.load import find_checks
    from smoketest.config.overrides import Override
    from smoketest.supervise.assemble import worst
    from smoketest.supervise.signals import INTERRUPTED, Interrupts

    if form is not Form.terminal and output != "-":
        raise typer.BadParameter(
            f"{form.value} goes to stdout and needs --output -; report.json, .md and .html are in {output}/NAME anyhow",
            param_hint="--format",
        )
    settings = _Settings(
        overrides=(
            *(Override(text) for text in overrides or ()),
            *((Override(f"device={device.value}", f"--device {device.value}"),) if device else ()),
            *((Override(f"training.steps={steps}", f"--steps {steps}"),) if steps else ()),
            *((Override(f"parallel.nproc={nproc}", f"--nproc {nproc}"),) if nproc else ()),
        ),
        nproc=nproc,
        compile=not no_compile,
        stop_at_error=stop_at_error,
        strict_limits=strict_limits,
        plan_steps=plan_steps,
        price_per_hour=price_per_hour,
        junit=junit,
        baseline=baseline,
        update_baseline=update_baseline,
        strict_baseline=strict_baseline,
        debug=debug or bool(context.find_root().params.get("debug")),
        quiet=quiet,
        output=None if output == "-" else Path(output),
        form=form,
    )
    paths = find_checks(configs)
    if baseline is not None and len(paths) > 1 and not _is_folder(baseline):
        raise typer.BadParameter(
            "several checks have a baseline each: name the folder that they are in", param_hint="--baseline"
        )
    if junit is not None and (problem := cannot_write(junit)) is not None:
        raise typer.BadParameter(f"{junit} cannot be written: {problem}", param_hint="--junit")
    try:
        with Interrupts() as interrupts:
            ended = list(_run_all(paths, settings, interrupts))
    except KeyboardInterrupt:  # the second one
        say("interrupted: stopped at once, without a report")
        raise typer.Exit(INTERRUPTED) from None
    rows = [_row(each) for each in ended]
    code = INTERRUPTED if interrupts.name is not None else worst(row.exit_code for row in rows)
    if settings.junit is not None:
        code = worst([code, write_junit(ended, settings.junit)])
    tell_github(ended, code, stdout_is_free=settings.output is not None)
    if len(paths) > 1:
        say(_table(rows))
        if settings.output is not None:
            code = worst([code, _write_summary(rows, code, settings.output)])
    raise typer.Exit(code)


def _run_all(paths: Sequence[Path], settings: _Settings, interrupts: Interrupts) -> Iterator[Ended]:
    """Run each check; one that is wrong gives its message, and the others run all the same."""
    from smoketest.cli.ci import Ended
    from smoketest.cli.output import error_text, printable, say
    from smoketest.config.load import load_check
    from smoketest.errors import ConfigError, Place, SmoketestError
    from smoketest.render.summary import Row

    taken: dict[str, Path] = {}
    for path in paths:
        if interrupts.name is not None:
            if len(paths) == 1:  # of several the table tells
                say("interrupted")
            yield Ended(Row.without_report(printable(str(path)), 130, "not run: interrupted"))
            continue
        try:
            check = _with_baseline(load_check(path, settings.overrides), settings.baseline)
            if check.name in taken:
                raise ConfigError(
                    f"the name {check.name!r} is taken by {taken[check.name]}; each check has a folder of its own",
                    place=Place(str(path)), hint="give it another name",
                )  # fmt: skip
            taken[check.name] = path
            if settings.nproc and _chose_no_kind(check):
                say(f"{check.name}: the check has no `parallel`, so its {settings.nproc} ranks run under ddp")
            report = _run_one(check, path, settings, interrupts)
        except SmoketestError as error:
            say(error_text(error))
            yield Ended(Row.without_report(printable(str(path)), error.exit_code, printable(error.message)))
        else:
            yield Ended(report, _root(check, path))


def _chose_no_kind(check: Check) -> bool:
    """Whether several ranks run, and nobody said how."""
    return check.ranks > 1 and check.parallel is not None and "kind" not in check.parallel.model_fields_set


def _root(check: Check, path: Path) -> Path:
    """The folder that file names in the check's report are relative to."""
    from smoketest.findings.sites import project_root

    return project_root((Path.cwd() / path).parent, check.files)


def _row(ended: Ended) -> Row:
    from smoketest.render.summary import Row, row

    return ended.result if isinstance(ended.result, Row) else row(ended.result)


def _run_one(check: Check, path: Path, settings: _Settings, interrupts: Interrupts) -> Report:
    """Run one check and print its report."""
    from smoketest.cli.output import emit, say, use_color, width
    from smoketest.findings.cost import Plan
    from smoketest.render import render
    from smoketest.supervise.files import scratch_folder
    from smoketest.supervise.run import Options, run_check

    with scratch_folder(settings.output) as output:
        options = Options(
            output=output,
            root=_root(check, path),
            compile=settings.compile,
            stop_at_error=settings.stop_at_error,
            strict_limits=settings.strict_limits,
            plan=Plan(settings.plan_steps, settings.price_per_hour),
            update_baseline=settings.update_baseline,
            strict_baseline=settings.strict_baseline,
            debug=settings.debug,
            command=_command(path, settings),
        )
        report = run_check(check, options, progress_for(settings.quiet), interrupts)
    if settings.output is None:
        emit(printed(report, settings.form))
    else:
        say(render(report, "terminal", width=width(sys.stderr), color=use_color(sys.stderr)))
        say(f"report: {settings.output / check.name / 'report.md'}")
    for text in details(report):
        say(text)
    for text in _about_the_baseline(report, settings):
        say(text)
    return report


def _is_folder(path: Path) -> bool:
    """Whether it is a folder, or meant to be one: the end of a path is lost in a `Path`, but a file has a suffix."""
    return path.is_dir() or (not path.exists() and path.suffix == "")


def _with_baseline(check: Check, baseline: Path | None) -> Check:
    """The check with the baseline that was typed."""
    if baseline is None:
        return check
    path = baseline / f"{check.name}.json" if _is_folder(baseline) else baseline
    return check.model_copy(update={"gate": check.gate.model_copy(update={"baseline": Path.cwd() / path})})


def _about_the_baseline(report: Report, settings: _Settings) -> Iterator[str]:
    """What to type so that the baseline says what is true now; that one written anew does, the progress has told."""
    if settings.update_baseline and report.status == "error":
        yield "baseline: not written, since the check came to no end"
    elif report.baseline.fixed and report.command is not None:
        count = len(report.baseline.fixed)
        entries = "1 entry of the baseline is" if count == 1 else f"{count:,} entries of the baseline are"
        again = report.command.replace(" --strict-baseline", "")
        yield f"{entries} not needed any more; to take {'it' if count == 1 else 'them'} out: {again} --update-baseline"


def details(report: Report) -> Iterator[str]:
    """What no line of the report can hold: hints, the user's own frames, a dead worker's last words."""
    from smoketest.cli.output import printable

    for part in (report.eager, report.compile):
        if part.status in ("failed", "crashed") and part.reason and "\n" in part.reason:
            yield printable(f"\nerror: {part.reason}")


def _command(path: Path, settings: _Settings) -> str:
    """What to type to run this check again."""
    parts = ["smoketest", "run", str(path)]
    for override in settings.overrides:
        parts += override.typed.split() if override.typed is not None else ["--set", override.text]
    parts += ["--no-compile"] if not settings.compile else []
    parts += ["--stop-at-error"] if settings.stop_at_error else []
    parts += ["--strict-limits"] if settings.strict_limits else []
    parts += ["--plan-steps", str(settings.plan_steps)] if settings.plan_steps is not None else []
    parts += ["--price-per-hour", f"{settings.price_per_hour:g}"] if settings.price_per_hour is not None else []
    parts += ["--baseline", str(settings.baseline)] if settings.baseline is not None else []
    parts += ["--strict-baseline"] if settings.strict_baseline else []
    return shlex.join(parts)


def progress_for(quiet: bool) -> Progress:
    """What shows how a run goes, on this terminal."""
    from smoketest.cli.output import printable, say, use_color
    from smoketest.supervise.progress import LineProgress, NoProgress

    if quiet:
        return NoProgress()
    if not sys.stderr.isatty():
        return LineProgress(lambda line: say(printable(line)))
    from rich.console import Console

    from smoketest.supervise.live import LiveProgress

    return LiveProgress(Console(stderr=True, no_color=not use_color(sys.stderr)))


def _write_summary(rows: Sequence[Row], code: int, folder: Path) -> int:
    """Write summary.json, .md and .html; 0, or the exit code where they cannot be written."""
    import datetime as dt
    from dataclasses import replace

    from smoketest.cli.output import say
    from smoketest.render.scrub import scrub
    from smoketest.render.summary import Summary, render
    from smoketest.supervise.files import write_atomically
    from smoketest.supervise.names import names_here

    names = names_here()
    clean = [replace(row, name=scrub(row.name, **names), headline=scrub(row.headline, **names)) for row in rows]
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    summary = Summary(created=now, exit_code=code, rows=tuple(clean))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "summary.json", render(summary, "json"))
        write_atomically(folder / "summary.md", render(summary, "markdown"))
        write_atomically(folder / "summary.html", render(summary, "html"))
    except OSError as error:
        say(f"error: the summary cannot be written to {folder}: {error.strerror}")
        return 2
    say(f"summary: {folder / 'summary.md'}")
    return 0


def _table(rows: Sequence[Row]) -> str:
    from smoketest.cli.output import use_color, width
    from smoketest.render.summary import terminal

    return terminal(rows, width=width(sys.stderr), color=use_color(sys.stderr))
