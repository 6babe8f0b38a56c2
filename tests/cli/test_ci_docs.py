"""docs/ci.md: what can be pasted is right as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


WORKFLOW = yaml.safe_load(blocks("yaml")[0])
JOB: dict[str, Any] = WORKFLOW["jobs"]["smoketest"]


def commands() -> list[str]:
    in_jobs = [step["run"] for step in JOB["steps"] if "run" in step] + [
        yaml.safe_load(blocks("yaml")[-1])["smoketest"]["script"]
    ]
    lines = [line.partition(" #")[0].partition(" >")[0] for text in blocks("") for line in text.splitlines()]
    found = [line.strip() for line in in_jobs + lines if line.strip().startswith("smoketest ")]
    assert len(found) >= 7
    return found


@pytest.mark.parametrize("command", commands())
def test_every_command_is_one(command: str) -> None:
    from typer.main import get_command

    from smoketest.cli.app import app

    _, name, *arguments = shlex.split(re.sub(r"\$\{\{ matrix\.check \}\}", "gpt2", command))
    group: Any = get_command(app)
    group.commands[name].make_context(name, arguments)  # raises where an option or an argument is not known


def test_the_workflow_is_a_workflow_and_runs_checks_that_are_there() -> None:
    assert set(WORKFLOW) == {"name", True, "permissions", "jobs"}  # YAML 1.1 reads `on` as true
    assert all(("uses" in step) != ("run" in step) for step in JOB["steps"])
    for check in JOB["strategy"]["matrix"]["check"]:
        assert (ROOT / "configs" / f"{check}.yaml").is_file()
    names = {name for text in re.findall(r"pip install \"\.\[(.*?)\]\"", TEXT) for name in text.split(",")}
    extras = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{name} = \[", extras, re.MULTILINE) for name in names)


def test_the_allowance_shown_is_one() -> None:
    from smoketest.config.models import Gate

    gate = next(data["gate"] for text in blocks("yaml") if "gate" in (data := yaml.safe_load(text)))
    assert len(Gate.model_validate(gate).allow) == 1


def test_links_lead_somewhere() -> None:
    headings = {
        re.sub(r"[^\w -]", "", line[3:]).strip().lower().replace(" ", "-")
        for line in TEXT.splitlines()
        if line.startswith("## ")
    }
    for target in re.findall(r"\]\((.*?)\)", TEXT):
        assert target[1:] in headings if target.startswith("#") else (ROOT / "docs" / target).exists(), target
