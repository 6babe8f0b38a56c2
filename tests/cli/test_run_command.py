"""`smoketest run` as typed, with the real workers on plain CPU: its endings, its files, what it prints where."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from smoketest.render.json import schema

NET = """\
import os, signal, time
import torch

class Net(torch.nn.Module):
    def __init__(self, act="nothing"):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.act, self.calls = act, 0

    def forward(self, x):
        self.calls += 1
        print("call", self.calls)
        if self.calls == 3:
            if self.act == "kill9":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.act == "exit3":
                os._exit(3)
            if self.act == "stubborn":
                signal.signal(signal.SIGTERM, lambda *_: open("asked", "w").close())
            if self.act in ("sleep", "stubborn"):
                print("asleep", flush=True)
                time.sleep(600)
        if self.act == "slow":
            time.sleep(0.2)
        if self.act == "raise":
            raise ValueError("no good")
        return self.linear(x).atan()
"""
CHECK = """\
model: {target: net.py:Net, kwargs: {act: %s}}
batch: {tensors: {x: {shape: [2, 4]}, y: {shape: [2, 4]}}, forward: [x]}
loss: {name: mse_loss, target: batch.y}
training: {steps: 3, warmup: 1}
device: cpu
"""
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(autouse=True)
def _net(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)


def write(folder: Path, name: str, act: str = "nothing") -> None:
    (folder / f"{name}.yaml").write_text(CHECK % act)


def start(folder: Path, *arguments: str, **kwargs: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "smoketest", "run", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kwargs
    return subprocess.Popen(command, cwd=folder, text=True, env=ENVIRONMENT, **pipes)


def smoketest(folder: Path, *arguments: str) -> tuple[int, str, str]:
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=200)
    assert "smoketest/" not in "".join(line for line in err.splitlines() if line.lstrip().startswith("File ")), (
        "no frame of ours"
    )
    return process.returncode, out, err


def report(folder: Path, name: str) -> dict[str, Any]:
    """The report that a run left, which fits its published schema however the run ended."""
    data = json.loads((folder / "reports" / name / "report.json").read_text())
    assert [error.message for error in Draft202012Validator(schema()).iter_errors(data)] == []
    return dict(data)


def wait_for(path: Path, words: str, patience: float = 60) -> None:
    until = time.monotonic() + patience
    while not (path.exists() and words in path.read_text()):
        assert time.monotonic() < until, f"{words!r} did not come"
        time.sleep(0.05)


def worker_pids(folder: Path, name: str) -> list[int]:
    lines = (folder / "reports" / name / "log" / "events.jsonl").read_text().splitlines()
    return [e["event"]["pid"] for e in map(json.loads, lines) if e["event"]["event"] == "hello"]


def gone(pid: int) -> bool:
    for _ in range(1200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_a_run_leaves_its_report_and_log_and_prints_to_the_person_only(tmp_path: Path) -> None:
    write(tmp_path, "net")
    code, out, err = smoketest(tmp_path, "net.yaml", "--no-compile", "--steps", "2")
    assert out == ""
    seen = report(tmp_path, "net")
    assert code == seen["exit_code"] == 0
    assert [step["role"] for step in seen["eager"]["steps"]] == ["warmup", "timed", "timed", "traced"]
    assert seen["compile"] == seen["compile"] | {"status": "skipped", "reason": "switched off with --no-compile"}
    assert "compile probe" in {entry["what"] for entry in seen["not_checked"]}
    assert seen["command"] == "smoketest run net.yaml --steps 2 --no-compile"
    assert "net: eager: step 1/4 (warmup) done" in err
    assert "report: reports/net/report.md" in err
    assert seen["headline"].split()[0] in err
    assert "call 1" in (tmp_path / "reports/net/log/eager.log").read_text()
    assert "call 1" not in err
    assert not [path for path in (tmp_path / "reports/net").iterdir() if path.name.startswith(".")], "no leftovers"


def test_json_goes_to_stdout_and_nothing_stays_behind(tmp_path: Path) -> None:
    write(tmp_path, "net")
    _, out, err = smoketest(tmp_path, "net.yaml", "--no-compile", "--format", "json", "--output", "-", "--quiet")
    assert json.loads(out)["name"] == "net"
    assert err == ""
    assert not (tmp_path / "reports").exists()
    assert not (tmp_path / "-").exists()


def test_a_broken_check_among_others_gives_its_message_and_the_others_run(tmp_path: Path) -> None:
    write(tmp_path, "good")
    write(tmp_path, "raises", "raise")
    (tmp_path / "broken.yaml").write_text("modle: {}\n")
    (tmp_path / "twin.yaml").write_text("name: good\n" + CHECK % "nothing")
    code, out, err = smoketest(tmp_path, ".", "--no-compile", "--quiet")
    assert code == 4, "the worst of 0, 2, 2 and 4"
    assert out == ""
    assert "error: broken.yaml:1:1: unknown key 'modle'\n  hint: did you mean 'model'?" in err
    assert "error: twin.yaml: the name 'good' is taken by good.yaml" in err
    assert report(tmp_path, "good")["exit_code"] == 0
    seen = report(tmp_path, "raises")
    assert seen["exit_code"] == 4
    assert "ValueError: no good" in seen["eager"]["reason"]
    frame = '  File "net.py", line 26, in forward\n    raise ValueError("no good")\nValueError: no good\n'
    assert frame in err, "the user's own traceback, as Python writes it"
    assert re.findall(r"^ *(\S+) +(PASS|FAIL|ERROR) +(\d+)", err, re.MULTILINE) == [
        ("broken.yaml", "ERROR", "2"), ("good", "PASS", "0"), ("raises", "ERROR", "4"), ("twin.yaml", "ERROR", "2"),
    ]  # fmt: skip


def summaries(folder: Path) -> dict[str, Any]:
    """summary.json, once the other forms were seen to be there too."""
    assert (folder / "summary.md").read_text().startswith("# ")
    assert (folder / "summary.html").read_text().startswith("<!DOCTYPE html>")
    return dict(json.loads((folder / "summary.json").read_text()))


def test_several_checks_end_in_one_summary_in_each_form(tmp_path: Path) -> None:
    write(tmp_path, "good")
    write(tmp_path, "raises", "raise")
    (tmp_path / "broken.yaml").write_text("nmae: x\n")
    code, _, err = smoketest(tmp_path, ".", "--no-compile", "--output", "out")
    assert "summary: out/summary.md" in err
    data = summaries(tmp_path / "out")
    assert (data["exit_code"], data["status"]) == (code, "error")
    assert data["headline"] == "3 checks: 1 passes, 2 end in an error"
    assert [(c["name"], c["status"], c["exit_code"], c["report"]) for c in data["checks"]] == [
        ("broken.yaml", "error", 2, None),
        ("good", "pass", 0, "good/report.json"),
        ("raises", "error", 4, "raises/report.json"),
    ]
    assert str(Path.home()) not in (tmp_path / "out/summary.md").read_text()
    assert 'href="good/report.html"' in (tmp_path / "out/summary.html").read_text()


def test_one_check_and_output_to_stdout_make_no_summary(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("nmae: x\n")
    (tmp_path / "other.yaml").write_text("nmae: x\n")
    assert smoketest(tmp_path, "broken.yaml", "--output", "out")[0] == 2
    assert smoketest(tmp_path, ".", "--output", "-")[0] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.yaml", "net.py", "other.yaml"]


def test_a_summary_that_cannot_be_written_is_said_and_the_run_ends_in_2(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("nmae: x\n")
    (tmp_path / "other.yaml").write_text("nmae: x\n")
    (tmp_path / "out").write_text("a file")
    code, _, err = smoketest(tmp_path, ".", "--output", "out")
    assert code == 2
    assert "error: the summary cannot be written to out: " in err


@pytest.mark.parametrize(("act", "words"), [
    ("kill9", "the eager worker crashed with SIGKILL in step"),
    ("exit3", "the eager worker exited with code 3 in step"),
])  # fmt: skip
def test_a_worker_that_dies_in_mid_run_leaves_a_report_and_exit_5(tmp_path: Path, act: str, words: str) -> None:
    write(tmp_path, "net", act)
    code, _, err = smoketest(tmp_path, "net.yaml", "--no-compile")
    seen = report(tmp_path, "net")
    assert code == seen["exit_code"] == 5
    assert (seen["status"], seen["eager"]["status"]) == ("error", "crashed")
    assert seen["eager"]["reason"].startswith(words)
    assert "(timed), forward" in seen["eager"]["reason"]
    assert len(seen["eager"]["steps"]) == 2
    assert words in re.sub(r"\s+", " ", err)


def test_kill_9_from_outside_is_a_report_too(tmp_path: Path) -> None:
    write(tmp_path, "net", "sleep")
    process = start(tmp_path, "net.yaml", "--no-compile")
    wait_for(tmp_path / "reports/net/log/eager.log", "asleep")
    os.kill(worker_pids(tmp_path, "net")[0], signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == report(tmp_path, "net")["exit_code"] == 5


def test_ctrl_c_leaves_reports_of_what_was_seen_and_starts_no_other_check(tmp_path: Path) -> None:
    write(tmp_path, "a", "sleep")
    write(tmp_path, "b")
    process = start(tmp_path, "a.yaml", "b.yaml", "--no-compile")
    wait_for(tmp_path / "reports/a/log/eager.log", "asleep")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    seen = report(tmp_path, "a")
    assert seen["exit_code"] == 130
    assert len(seen["eager"]["steps"]) == 2
    assert "interrupted by SIGINT in step" in seen["headline"]
    assert not (tmp_path / "reports/b").exists()
    assert [c["exit_code"] for c in summaries(tmp_path / "reports")["checks"]] == [130, 130]
    assert "not run: interrupted" in re.sub(r"\s+", " ", err)
    assert gone(worker_pids(tmp_path, "a")[0])


def test_a_second_ctrl_c_ends_all_at_once(tmp_path: Path) -> None:
    write(tmp_path, "net", "stubborn")
    process = start(tmp_path, "net.yaml", "--no-compile")
    wait_for(tmp_path / "reports/net/log/eager.log", "asleep")
    process.send_signal(signal.SIGINT)
    wait_for(tmp_path / "asked", "")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.endswith("interrupted: stopped at once, without a report\n")
    assert gone(worker_pids(tmp_path, "net")[0])


def test_no_worker_outlives_a_killed_parent(tmp_path: Path) -> None:
    write(tmp_path, "net", "sleep")
    process = start(tmp_path, "net.yaml", "--no-compile")
    wait_for(tmp_path / "reports/net/log/eager.log", "asleep")
    process.kill()
    process.communicate(timeout=60)
    assert gone(worker_pids(tmp_path, "net")[0])


def test_on_a_terminal_progress_is_live(tmp_path: Path) -> None:
    write(tmp_path, "net", "slow")  # as long as the display needs to show a step
    ours, theirs = pty.openpty()
    process = start(tmp_path, "net.yaml", "--no-compile", stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        seen += data
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert re.search(rb"eager: step \d/5 \(\w+\) (forward|backward|optimizer|done)", seen)
    assert b"\x1b[2K" in seen, "lines are rewritten in place"
    assert b"report: reports/net/report.md" in seen


def test_run_from_python_gives_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "net")
    monkeypatch.chdir(tmp_path)
    import smoketest
    from smoketest.config.load import load_check

    seen = smoketest.run("net.yaml", compile=False)
    assert (seen.name, seen.exit_code, seen.eager.status) == ("net", 0, "ran")
    again = smoketest.run(load_check(Path("net.yaml")), output="kept", compile=False)
    assert again.exit_code == 0
    assert (tmp_path / "kept/net/report.json").exists()
    assert not (tmp_path / "reports").exists()


def test_an_output_that_cannot_be_written_is_exit_2_before_anything_runs(tmp_path: Path) -> None:
    write(tmp_path, "net")
    (tmp_path / "out").write_text("a file")
    code, _, err = smoketest(tmp_path, "net.yaml", "--output", "out")
    assert code == 2
    assert err == (
        "error: out/net: the output folder cannot be written: Not a directory\n  hint: name another with --output DIR\n"
    )


def test_a_junit_file_that_cannot_be_made_is_exit_2_before_anything_runs(tmp_path: Path) -> None:
    write(tmp_path, "net")
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    for name, why in [
        (".", "it is a folder"),
        ("file/junit.xml", "file is no folder"),
        ("pipe", "it is a pipe or a device"),
    ]:
        code, _, err = smoketest(tmp_path, "net.yaml", "--junit", name)
        assert code == 2
        assert "--junit" in err
        assert f"cannot be written: {why}" in " ".join(err.replace("│", " ").split())
        assert not (tmp_path / "reports").exists()
