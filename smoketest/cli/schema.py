"""``smoketest schema``: the JSON Schemas of checks and of reports."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["schema"]


def schema(
    report: Annotated[bool, typer.Option("--report", help="The schema of report.json instead of the check's.")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="The schema of summary.json.")] = False,
) -> None:
    """Print the JSON Schema of a check's YAML, for editors, of report.json or of summary.json.

    An editor uses it after a first line such as

    # yaml-language-server: $schema=check.schema.json
    """
    import json

    from smoketest.cli.output import emit

    if report and summary:
        raise typer.BadParameter("--report and --summary are two schemas: ask for one")
    if summary:
        from smoketest.render.summary import schema as summary_schema

        found = summary_schema()
    elif report:
        from smoketest.render.json import schema as report_schema

        found = report_schema()
    else:
        from smoketest.config.schema import check_schema

        found = check_schema()
    emit(json.dumps(found, indent=2))
