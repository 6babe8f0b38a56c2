"""Run every repro file below a folder alone, in a fresh process: ``python -m tests.probe.run_repros reports/``.

Each must end with exit code 1 and print the compiler's sentence that it names as expected. Not a part of ``make test``:
a file takes seconds. The exit code is 1 where one does not, or where there is none.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def expected(text: str) -> str:
    """The last sentence of those that the file expects, without what was added to it."""
    lines = re.search(r"# Expected with .*\n((?:#   .*\n)+)", text)
    assert lines is not None
    return lines[1].strip().removeprefix("#   ").split("; ")[-1].partition(" (torch.")[0]


def main(folder: str) -> int:
    files = sorted(Path(folder).glob("**/repro/*.py"))
    wrong = []
    for file in files:
        done = subprocess.run([sys.executable, file.name], capture_output=True, text=True, cwd=file.parent)
        output = done.stdout + done.stderr
        if done.returncode != 1 or expected(file.read_text()) not in output:
            wrong.append(f"{file}: exit code {done.returncode}: {output[-300:]}")
    sys.stdout.write("\n".join([f"{len(files) - len(wrong)} of {len(files)} files fail as they say", *wrong]) + "\n")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
