"""``smoketest script``: an unmodified training script, watched for some optimizer steps."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoketest.cli.choices import completing, metavar, one_of
from smoketest.cli.options import Debug, Output, PrintedForm, Quiet
from smoketest.cli.run import DeviceName, details, progress_for
from smoketest.cli.show import Form, printed

if TYPE_CHECKING:
    from smoketest.config import Check
    from smoketest.findings import Report
    from smoketest.supervise.handover import Rank

__all__ = ["script"]


def script(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A training script, run as `python SCRIPT ARGS`.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Its own arguments.")] = None,
    steps: Annotated[
        int, typer.Option("--steps", min=1, help="Timed optimizer steps, after the warm-up and before the traced one.")
    ] = 3,
    warmup: Annotated[int, typer.Option("--warmup", min=1, help="Optimizer steps before the timed ones.")] = 1,
    device: Annotated[
        DeviceName,
        typer.Option(
            "--device",
            parser=one_of(DeviceName),
            metavar=metavar(DeviceName),
            autocompletion=completing(DeviceName),
            help="Device to run on.",
        ),
    ] = DeviceName.auto,
    map_cuda: Annotated[
        bool, typer.Option("--map-cuda", help="Give the script the device where it asks for CUDA.")
    ] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also take the compile probe through the modules that it trains.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Of the report's folder; the script's by default.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="For the script, and for the probe.")
    ] = 1800,
    output: Output = "reports",
    form: PrintedForm = Form.terminal,
    debug: Debug = False,
    quiet: Quiet = False,
) -> None:
    """Run a training script as it is, and stop it after some optimizer steps.

    The report is that of `smoketest run`. What the script does before the steps, such as reading data, is done too;
    it is stopped by an exception, so that its `finally` blocks run.
    """
    if form is not Form.terminal and output != "-":
        raise typer.BadParameter(f"{form.value} goes to stdout and needs --output -", param_hint="--format")
    _refuse_what_is_no_file(path)
    given = tuple(arguments or ())
    command = shlex.join(
        [
            "smoketest", "script", str(path), "--steps", str(steps),
            *(["--warmup", str(warmup)] if warmup != 1 else []),
            *(["--device", device.value] if device is not DeviceName.auto else []),
            *(["--map-cuda"] if map_cuda else []), *(["--probe"] if probe else []), *(["--", *given] if given else []),
        ]
    )  # fmt: skip
    check = _check(name or _name_of(path), device, steps, warmup, timeout)
    folder = None if output == "-" else Path(output)
    rank = _rank(folder)
    own = folder
    if rank is not None and folder is not None:
        own = _start_as(rank, folder, check.name)
    report = _run(check, path, given, own, map_cuda=map_cuda, probe=probe, command=command,
                  quiet=quiet or (rank is not None and rank.number > 0),
                  debug=debug or bool(context.find_root().params.get("debug")))  # fmt: skip
    if rank is not None and folder is not None:
        report = _of_all_ranks(rank, folder, report)
    _show(report, folder, form)
    raise typer.Exit(report.exit_code)


def _rank(folder: Path | None) -> Rank | None:
    """Which rank this is, where torchrun or the like started several of this command."""
    from smoketest.supervise.handover import launched_as

    rank = launched_as(os.environ, os.getppid())
    if rank is not None and folder is None:
        raise typer.BadParameter("ranks hand their reports over in a folder: name one", param_hint="--output")
    return rank


def _start_as(rank: Rank, folder: Path, name: str) -> Path:
    """Where this rank writes; what an earlier launch left is out of the way."""
    from smoketest.supervise.files import prepare_folder
    from smoketest.supervise.handover import take_back

    if rank.number == 0:
        prepare_folder(folder / name)
    take_back(rank, folder, name)
    return rank.output(folder)


def _of_all_ranks(rank: Rank, folder: Path, report: Report) -> Report:
    """One report of all ranks. Those but the first hand theirs over, and end well whatever it says.

    A launcher ends all ranks when one of them ends with an error: rank 0 would not come to its report.
    """
    from smoketest.cli.output import say
    from smoketest.supervise.handover import gather, hand_over
    from smoketest.supervise.written import write_report

    if rank.number > 0:
        hand_over(rank, folder, report.name)
        raise typer.Exit(0)
    whole = gather(rank, folder, report.name, report)
    write_report(whole, folder / report.name)
    say(f"ranks: {rank.size}, each one's own report is below {folder / 'ranks'}")
    return whole


def _refuse_what_is_no_file(path: Path) -> None:
    from smoketest.errors import ConfigError, Place

    if not path.is_file():
        raise ConfigError(
            "there is no such script" if not path.exists() else "is no file", place=Place(str(path)),
            hint="arguments of the script's own go behind `--`",
        )  # fmt: skip


def _name_of(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._")[:100] or "script"


def _check(name: str, device: DeviceName, steps: int, warmup: int, timeout: float) -> Check:
    """What the parts of a run go by. A script's state is not kept, so what needs a step again is off."""
    from smoketest.config import Check
    from smoketest.errors import ConfigError

    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) is None:
        raise ConfigError(f"--name: expected letters, digits, '.', '_' and '-', found {name!r}")
    return Check.model_validate(
        {
            "name": name,
            "device": device.value,
            "training": {"steps": steps, "warmup": warmup, "timeout": timeout},
            "compile": {"timeout": timeout},
            "parity": {"enabled": False},
            "witnesses": {"copies": False, "strict": False},
        }
    )


def _run(
    check: Check, path: Path, arguments: tuple[str, ...], folder: Path | None, *,
    map_cuda: bool, probe: bool, quiet: bool, command: str, debug: bool,
) -> Report:  # fmt: skip
    from smoketest.cli.output import say
    from smoketest.findings.sites import project_root
    from smoketest.supervise.files import scratch_folder
    from smoketest.supervise.protocol import ScriptRun
    from smoketest.supervise.run import Options, run_check
    from smoketest.supervise.signals import INTERRUPTED, Interrupts

    whole = Path.cwd() / path
    with scratch_folder(folder) as output:
        options = Options(
            output=output,
            root=project_root(whole.parent, [whole]),
            compile=probe,
            debug=debug,
            command=command,
            script=ScriptRun(path=whole, arguments=arguments, map_cuda=map_cuda),
        )
        try:
            with Interrupts() as interrupts:
                return run_check(check, options, progress_for(quiet), interrupts)
        except KeyboardInterrupt:  # the second one
            say("interrupted: stopped at once, without a report")
            raise typer.Exit(INTERRUPTED) from None


def _show(report: Report, folder: Path | None, form: Form) -> None:
    from smoketest.cli.output import emit, say, use_color, width
    from smoketest.render import render

    if folder is None:
        emit(printed(report, form))
    else:
        say(render(report, "terminal", width=width(sys.stderr), color=use_color(sys.stderr)))
        say(f"report: {folder / report.name / 'report.md'}")
    for text in details(report):
        say(text)
