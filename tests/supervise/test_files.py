"""Files of a run: whole or not at all, and never larger than they may be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smoketest.errors import ConfigError, InternalError
from smoketest.findings import Report
from smoketest.supervise import files
from smoketest.supervise.files import CappedLog, Journal, PassedFile, prepare_folder, write_atomically
from smoketest.supervise.written import write_report


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    write_atomically(path, "new ✓")
    assert path.read_text(encoding="utf-8") == "new ✓"
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_folder_that_is_a_file_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(ConfigError) as caught:
        prepare_folder(tmp_path / "a" / "b")
    assert str(caught.value) == (
        f"{tmp_path}/a/b: the output folder cannot be written: Not a directory\n  hint: name another with --output DIR"
    )


def test_a_log_keeps_its_beginning_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOG_HEAD", 10)
    monkeypatch.setattr(files, "LOG_TAIL", 5)
    log = CappedLog(tmp_path / "x.log")
    for part in (b"abcdefgh", b"ijklmnop", b"qrstuvwxyz"):
        log.write(part)
    log.close()
    assert (tmp_path / "x.log").read_bytes() == b"abcdefghij\n[smoketest: 11 bytes left out here]\nvwxyz"


def test_a_short_log_is_kept_as_it_is(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "x.log")
    log.write(b"one\n\n\x1b[31mtwo\xff\n")
    log.close()
    assert (tmp_path / "x.log").read_bytes() == b"one\n\n\x1b[31mtwo\xff\n"
    assert log.last_lines() == "one\n [31mtwo\N{REPLACEMENT CHARACTER}"
    assert log.last_lines(lines=1, width=3) == " [3"


def test_a_journal_is_json_lines_and_stops_at_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "JOURNAL_CAP", 200)
    journal = Journal(tmp_path / "events.jsonl")
    for number in range(50):
        journal.add("eager", f'{{"event": "hello", "pid": {number}}}\n'.encode())
    journal.close()
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"]["pid"] for line in lines] == list(range(len(lines)))
    assert 2 <= len(lines) <= 5


@pytest.mark.parametrize("name", ["report.json", "report.html", "log/events.jsonl", "log/compile.log"])
def test_a_folder_in_the_place_of_a_file_of_the_run_is_found_before_the_run(tmp_path: Path, name: str) -> None:
    (tmp_path / "out" / name).mkdir(parents=True)
    with pytest.raises(ConfigError) as caught:
        prepare_folder(tmp_path / "out")
    assert caught.value.message == f"the output folder cannot be written: {name} is a folder"


def test_a_pipe_in_the_place_of_a_log_is_found_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    os.mkfifo(tmp_path / "log" / "eager.log")
    with pytest.raises(ConfigError) as caught:
        prepare_folder(tmp_path)
    assert caught.value.message == "the output folder cannot be written: log/eager.log is no regular file"


def test_reports_of_an_earlier_run_are_no_obstacle(tmp_path: Path) -> None:
    for _ in range(2):
        prepare_folder(tmp_path)
        write_atomically(tmp_path / "report.json", "{}")
        CappedLog(tmp_path / "log" / "eager.log").close()


def test_a_folder_whose_name_is_not_utf_8_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare_folder(tmp_path / "caf\udce9" / "out")
    assert caught.value.message == "this path has bytes that are not UTF-8, which no report can hold"
    assert list(tmp_path.iterdir()) == []


def test_a_passed_file_has_no_name_and_is_read_by_a_process_that_got_its_number() -> None:
    file = PassedFile(b"said by the parent")
    program = "import sys; f = open(sys.argv[1], 'r+b'); text = f.read(); f.seek(0); f.write(text.upper())"
    subprocess.run([sys.executable, "-c", program, str(file.path)], pass_fds=(file.number,), check=True)
    assert file.read() == b"SAID BY THE PARENT"
    assert os.fstat(file.number).st_nlink == 0, "nothing is left of it in any folder"
    file.close()


def test_a_page_that_cannot_be_made_costs_nothing_of_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report.model_validate({
        "name": "net", "created": "2026-12-01T00:00:00Z", "status": "pass", "exit_code": 0, "headline": "clean",
        "device": {"kind": "cpu"}, "environment": {}, "workload": {}, "eager": {"status": "ran"},
        "compile": {"status": "skipped"}, "parity": {"status": "skipped"},
    })  # fmt: skip
    write_report(report.model_copy(update={"headline": "of an earlier run"}), tmp_path)

    def no_memory(report: Report) -> str:
        raise MemoryError

    monkeypatch.setattr("smoketest.render.markdown.render", no_memory)
    with pytest.raises(InternalError) as caught:
        write_report(report, tmp_path)
    told = f"report.md cannot be made: MemoryError; what was found is in {tmp_path / 'report.json'}"
    assert caught.value.message == told
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "report.html"}
    assert not any("of an earlier run" in path.read_text() for path in tmp_path.iterdir())
