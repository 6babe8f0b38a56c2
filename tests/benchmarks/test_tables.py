"""The tables of benchmarks/README.md are made from results.json; nothing is timed here."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from benchmarks import __main__ as everything
from benchmarks import table
from benchmarks.figures import BROKEN, MISSED, Figure, Part, Setting, interleaved, told
from benchmarks.results import RESULTS, Machine, Results, Script

ROOT = Path(__file__).parents[2]
KEPT = Figure(
    table="device", name="addition", value=6.6042, limit=7.0,
    made_of=(Part(name="CPU", value=0.7432, unit="us"), Part(name="device", value=4.9081, unit="us")),
)  # fmt: skip
MISSED_ONE = Figure(table="device", name="start", value=0.61234, unit="s", limit=0.5)
FREE = Figure(table="memory", name="parent", value=1234.4, unit="MB")
MACHINE = Machine(
    processor="Some CPU", cores=2, memory_gb=24.7, system="Linux x86_64", python="3.11.7",
    versions={"torch": "2.13.0", "torch-mlir": None},
)  # fmt: skip


def results(*figures: Figure, quick: bool = False, problem: str | None = None) -> Results:
    return Results(
        date=dt.date(2026, 12, 1), quick=quick, machine=MACHINE, load_before=0.25, load_after=1.5,
        scripts=(Script(name="device", seconds=2.5, problem=problem),), figures=figures,
    )  # fmt: skip


def test_the_tables_of_a_results_file(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(results(KEPT, MISSED_ONE, FREE).model_dump_json(indent=1))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.table", str(file)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (
        done.stdout
        == """\
<!-- table: machine -->

Some CPU, 2 cores, 24.7 GB, Linux x86_64, Python 3.11.7, torch 2.13.0, torch-mlir not installed, 2026-12-01.
Load average before: 0.25, after: 1.5. A benchmark that has the machine to itself makes between 1 and 2.
1 of 2 limits are kept; figures over theirs are in bold.

<!-- end -->

<!-- table: device -->

| what | value | at most | made of |
| --- | --- | --- | --- |
| addition | 6.60 | 7 | CPU 0.743 us, device 4.91 us |
| start | **0.612 s** | 0.5 s |  |

<!-- end -->

<!-- table: memory -->

| what | value | at most | made of |
| --- | --- | --- | --- |
| parent | 1,234 MB |  |  |

<!-- end -->

"""
    )


def test_tables_go_between_their_markers_and_all_else_stays() -> None:
    text = (
        "# Title\n\n<!-- table: machine -->\nold\n<!-- end -->\n\nProse with 1.5 in it.\n\n"
        "<!-- table: memory -->\n| old |\n<!-- end -->\n\n<!-- table: probe -->\n| old |\n<!-- end -->\n\nLast.\n"
    )
    filled = table.fill(text, results(FREE))
    assert filled.startswith("# Title\n\n<!-- table: machine -->\n\nSome CPU, ")
    assert filled.endswith(
        "\n\n<!-- end -->\n\nProse with 1.5 in it.\n\n<!-- table: memory -->\n\n| what | value | at most | made of |\n"
        "| --- | --- | --- | --- |\n| parent | 1,234 MB |  |  |\n\n<!-- end -->\n\n<!-- table: probe -->\n\n"
        "Not measured in this run.\n\n<!-- end -->\n\nLast.\n"
    )
    assert table.fill(filled, results(FREE)) == filled


def test_a_table_without_a_marker_is_an_error() -> None:
    with pytest.raises(ValueError, match="there is no marker for the table memory"):
        table.fill("<!-- table: machine -->\n<!-- end -->\n", results(FREE))


def test_a_run_that_says_nothing_or_not_everything_says_so() -> None:
    said = table.tables(results(FREE, quick=True, problem="ended with 2"))[table.MACHINE]
    assert said.startswith("Tiny sizes, one round: these figures say nothing.\n")
    assert said.endswith("Not complete: `device` ended with 2.\n")


def test_a_results_file_comes_back_as_it_was_and_no_other_is_taken() -> None:
    kept = results(KEPT, MISSED_ONE)
    assert Results.model_validate_json(kept.model_dump_json()) == kept
    assert '"ok":false' in MISSED_ONE.model_dump_json()
    with pytest.raises(ValidationError, match="quick"):
        Results.model_validate_json(kept.model_dump_json().replace('"quick":false,', ""))


def _two(setting: Setting) -> Iterator[Figure]:
    yield KEPT
    yield MISSED_ONE if setting.quick else FREE


def _breaks(setting: Setting) -> Iterator[Figure]:
    yield MISSED_ONE
    raise RuntimeError(f"after {setting.turns(3)} rounds")


def test_a_script_prints_its_figures_keeps_them_as_lines_and_tells_a_missed_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "figures.jsonl"
    assert told(_two, ["--lines", str(lines)]) == 0
    assert told(_two, ["--quick"]) == MISSED
    assert capsys.readouterr().out.splitlines() == [
        "device: addition: 6.60 (at most 7): CPU 0.743 us; device 4.91 us",
        "memory: parent: 1,234 MB",
        "device: addition: 6.60 (at most 7): CPU 0.743 us; device 4.91 us",
        "device: start: 0.612 s (at most 0.5, MISSED)",
    ]
    kept = [Figure.model_validate_json(line) for line in lines.read_text().splitlines()]
    assert kept == [KEPT, FREE]


def test_a_script_that_breaks_keeps_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "figures.jsonl"
    assert told(_breaks, ["--rounds", "5", "--lines", str(lines)]) == BROKEN
    assert "RuntimeError: after 5 rounds" in capsys.readouterr().err
    assert Figure.model_validate_json(lines.read_text()) == MISSED_ONE


def _twice(setting: Setting) -> Iterator[Figure]:
    yield from (KEPT, KEPT)


def test_two_figures_of_one_name_are_a_mistake_of_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(_twice, []) == BROKEN
    assert "two figures of device are called addition" in capsys.readouterr().err


def test_sides_take_turns() -> None:
    called: list[str] = []
    ticks = iter(range(100))
    sides = {name: (lambda name=name: called.append(name)) for name in ("one", "other")}
    taken = interleaved(sides, 2, lambda: float(next(ticks)), lambda: called.append("before"))
    assert called == ["before", "one", "before", "other"] * 2
    assert taken == {"one": [1.0, 1.0], "other": [1.0, 1.0]}


def test_every_script_is_run_and_no_other() -> None:
    given = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "told(measure)" in path.read_text()}
    assert set(everything.SCRIPTS) == given


def test_the_readme_has_a_place_for_every_table() -> None:
    assert set(table.places(table.README.read_text(encoding="utf-8"))) == {
        "machine", "startup", "device", "microsecond", "watching", "probe", "depth", "batch", "steps", "whole check",
        "whole check, empty cache", "whole check, full cache", "memory", "plugin",
    }  # fmt: skip


@pytest.mark.skipif(not RESULTS.exists(), reason="no results.json: `make bench` was not run since it writes one")
def test_the_readme_shows_the_results_that_are_kept() -> None:
    kept = Results.model_validate_json(RESULTS.read_text(encoding="utf-8"))
    text = table.README.read_text(encoding="utf-8")
    assert table.fill(text, kept) == text
    assert not kept.quick
