"""``python -m smoketest.worker REQUEST.json``: run one part of a check and tell the supervisor."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from smoketest.config.models import Check
from smoketest.devices.base import Kind
from smoketest.devices.installed import find_problem, is_there
from smoketest.devices.settings import apply_settings
from smoketest.errors import DoesNotFit, SmoketestError, TorchUnusable, UserCodeError
from smoketest.findings import SitePolicy
from smoketest.findings.report import NotChecked
from smoketest.process import adopt_orphans, end_with_parent, kill_strays
from smoketest.supervise.protocol import Failed, Hello, Note, PhaseStarted, Request, request_of
from smoketest.uncollected import uncollected
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.channel import Channel
from smoketest.worker.early import import_early
from smoketest.worker.environment import read_environment

if TYPE_CHECKING:
    from smoketest.workload.ranks import Ranks

__all__ = ["main"]

_STRICT = "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS"  # `witness.strict` tells what it does; it imports torch


def main(arguments: list[str]) -> int:
    """Run the request in the file named by the only argument; the exit code is 0 however the part ends."""
    end_with_parent()
    adopt_orphans()
    own = os.getpid()
    request = _request(Path(arguments[0]))
    if request.printed is not None:
        _print_to(request.printed)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # end at once and without a traceback: the supervisor reports
    faulthandler.enable(all_threads=False)  # the heartbeat's thread has nothing to do with a crash
    channel = Channel(request.events)
    channel.emit(Hello(part=request.part, pid=os.getpid()))
    channel.start_heartbeat()
    try:
        _run(request, channel)
    except SmoketestError as error:
        channel.emit(_expected(error, request.debug))
    except BaseException as error:  # whatever it is, it is told
        channel.emit(_unexpected(error, request.debug))
    if os.getpid() == own:
        kill_strays()
    gc.freeze()  # else the interpreter's end looks through all of PyTorch for cycles, which takes a second
    return 0


def _request(path: Path) -> Request:
    """The request in a file, or of this rank in the folder that all ranks are given."""
    file = request_of(path, int(os.environ["RANK"])) if path.is_dir() else path
    return Request.model_validate_json(file.read_bytes())


def _print_to(pipe: Path) -> None:
    """Have all that this process prints go into a named pipe."""
    writing = os.open(pipe, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(writing, number)
    os.close(writing)


def _run(request: Request, channel: Channel) -> None:
    environment = read_environment(os.environ)
    if request.part == "strict":
        os.environ[_STRICT] = "1"  # the backend reads it once, when it is imported, and again at a failure
    kind = "cpu" if request.part == "reference" else _settle(request, channel)
    if kind == "neuron":
        environment = environment.model_copy(update={"set_by_run": apply_settings(os.environ)})
    else:
        # torch-neuronx, where it is installed, loads itself when torch is imported, and takes the only spare backend.
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    check = Check.model_validate(request.check)
    _load_torch()
    if kind != "neuron":
        import_early(request.imports)
    from smoketest.devices.base import open_device
    from smoketest.worker.job import Job

    ranks: list[Ranks] = []
    breadcrumb = BreadcrumbFile(request.breadcrumb)
    device = open_device(
        kind,
        check.profile,
        continue_past_errors=not request.stop_at_error,
        strict_limits=request.strict_limits,
        before_use=_joining(check, ranks, breadcrumb) if request.rank is not None else None,
    )
    job = Job(
        check=check,
        device=device,
        policy=SitePolicy(request.root),
        environment=environment,
        emit=channel.emit,
        breadcrumb=breadcrumb,
        output=request.output,
        state_file=request.state_file,
        record_file=request.record_file,
        ranks=ranks[0] if ranks else None,
        losses=request.losses,
    )
    if request.script is not None:
        from smoketest.worker import script

        (script.run if request.part == "eager" else script.run_probe)(job, request.script)
    elif request.part == "eager":
        from smoketest.worker import eager

        eager.run(job)
    elif request.part == "strict":
        from smoketest.worker import strict

        strict.run(job)
    elif request.part == "reference":
        from smoketest.worker import reference

        reference.run(job)
    else:
        from smoketest.worker.compile import run as run_compile

        run_compile(job)


def _load_torch() -> None:
    """Import PyTorch, which may be broken, or too large for a limit on memory.

    Raises:
        TorchUnusable: it cannot be imported.
    """
    try:
        with uncollected():
            import torch  # noqa: F401
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise TorchUnusable(
            f"PyTorch cannot be imported: {type(error).__name__}{': ' if said else ''}{_encodable(said)}",
            hint="see what `python -c 'import torch'` says here; with a limit on memory (`ulimit -v`), raise it",
        ) from error


def _joining(check: Check, ranks: list[Ranks], breadcrumb: BreadcrumbFile) -> Callable[[], None]:
    """What joins the process group, and leaves this rank in `ranks`."""

    def join_group() -> None:
        from smoketest.workload.ranks import join

        breadcrumb.enter(None, None, None, "joining the process group")
        ranks.append(join(check))
        breadcrumb.enter(None, None, None, "opening the device")

    return join_group


def _settle(request: Request, channel: Channel) -> Kind:
    """``auto`` is the real device where torch-neuronx is one this package drives, else the emulated one.

    What comes of using the real one, the supervisor sees: in the phase announced here it may hang or die. With ``auto``
    it then starts another worker, for the emulated one, which a process that loaded torch-neuronx cannot have.

    Raises:
        DeviceUnavailable: the real device is asked for and cannot be used.
    """
    asked = request.device
    if asked == "emulated" or asked == "cpu":
        return asked
    problem = find_problem()
    if problem is None:
        channel.emit(PhaseStarted(name="device"))
        return "neuron"
    if asked == "neuron":
        raise problem
    if is_there():
        channel.emit(Note(not_checked=NotChecked(what="the real device", why=problem.message)))
    return "emulated"


def _expected(error: SmoketestError, debug: bool) -> Failed:
    message = f"{error.place}: {error.message}" if error.place else error.message
    return Failed(
        exit_code=error.exit_code,
        message=_encodable(message),
        hint=_encodable(error.hint) if error.hint is not None else None,
        traceback=_encodable(error.traceback) if isinstance(error, UserCodeError) else "",
        debug=_encodable("".join(traceback.format_exception(error))) if debug else "",
        is_advised=isinstance(error, DoesNotFit | TorchUnusable),
    )


def _unexpected(error: BaseException, debug: bool) -> Failed:
    text = " ".join(traceback.format_exception_only(error)[-1].split())[:600]
    return Failed(
        exit_code=5,
        message=f"internal error: {_encodable(text)}",
        hint=None if debug else "run again with --debug for the traceback, and report it",
        debug=_encodable("".join(traceback.format_exception(error))) if debug else "",
    )


def _encodable(text: str) -> str:
    """With each lone surrogate as an escape: texts of the user's code can hold some, JSON cannot."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
