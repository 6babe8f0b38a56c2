"""A command is started in odd surroundings: it does its work, or says in one message why it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.harness import ROOT, Stage, long

ODD = {
    "no home": {"HOME": None, "USER": None, "LOGNAME": None},
    "a home that is not there": {"HOME": "/nonexistent/home"},
    "a home that is a file": {"HOME": "/etc/passwd"},
    "a locale of ASCII": {"LC_ALL": "C", "LANG": None},
    "a locale of ASCII, and Python takes it at its word": {
        "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
    },
    "a locale that is not there": {"LC_ALL": "xx_YY.nothing"},
    "a dumb terminal": {"TERM": "dumb"},
    "no terminal at all": {"TERM": None, "COLUMNS": None},
    "a terminal of no width": {"COLUMNS": "0", "LINES": "-1"},
    "no folder for temporary files": {"TMPDIR": "/nonexistent"},
    "an encoding that nobody has": {"PYTHONIOENCODING": "ascii:strict"},
    "no path": {"PATH": ""},
    "Python's hash seed": {"PYTHONHASHSEED": "random"},
    "warnings are errors": {"PYTHONWARNINGS": "error"},
    "a variable of no text": {"NEURON_CC_FLAGS": "\udcff\udcfe", "CAF\udce9": "\udce9"},
}  # fmt: skip
TOGETHER = {
    name: value
    for each in ("no home", "a locale of ASCII, and Python takes it at its word", "a dumb terminal",
                 "no folder for temporary files", "a variable of no text", "no path")
    for name, value in ODD[each].items()
}  # fmt: skip


def test_all_that_is_missing_at_once_and_stdin_is_closed(stage: Stage) -> None:
    stage.environment |= TOGETHER
    stage.check(at="call 1")
    ended = stage.run("run", "net.yaml", "--no-compile", before='exec "$@" <&-')
    assert ended.code == ended.report()["exit_code"] == 0, ended.err
    assert ended.errors == []


@long
@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("device", ["emulated", "cpu"])
def test_odd_surroundings_are_no_obstacle(stage: Stage, what: str, device: str) -> None:
    stage.environment |= ODD[what]
    stage.check("größe", device=device, parity=device == "emulated")
    (stage.work / "größe.yaml").rename(stage.work / "net.yaml")
    ended = stage.run("run", "net.yaml", "--no-compile", before='"$@"')
    assert ended.code == ended.report()["exit_code"] == 0, ended.err
    assert ended.errors == []


@pytest.mark.parametrize("what", [
    "a locale of ASCII, and Python takes it at its word",
    *(pytest.param(what, marks=long) for what in ("no home", "no terminal at all", "no folder for temporary files")),
])  # fmt: skip
def test_every_command_that_runs_nothing_works_in_odd_surroundings(stage: Stage, what: str) -> None:
    stage.environment |= ODD[what]
    stage.check()
    for command in (["validate", "net.yaml"], ["--help"], ["explain", "NST101"], ["schema"], ["run"]):
        ended = stage.run(*command)
        assert ended.code == (2 if command == ["run"] else 0), ended.err


def test_a_folder_that_is_gone_is_one_message(stage: Stage) -> None:
    stage.check()
    for command in (("validate", stage.work / "net.yaml"), ("run", stage.work / "net.yaml"), ("init", "net.py:Net")):
        ended = stage.run(*command, before='mkdir ../gone && cd ../gone && rmdir ../gone && exec "$@"')
        assert (ended.code, ended.errors) == (
            5,
            ["error: the current folder cannot be used: No such file or directory"],
        )
        assert len(ended.err.splitlines()) == 2, "the message and its hint"


def test_where_no_temporary_folder_can_be_made_what_goes_to_stdout_says_so(stage: Stage) -> None:
    stage.check()
    # Python tries the current folder last.
    nowhere = "import sys, tempfile; tempfile.tempdir = '/nonexistent'; from smoketest.cli import main; main()"
    command = [sys.executable, "-c", nowhere, "run", "net.yaml", "--no-compile", "--output", "-"]
    done = subprocess.run(
        command, cwd=stage.work, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=60
    )
    assert (done.returncode, done.stderr) == (
        2,
        "error: no folder for temporary files can be made: No such file or directory\n"
        "  hint: set TMPDIR to a folder that can be written\n",
    )


JUMPING = """\
import os, random, time
if os.environ.get("JUMPING"):
    real = time.time
    jump = random.Random("SMOKETEST_WORKER" in os.environ)
    time.time = lambda: real() + jump.choice((-10**9, -3600, 0, 3600, 10**9, 10**11))
    time.time_ns = lambda: int(time.time() * 10**9)
"""


@pytest.mark.parametrize("workers", [False, pytest.param(True, marks=long)])
def test_a_clock_that_jumps_changes_nothing(stage: Stage, workers: bool) -> None:
    """The machine's clock is set while a run goes on: what is timed and awaited goes by another clock."""
    stage.without_workers()
    if workers:
        (stage.folder / "site/sitecustomize.py").write_text("")
    with (stage.folder / "site/sitecustomize.py").open("a") as site:
        site.write(JUMPING)
    stage.environment["JUMPING"] = "1"
    stage.check(timeout=60)
    ended = stage.run("run", "net.yaml", "--no-compile")
    assert ended.code == ended.report()["exit_code"] == (0 if workers else 5)
    assert ended.report()["eager"]["status"] == ("ran" if workers else "crashed")


def test_names_that_are_not_ascii_are_names(stage: Stage) -> None:
    folder = stage.work / "größe 模型 🧠"
    folder.mkdir()
    text = stage.check(at="call 1", device="cpu").read_text()
    module = (stage.work / "net.py").read_text().replace("class Net(", "class Größe(").replace("net.py", "模.py")
    (folder / "模.py").write_text(module, encoding="utf-8")
    (folder / "c.yaml").write_text(text.replace("net.py:Net", "模.py:Größe"), encoding="utf-8")
    ended = stage.run(
        "run", Path(folder.name) / "c.yaml", "--no-compile", "--output", "отчёт", output=stage.work / "отчёт"
    )
    assert ended.code == 0, ended.err
    assert "Größe" in ended.report("c")["workload"]["model"]
    assert "report: отчёт/c/report.md" in ended.err
