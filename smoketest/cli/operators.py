"""``smoketest operators``: what operator profiles say, how two differ, and one of the backend that is here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from smoketest.operators.profile import OperatorProfile

__all__ = ["app"]

app = typer.Typer(
    help="Operator profiles: which ops a release of torch-neuronx runs on the device.", no_args_is_help=True
)

_PACKAGED = "packaged"
_SECONDS = 300
"""For a backend to load and its device to answer; nothing is compiled for it."""
_File = Annotated[str, typer.Argument(metavar="PROFILE", help="A profile file, or 'packaged'.")]


def _load(name: str) -> OperatorProfile:
    from smoketest.operators.profile import load_profile

    return load_profile(None if name == _PACKAGED else Path(name))


@app.command("list")
def list_(
    match: Annotated[str, typer.Argument(metavar="TEXT", help="Only overloads whose name contains this.")] = "",
    profile: Annotated[str, typer.Option("--profile", metavar="PROFILE", help="A profile file.")] = _PACKAGED,
    cpu: Annotated[bool, typer.Option("--cpu", help="Those without a kernel instead: they run on the CPU.")] = False,
) -> None:
    """List the overloads with a kernel on the device, and how each is registered, one a line."""
    from smoketest.cli.output import emit, printable, say

    read = _load(profile)
    say(printable(f"{read.name} ({read.grade}, {read.date}, torch {read.torch_version}): {read.note}"))
    if cpu:
        reached = {op for op, out in read.reaches.items() if out not in read.registered_by}
        lines = [op for op in sorted(read.unimplemented | reached) if match in op]
    else:
        lines = [f"{op} {how}" for op, how in sorted(read.registered_by.items()) if match in op]
    if lines:
        emit(printable("\n".join(lines)))
    elif cpu:
        say(printable(f"no match for {match!r} among the ops known to have no kernel"))
    else:
        say(
            printable(
                f"no match for {match!r}: not in this list, so by this profile it runs on the CPU, or PyTorch computes"
                f" it with other ops (smoketest explain {match})"
            )
        )


@app.command("diff")
def diff(old: _File, new: _File) -> None:
    """Say which kernels one profile has and the other has not: '+' and '-' before the name. Exits with 1 if any."""
    from smoketest.cli.output import emit, printable

    before, after = _load(old).native, _load(new).native
    lines = [f"{'+' if op in after else '-'} {op}" for op in sorted(before ^ after)]
    if lines:
        emit(printable("\n".join(lines)))
        raise typer.Exit(1)


@app.command("export")
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")],
    device: Annotated[
        Literal["neuron", "emulated"], typer.Option("--device", help="Whose kernels: those of torch-neuronx, or ours.")
    ] = "neuron",
    profile: Annotated[
        Path | None, typer.Option("--profile", metavar="PROFILE", help="Of the emulated device: its profile.")
    ] = None,
) -> None:
    """Write the profile of the backend that is registered here, to be used with 'profile:' in a check."""
    import subprocess
    import sys

    from smoketest.cli.output import printable, say
    from smoketest.errors import ConfigError

    if not file.absolute().parent.is_dir():
        raise ConfigError(f"there is no folder {file.absolute().parent} to write {file.name} to")
    # In a process of its own: it imports torch and the backend, which may take any process down.
    command = [
        sys.executable,
        "-m",
        "smoketest.devices.export",
        device,
        str(file),
        *([str(profile)] if profile else []),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        say(f"error: the backend did not answer within {_SECONDS} s\n  hint: smoketest doctor")
        raise typer.Exit(3) from None
    if done.returncode != 0:
        last = done.stderr.strip() or f"the process that asked the backend ended with {done.returncode}"
        say(printable(f"error: {last}"))
        raise typer.Exit(done.returncode if done.returncode in (2, 3) else 5)
    written = _load(str(file))
    say(printable(f"{len(written.native)} overloads with a kernel, written to {file}"))
