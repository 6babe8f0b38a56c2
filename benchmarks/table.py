"""The tables of benchmarks/README.md, made from results.json.

    python -m benchmarks.table [--write] [RESULTS]

Prints every table; with ``--write`` puts each between its markers in README.md, ``<!-- table: NAME -->`` and
``<!-- end -->``, and leaves all else as it is.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, number
from benchmarks.results import RESULTS, Results

__all__ = ["MACHINE", "README", "fill", "places", "tables", "write"]

README = Path(__file__).with_name("README.md")
MACHINE = "machine"
"""The marker of the sentence on the machine, which is no table."""
_NONE = "Not measured in this run.\n"
_BETWEEN = re.compile(r"(<!-- table: (?P<name>[^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def tables(results: Results) -> dict[str, str]:
    """Every table as Markdown, by name, and the sentence on the machine."""
    names = dict.fromkeys(figure.table for figure in results.figures)
    made = {name: _table([figure for figure in results.figures if figure.table == name]) for name in names}
    return {MACHINE: _machine(results), **made}


def places(text: str) -> list[str]:
    """The names of the tables that a text has markers for, in order."""
    return [found["name"] for found in _BETWEEN.finditer(text)]


def fill(text: str, results: Results) -> str:
    """The text with what stands between markers replaced; a table without figures says that it has none.

    Raises:
        ValueError: a table has no marker.
    """
    made = tables(results)
    if lost := sorted(made.keys() - set(places(text))):
        raise ValueError(f"there is no marker for the table {', '.join(lost)}")
    return _BETWEEN.sub(lambda found: f"{found[1]}\n{made.get(found['name'], _NONE)}\n{found[3]}", text)


def write(results: Results, readme: Path) -> None:
    """Replace the tables in a file. Raises `ValueError` as `fill` does; the file is then as it was."""
    readme.write_text(fill(readme.read_text(encoding="utf-8"), results), encoding="utf-8")


def _table(figures: list[Figure]) -> str:
    rows = ["| what | value | at most | made of |", "| --- | --- | --- | --- |"]
    for figure in figures:
        value = number(figure.value, figure.unit)
        most = "" if figure.limit is None else f"{figure.limit:g} {figure.unit}".rstrip()
        rows.append(f"| {figure.name} | {value if figure.ok else f'**{value}**'} | {most} | {_made_of(figure)} |")
    return "\n".join(rows) + "\n"


def _made_of(figure: Figure) -> str:
    return ", ".join(f"{part.name} {number(part.value, part.unit)}" for part in figure.made_of)


def _machine(results: Results) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in machine.versions.items())
    memory = "" if machine.memory_gb is None else f", {machine.memory_gb:g} GB"
    return "\n".join(_sentences(results, machine.processor, f"{machine.cores} cores{memory}", versions)) + "\n"


def _sentences(results: Results, processor: str, size: str, versions: str) -> Iterator[str]:
    machine = results.machine
    if results.quick:
        yield "Tiny sizes, one round: these figures say nothing.\n"
    yield f"{processor}, {size}, {machine.system}, Python {machine.python}, {versions}, {results.date}."
    if results.load_before is not None:
        yield (
            f"Load average before: {results.load_before:g}, after: {results.load_after:g}."
            " A benchmark that has the machine to itself makes between 1 and 2."
        )
    missed = [figure for figure in results.figures if not figure.ok]
    measured = [figure for figure in results.figures if figure.limit is not None]
    yield f"{len(measured) - len(missed)} of {len(measured)} limits are kept; figures over theirs are in bold."
    for script in results.scripts:
        if script.problem is not None:
            yield f"Not complete: `{script.name}` {script.problem}."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put them into README.md")
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    given = parser.parse_args()
    results = Results.model_validate_json(given.results.read_text(encoding="utf-8"))
    if given.write:
        write(results, README)
        return 0
    for name, text in tables(results).items():
        print(f"<!-- table: {name} -->\n\n{text}\n<!-- end -->\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
