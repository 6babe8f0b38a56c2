"""Shell completion: the scripts that shells load, and what they are answered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SMOKETEST = Path(sys.executable).with_name("smoketest")
pytestmark = pytest.mark.skipif(not SMOKETEST.exists(), reason="the command is not installed beside Python")


def answered(typed: str) -> list[str]:
    """What bash is offered for the last word of a command line."""
    given = {"_SMOKETEST_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = subprocess.run([str(SMOKETEST)], capture_output=True, text=True, timeout=60, env=os.environ | given)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(("typed", "offered"), [
    ("smoketest expl", ["explain"]),
    ("smoketest show --for", ["--format"]),
    ("smoketest show --format ", ["terminal", "json", "markdown", "html", "sarif"]),
    ("smoketest show --format ht", ["html"]),
    ("smoketest run --device ", ["auto", "neuron", "emulated", "cpu"]),
    ("smoketest run --device em", ["emulated"]),
    ("smoketest run --format ma", ["markdown"]),
    ("smoketest script --device c", ["cpu"]),
    ("smoketest script --format j", ["json"]),
    ("smoketest compare --format ", ["terminal", "json", "markdown"]),
    ("smoketest doctor --format ", ["text", "json"]),
    ("smoketest explain NST10", [f"NST10{number}" for number in range(1, 8)]),
    ("smoketest explain NST30", ["NST301", "NST302", "NST303", "NST304"]),
    ("smoketest explain aten::grid", ["aten::grid_sampler_2d"]),
])  # fmt: skip
def test_commands_options_words_and_rules_are_completed(typed: str, offered: list[str]) -> None:
    assert answered(typed) == offered


@pytest.mark.parametrize(("shell", "line"), [
    ("bash", "complete -o default -F _smoketest_completion smoketest"),
    ("zsh", "#compdef smoketest"),
    ("fish", "complete --command smoketest"),
])  # fmt: skip
def test_the_script_for_a_shell_is_shown(shell: str, line: str) -> None:
    done = subprocess.run(
        [str(SMOKETEST), "--show-completion", shell], capture_output=True, text=True, timeout=60,
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert line in done.stdout


def test_bash_completes_with_the_script_it_is_shown() -> None:
    program = (
        f'PATH="{SMOKETEST.parent}:$PATH"; eval "$(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 smoketest '
        '--show-completion bash)"; COMP_WORDS=(smoketest va); COMP_CWORD=1; _smoketest_completion smoketest; '
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("validate", "")
