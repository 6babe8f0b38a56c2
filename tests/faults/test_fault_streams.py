"""Streams that are closed, full, or whose reader has left; the report does not depend on any of them."""

from __future__ import annotations

import json

import pytest

from tests.faults.harness import Stage, long

STREAMS = {
    "all closed": '"$@" <&- >&- 2>&-',
    "stdout closed": '"$@" >&-',
    "stderr closed": '"$@" 2>&-',
    "stderr full": '"$@" 2>/dev/full',
    "both full": '"$@" >/dev/full 2>&1',
    "readers that left": '"$@" 2>&1 >/dev/null | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}',
    "numbers beyond": '"$@" 3>&1 4>&2 5</dev/null 9>/dev/null',
}
MACHINE = {
    "stdout closed": ('"$@" >&-', "stdout is closed"),
    "stdout full": ('"$@" >/dev/full', "No space left on device"),
}


SHORT = ("all closed", "readers that left")


@pytest.mark.parametrize("streams", [name if name in SHORT else pytest.param(name, marks=long) for name in STREAMS])
def test_no_stream_is_needed_for_a_report(stage: Stage, streams: str) -> None:
    stage.without_workers("segv")
    stage.check()
    ended = stage.run("run", "net.yaml", "--no-compile", before=STREAMS[streams])
    assert ended.code == ended.report()["exit_code"] == 5
    assert ended.report()["eager"]["reason"].startswith("the eager worker crashed with SIGSEGV")


@pytest.mark.parametrize("streams", MACHINE)
def test_a_report_that_was_asked_for_on_stdout_and_cannot_be_written_is_said(stage: Stage, streams: str) -> None:
    stage.without_workers()
    stage.check()
    before, words = MACHINE[streams]
    ended = stage.run("run", "net.yaml", "--quiet", "--output", "-", "--format", "json", before=before)
    assert ended.code == 5
    assert ended.errors[-1].startswith(f"error: the output cannot be written: {words}")


@pytest.mark.parametrize(
    "form", ["json", "markdown", pytest.param("html", marks=long), pytest.param("sarif", marks=long)]
)
def test_what_is_on_stdout_is_the_report_alone_in_a_locale_of_ascii(stage: Stage, form: str) -> None:
    stage.without_workers()
    stage.check()
    stage.environment |= {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = stage.run("run", "net.yaml", "--no-compile", "--quiet", "--output", "-", "--format", form)
    assert ended.code == 5
    assert ended.out.isascii()
    if form in ("json", "sarif"):
        json.loads(ended.out)
