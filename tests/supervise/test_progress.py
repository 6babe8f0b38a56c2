"""What a person sees of a run, line by line and live."""

from __future__ import annotations

import io
import re
from typing import Any

from rich.console import Console

from smoketest.findings.report import Step
from smoketest.supervise import protocol
from smoketest.supervise.live import LiveProgress
from smoketest.supervise.progress import LineProgress, Progress


def a_run(progress: Progress) -> None:
    progress.check_started("gpt2", "reports/gpt2/log", 3)
    progress.part_started("eager")
    for message in (
        protocol.Hello(part="eager", pid=1),
        protocol.PhaseStarted(name="setup"),
        protocol.PhaseStarted(name="forward", step=0, role="warmup"),
        protocol.StepDone(step=step(0, "warmup", 5.54321)),
        protocol.PhaseStarted(name="backward", step=1, role="timed"),
    ):
        progress.event("eager", message)
    progress.part_started("compile")
    for done in range(0, 101, 10):
        progress.event("compile", protocol.Progress(what="lower", done=done, total=100))
    progress.event("compile", protocol.Progress(what="none", done=0, total=0))
    progress.event("eager", protocol.StepDone(step=step(1, "timed", None)))
    progress.note("a note")
    progress.part_ended("eager", "timed_out", "too slow\nand more")


def step(index: int, role: Any, loss: float | None) -> Step:
    return Step(index=index, role=role, loss=loss)


def plain(text: str) -> str:
    """Without what moves the cursor."""
    return re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]|\r", "", text)


def test_lines_are_few_and_each_stands_alone() -> None:
    lines: list[str] = []
    a_run(LineProgress(lines.append))
    assert lines == [
        "gpt2: started; what your code prints goes to reports/gpt2/log",
        "gpt2: eager: starting",
        "gpt2: eager: setup",
        "gpt2: eager: step 1/3 (warmup) done, loss 5.543",
        "gpt2: compile: starting",
        "gpt2: compile: lower 30/100",
        "gpt2: compile: lower 50/100",
        "gpt2: compile: lower 80/100",
        "gpt2: compile: lower 100/100",
        "gpt2: eager: step 2/3 (timed) done",
        "gpt2: a note",
        "gpt2: eager: timed out: too slow",
    ]


def test_the_live_display_has_one_line_a_part() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60, color_system=None)
    progress = LiveProgress(console)
    a_run(progress)
    console.print(progress._render())
    progress.check_ended()
    text = plain(out.getvalue())
    assert re.search(r"^✗ eager: timed out: too slow  \d+ s *$", text, re.MULTILINE)
    assert re.search(r"^\S compile: none 0/0  \d+ s *$", text, re.MULTILINE)


def test_the_live_display_names_step_and_phase_within_the_width() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=40, color_system=None)
    progress = LiveProgress(console)
    progress.check_started("x", "log", 5)
    progress.event("eager", protocol.StepDone(step=step(0, "warmup", 1.0)))
    progress.event("eager", protocol.PhaseStarted(name="backward", step=1, role="timed"))
    with console.capture() as captured:
        console.print(progress._render())
    assert "eager: step 2/5 (timed) backward" in captured.get()
    progress.event("eager", protocol.PhaseStarted(name="y" * 500))
    with console.capture() as captured:
        console.print(progress._render())
    assert max(map(len, plain(captured.get()).splitlines())) <= 40
    progress.check_ended()
