"""Nowhere to write, and nothing to write with: no disk, no folder, no memory, no descriptors."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import Stage, long


@pytest.fixture
def disk(stage: Stage) -> Iterator[Path]:
    """A disk of 1 MiB, where this machine lets one be made."""
    place = stage.work / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("no disk can be mounted here: it takes root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path, leave: int) -> None:
    """Leave so many bytes of a disk."""
    room = os.statvfs(disk)
    with (disk / "full").open("wb") as file:
        file.write(bytes(max(0, room.f_bavail * room.f_frsize - leave)))


def test_a_disk_that_is_full_is_said_before_anything_runs(stage: Stage, disk: Path) -> None:
    stage.check()
    fill(disk, 0)
    ended = stage.run("run", "net.yaml", "--no-compile", "--output", "disk")
    assert ended.code == 2
    assert ended.err == (
        "error: disk/net: the output folder cannot be written: No space left on device\n"
        "  hint: name another with --output DIR\n"
    )
    assert [path.name for path in disk.rglob("*") if path.is_file()] == ["full"]


def test_a_disk_that_fills_up_while_the_model_prints_keeps_the_report(stage: Stage, disk: Path) -> None:
    """What is printed goes on, and is not kept; the room that the log does not need is the report's."""
    stage.check(act="print_much", at="call 1")
    stage.environment["TMPDIR"] = str(stage.temporary)
    ended = stage.run("run", "net.yaml", "--no-compile", "--output", "disk", output=disk)
    assert ended.code == 5
    assert ended.err.count("the log of the eager part is not whole: No space left on device") == 1
    assert ended.errors == ["error: the report cannot be written to disk/net: No space left on device"]
    assert [path.name for path in (disk / "net").iterdir()] == ["log"], "no half report"


def test_files_that_may_not_grow(stage: Stage) -> None:
    """RLIMIT_FSIZE, as schedulers of batch jobs set it: 16 KiB hold a message but no report."""
    stage.without_workers()
    stage.check()
    ended = stage.run("run", "net.yaml", "--no-compile", before="ulimit -f 16;")
    assert ended.code == 2
    assert ended.errors == ["error: reports/net: the output folder cannot be written: File too large"]


@long
def test_a_disk_too_small_for_temporary_files_is_no_obstacle(stage: Stage, disk: Path) -> None:
    stage.check()
    fill(disk, 0)
    stage.environment["TMPDIR"] = str(disk)
    ended = stage.run("run", "net.yaml", "--no-compile")
    assert ended.code == ended.report()["exit_code"] == 0, ended.err


@long
@pytest.mark.parametrize("leave", [70_000, 100_000, 200_000, 400_000])
def test_a_disk_with_very_little_room(stage: Stage, disk: Path, leave: int) -> None:
    stage.check(device="emulated", parity=True)
    fill(disk, leave)
    ended = stage.run("run", "net.yaml", "--no-compile", "--output", "disk", output=disk)
    if (disk / "net/report.html").exists():
        assert ended.code == ended.report()["exit_code"] == 0
    else:
        assert ended.code in (2, 5)
        assert len(ended.errors) == 1
        assert "No space left on device" in ended.errors[0]


@pytest.mark.parametrize("kind", ["file", "file above", "link to nowhere", "report is a folder", "loop"])
def test_an_output_that_is_no_folder(stage: Stage, kind: str) -> None:
    stage.without_workers()
    stage.check()
    reports = stage.work / "reports"
    if kind == "file":
        reports.mkdir()
        (reports / "net").write_text("mine")
    elif kind == "file above":
        reports.write_text("mine")
    elif kind == "link to nowhere":
        reports.symlink_to("nowhere/at/all")
    elif kind == "loop":
        reports.symlink_to("reports")
    else:
        (reports / "net/report.json").mkdir(parents=True)
    ended = stage.run("run", "net.yaml", "--no-compile")
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert ended.errors[0].startswith("error: reports/net: the output folder cannot be written: ")
    assert ended.err.splitlines()[-1] == "  hint: name another with --output DIR"
    assert reports.is_dir() or reports.is_symlink() or reports.read_text() == "mine", "what is there is left there"


def test_a_folder_that_one_may_not_write(stage: Stage) -> None:
    """A file system that is read-only where this machine lets one be mounted: root may write whatever the mode says."""
    stage.without_workers()
    stage.check()
    reports = stage.work / "reports"
    reports.mkdir()
    if os.getuid() == 0:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", reports], capture_output=True)
        if mounted.returncode:
            pytest.skip("nothing can be mounted here")
    else:
        reports.chmod(0o555)
    try:
        ended = stage.run("run", "net.yaml", "--no-compile")
    finally:
        subprocess.run(["umount", "-l", reports], check=True) if os.getuid() == 0 else reports.chmod(0o755)
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert ended.errors[0].startswith("error: reports/net: the output folder cannot be written: ")
    assert ended.errors[0].endswith(("Read-only file system", "Permission denied"))


@pytest.mark.parametrize("act", ["put_a_file_in_the_output", pytest.param("delete_the_output", marks=long)])
def test_user_code_that_takes_the_output_folder_away(stage: Stage, act: str) -> None:
    stage.check(act=act, at="call 1")
    ended = stage.run("run", "net.yaml", "--no-compile")
    if act == "delete_the_output":
        assert ended.code == ended.report()["exit_code"] == 0
    else:
        assert ended.code == 5
        assert ended.errors == ["error: the report cannot be written to reports/net: File exists"]


def test_too_little_memory_for_the_worker_is_a_report(stage: Stage) -> None:
    """RLIMIT_AS: Python starts, the command's own process too, and PyTorch cannot be loaded."""
    stage.check()
    ended = stage.run("run", "net.yaml", "--no-compile", before="ulimit -v 400000;")
    assert ended.code == ended.report()["exit_code"]
    assert ended.code == 3
    assert ended.report()["headline"].startswith("PyTorch cannot be imported: ")
    assert len(ended.errors) == 1


@long
@pytest.mark.parametrize("megabytes", [30, 40, 50, 60, 70, 80, 90, 100, 120, 150, 200, 300, 500, 800, 1200, 2000])
def test_any_amount_of_memory_ends_in_one_message_or_a_report(stage: Stage, megabytes: int) -> None:
    stage.check(device="emulated", parity=True)
    stage.internal = True
    process = stage.start("run", "net.yaml", "--no-compile", before=f"ulimit -v {megabytes * 1024};")
    process.wait(200)
    if process.returncode in (-11, -6, 127, 1) and not (stage.work / "reports").exists():
        pytest.skip("Python itself does not start")
    ended = stage.end(process)
    if (ended.output / "net/report.html").exists():
        ended.report()
    elif (ended.output / "net/report.json").exists():
        assert ended.code == 5
        assert "cannot be made: " in ended.errors[-1]
        json.loads((ended.output / "net/report.json").read_text())
    else:
        assert ended.code == 5


@pytest.mark.parametrize("descriptors", [12, *(pytest.param(n, marks=long) for n in (8, 10, 14, 16, 20, 24, 32))])
def test_too_few_descriptors(stage: Stage, descriptors: int) -> None:
    stage.check()
    stage.internal = True
    ended = stage.run("run", "net.yaml", "--no-compile", before=f"ulimit -n {descriptors};")
    if (ended.output / "net/report.json").exists():
        assert ended.code == ended.report()["exit_code"]
    else:
        assert ended.code in (2, 5)
        assert ended.err.count("Too many open files") == 1
