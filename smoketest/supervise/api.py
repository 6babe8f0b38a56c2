"""A check run from Python: `smoketest.run`."""

from __future__ import annotations

from pathlib import Path

from smoketest.config import Check
from smoketest.config.load import load_check
from smoketest.findings import Report
from smoketest.findings.sites import project_root
from smoketest.supervise.files import scratch_folder
from smoketest.supervise.run import Options, run_check

__all__ = ["run"]


def run(check: Check | Path | str, *, output: Path | str | None, compile: bool) -> Report:
    """See `smoketest.run`."""
    if isinstance(check, Check):
        loaded, folder = check, Path.cwd()
    else:
        path = Path(check)
        loaded, folder = load_check(path), (Path.cwd() / path).parent
    with scratch_folder(None if output is None else Path(output)) as where:
        keep = output is not None
        return run_check(
            loaded, Options(output=where, root=project_root(folder, loaded.files), compile=compile, keep=keep)
        )
