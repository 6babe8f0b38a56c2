from __future__ import annotations

from pathlib import Path

import pytest

from smoketest.findings import RULES

ROOT = Path(__file__).parents[2]
SECTIONS = [
    "What it is", "Why it costs", "Known problems", "Example", "Use instead", "How to allow it", "References",
]  # fmt: skip
RAISED = [
    "NST101",
    "NST102",
    "NST103",
    "NST104",
    "NST105",
    "NST106",
    "NST107",
    "NST201",
    "NST202",
    "NST204",
    "NST205",
    "NST206",
    "NST207",
]

RAISED += ["NST301", "NST302", "NST303", "NST304"]
RAISED += ["NST203", "NST208"]  # on a device


@pytest.mark.parametrize("rule", RAISED)
def test_every_rule_that_can_be_raised_has_a_page_with_all_sections(rule: str) -> None:
    text = (ROOT / "docs" / "rules" / f"{rule}.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0] == f"# {rule}: {RULES[rule].title}"
    assert [line[3:] for line in lines if line.startswith("## ")] == SECTIONS
    assert lines[2].startswith(f"Class `{RULES[rule].class_}`. ")


def test_there_are_no_pages_for_rules_that_no_code_raises() -> None:
    assert sorted(file.stem for file in (ROOT / "docs" / "rules").glob("*.md")) == sorted(RAISED)
