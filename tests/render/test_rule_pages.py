from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from smoketest.findings import RULES
from smoketest.findings.pages import rule_page
from smoketest.render.page import plain

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


def test_every_rule_has_a_page() -> None:
    assert sorted(RULES) == sorted(RAISED)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_page_as_plain_text_has_every_section_and_keeps_to_the_width(rule: str, width: int) -> None:
    page = rule_page(rule)
    assert page is not None
    lines = plain(page, width=width).splitlines()
    assert lines[0] == f"{rule}: {RULES[rule].title}"
    places = [lines.index(section) for section in SECTIONS]
    assert places == sorted(places)
    # Code, addresses and single words cannot be wrapped.
    assert [line for line in lines if len(line) > width and " " in line.strip() and line[:4] != "    "] == [
        line for line in lines[:1] if len(line) > width
    ]


def test_all_that_pages_are_written_in_is_read() -> None:
    page = """# T

One `a*b` and **bold** and *slanted*, 2 * 3
on [two](https://x.org/a) [pages](NST101.md), <https://y.org>.

| a | b |
| --- | --- |
| `x` | one |

## S

- first
  goes on
- second

1. third

```python
# no heading

- no item
```
"""
    assert (
        plain(page, width=60)
        == """T

One `a*b` and bold and slanted, 2 * 3 on two
(https://x.org/a) pages, https://y.org.

a    b
---  ---
`x`  one

S
-

- first goes on
- second

1. third

    # no heading

    - no item
"""
    )
    assert plain("## S", color=True) == "\x1b[1mS\x1b[0m\n"


def test_a_table_that_is_too_wide_becomes_lines() -> None:
    assert plain("| a | b |\n| --- | --- |\n| one | two three four |", width=16) == "one\n  b: two three\n    four\n"


def test_a_wheel_has_the_pages(tmp_path: Path) -> None:
    """Built from a copy: a build leaves files where the sources are."""
    import shutil

    source = tmp_path / "source"
    for name in ("smoketest", "docs/rules"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    code = "from smoketest.findings.pages import rule_page; print(rule_page('NST208').splitlines()[0])"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "installed", capture_output=True, text=True, check=True
    )
    assert found.stdout == f"# NST208: {RULES['NST208'].title}\n"
