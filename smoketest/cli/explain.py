"""``smoketest explain``: what a rule means and what to do about it."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["explain"]

_DEFAULTS = {
    "deny": "denied by default",
    "warn": "a warning by default",
    "by_grounds": "denied by default where the grounds are firm, else a warning",
}


def explain(rule: Annotated[str, typer.Argument(metavar="RULE", help="A rule's id, such as NST101.")]) -> None:
    """Say what a rule means, what it is worth, and what to do about a finding of it."""
    import textwrap

    from smoketest.cli.output import emit
    from smoketest.config.targets import suggest
    from smoketest.errors import ConfigError
    from smoketest.findings.rules import RULES

    found = RULES.get(rule.upper())
    if found is None:
        raise ConfigError(
            f"there is no rule {rule!r}", hint=suggest(rule.upper(), RULES) or f"rules are {', '.join(RULES)}"
        )
    lines = [
        f"{found.id}: {found.title}",
        f"class {found.class_}; {_DEFAULTS[found.default]}",
        "",
        textwrap.fill(found.remedy, 80),
        "",
        f"Another verdict for the whole class, in the check:  gate: {{{found.class_}: warn}}",
        f'One finding accepted:  gate: {{allow: [{{rule: {found.id}, site: "path/file.py", reason: "why"}}]}}',
    ]
    emit("\n".join(lines))
