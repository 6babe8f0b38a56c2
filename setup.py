"""What pyproject.toml cannot say: the rule pages are under docs/, and go into the package when it is built."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithPages(build_py):
    """Copies ``docs/rules/*.md`` to where `smoketest.findings.pages` looks first; a clone is read in place."""

    def run(self) -> None:
        """Build, then add the pages."""
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib, "smoketest", "findings", "rule_pages")
            folder.mkdir(parents=True, exist_ok=True)
            for page in sorted(Path(__file__).parent.glob("docs/rules/*.md")):
                shutil.copyfile(page, folder / page.name)


setup(cmdclass={"build_py": BuildWithPages})
