"""First contact with a real device: ``python -m smoketest.first_contact`` on a Trn2 or Trn3 machine.

Nobody had run this package on a Trainium when it was written. This runs all that would tell whether it works there
(doctor, the device's own account of itself, the shipped checks predicted and measured, the suite in tests/neuron) and
packs what comes out. No step ends the others: each has a process and a time limit of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from smoketest.doctor.facts import NEURON_LS, NEURON_LS_ARGUMENTS
from smoketest.doctor.limited import Ended, Ending, NotStarted, run
from smoketest.doctor.words import ending_words
from smoketest.render.scrub import scrub
from smoketest.supervise.names import Names, names_here

__all__ = ["Step", "main", "pack", "steps"]

_PYTHON = sys.executable
_SMOKETEST = (_PYTHON, "-m", "smoketest")
_KEPT = (".json", ".jsonl", ".md", ".txt", ".log")
_MOST_BYTES = 8 * 2**20
_INSTANCE_ID = re.compile(r"\bi-[0-9a-f]{8,17}\b")
_OF_INTEREST = r"torch|neuron|nki|jax|numpy|transformers|smoketest|triton"
_PACKAGES = (
    "import importlib.metadata as m, re; print(*sorted({f'{d.name}=={d.version}' for d in m.distributions()"
    f" if re.search('{_OF_INTEREST}', d.name or '')}}), sep='\\n')"
)


@dataclass(frozen=True)
class Step:
    """One thing that is run.

    Attributes:
        name: of the file that gets what it prints.
        command: program and arguments.
        seconds: it may take.
    """

    name: str
    command: tuple[str, ...]
    seconds: float


def steps(folder: Path, checks: Sequence[Path], suite: Path | None) -> Iterable[Step]:
    """What is run, in order: one after the other, as a core serves one process.

    Args:
        folder: that gets what is written.
        checks: to be predicted and measured.
        suite: the folder tests/neuron; None where it is not there.
    """
    files = tuple(str(check) for check in checks)
    measured, predicted, profile = (str(folder / name) for name in ("measured", "predicted", "profile.json"))
    yield Step("packages", (_PYTHON, "-c", _PACKAGES), 60)
    yield Step("doctor", (*_SMOKETEST, "doctor"), 90)
    yield Step("neuron-ls", (shutil.which(NEURON_LS) or NEURON_LS, *NEURON_LS_ARGUMENTS), 60)
    yield Step("collect-env", (_PYTHON, "-m", "torch_neuronx.collect_env"), 300)
    yield Step("names", (_PYTHON, "-m", "smoketest.devices.neuron_compat"), 300)
    yield Step("export", (*_SMOKETEST, "operators", "export", profile), 600)
    yield Step("run-measured", (*_SMOKETEST, "run", *files, "--device", "neuron", "--output", measured), 4 * 3600)
    yield Step("run-predicted", (*_SMOKETEST, "run", *files, "--device", "emulated", "--output", predicted), 3600)
    for check in checks:
        both = (str(folder / kind / check.stem) for kind in ("predicted", "measured"))
        yield Step(f"compare-{check.stem}", (*_SMOKETEST, "compare", *both, "--format", "markdown"), 60)
    if suite is not None:
        yield Step("suite", (_PYTHON, "-m", "pytest", str(suite), "-m", "neuron", "-rA", "--timeout", "3600"), 2 * 3600)


def pack(folder: Path, file: Path, names: Names) -> int:
    """Put the texts below a folder into an archive, names of this person and machine taken out; how many there are.

    Args:
        folder: what was written.
        file: the archive, ``.tar.gz``.
        names: arguments of `scrub`.
    """
    found = [path for path in sorted(folder.rglob("*")) if path.suffix in _KEPT and path.is_file()]
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(file, "w:gz") as archive:
        for number, path in enumerate(found):
            text = path.read_bytes()[-_MOST_BYTES:].decode("utf-8", "replace")
            clean = Path(scratch) / str(number)
            clean.write_text(_INSTANCE_ID.sub("<instance>", scrub(text, **names)), encoding="utf-8")
            entry = archive.gettarinfo(clean, str(Path("first-contact") / path.relative_to(folder)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            with clean.open("rb") as content:
                archive.addfile(entry, content)
    return len(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all steps and pack what comes out; 0 where the device was usable, 3 where it was not."""
    parser = argparse.ArgumentParser(prog="python -m smoketest.first_contact", description=__doc__)
    parser.add_argument("checks", nargs="*", type=Path, help="check files; default: those in configs/")
    parser.add_argument("--output", type=Path, default=Path("first-contact.tar.gz"), help="the archive to write")
    parser.add_argument("--no-suite", action="store_true", help="leave out the tests in tests/neuron")
    given = parser.parse_args(arguments)
    checks = given.checks or sorted(Path("configs").glob("*.yaml"))
    suite = Path("tests/neuron")
    with tempfile.TemporaryDirectory(prefix="first-contact-") as scratch:
        folder = Path(scratch)
        wanted = list(steps(folder, checks, suite if suite.is_dir() and not given.no_suite else None))
        endings = {step.name: _run(step, folder, f"{number}/{len(wanted)}") for number, step in enumerate(wanted, 1)}
        account = {name: ending_words(ending) for name, ending in endings.items()}
        (folder / "steps.json").write_text(json.dumps(account, indent=2) + "\n", encoding="utf-8")
        count = pack(folder, given.output, names_here())
    _say(f"{given.output}: {count} files, names of this person and machine taken out; look through it, then send it")
    doctor = endings["doctor"]
    return 0 if isinstance(doctor, Ended) and doctor.code == 0 else 3


def _run(step: Step, folder: Path, number: str) -> Ending:
    """Run a step and leave what it printed."""
    _say(f"{number} {step.name}")
    started = time.monotonic()
    ending = run(step.command, os.environ, step.seconds)
    text = ending.reason if isinstance(ending, NotStarted) else f"{ending.out}\n{ending.err}"
    (folder / f"{step.name}.txt").write_text(text, encoding="utf-8", errors="backslashreplace")
    _say(f"     {ending_words(ending)}, {time.monotonic() - started:.0f} s")
    return ending


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
