"""A report as JSON, and back."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema

from smoketest.errors import ConfigError, Place
from smoketest.findings.report import SCHEMA_VERSION, Report

__all__ = ["parse", "render", "schema"]


def render(report: Report) -> str:
    """The report as `report.json` holds it: indented, keys in the design's order, ending in a newline."""
    return report.to_json() + "\n"


def parse(text: str | bytes, *, name: str = "report.json") -> Report:
    """The report in `text`, as `render` wrote it.

    Args:
        text: the file's content.
        name: the file's name, for messages.

    Raises:
        ConfigError: the text is not a report, or one of another major schema version.
    """
    try:
        report = Report.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        where = f" at {path}" if path else ""
        raise ConfigError(
            f"not a report of smoketest (schema {SCHEMA_VERSION}){where}: {first['msg']}",
            place=Place(name),
            hint="pass a report.json that `smoketest run` wrote with this version",
        ) from None
    if report.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise ConfigError(
            f"report of schema {report.schema_version}, this version reads {SCHEMA_VERSION}",
            place=Place(name),
            hint="run the check again, or use the version of smoketest that wrote the report",
        )
    return report


def schema() -> dict[str, Any]:
    """What `report.json` holds, as JSON Schema 2020-12: every key in every report, null where it does not apply.

    Reports of the same major version fit it or a later one.
    """
    fields = Report.model_json_schema(mode="serialization", schema_generator=_WithoutTitles)
    fields["title"] = f"A report of smoketest, schema {SCHEMA_VERSION}"
    fields["properties"]["schema_version"] |= {"pattern": rf"^{SCHEMA_VERSION.partition('.')[0]}\.\d+$"}
    return {"$schema": GenerateJsonSchema.schema_dialect, **fields}


class _WithoutTitles(GenerateJsonSchema):
    """Without titles that only repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False
