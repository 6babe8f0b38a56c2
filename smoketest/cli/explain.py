"""``smoketest explain``: what a rule means and what to do about it, or what is known of an op."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from smoketest.findings.rules import Rule

__all__ = ["explain"]

_DEFAULTS = {
    "deny": "denied by default",
    "warn": "a warning by default",
    "by_grounds": "denied by default where the grounds are firm, else a warning",
}


def _offered(incomplete: str) -> list[str]:
    """What a shell is offered: rules, and ops that there is something to write instead of."""
    from smoketest.findings.remedies import REWRITES
    from smoketest.findings.rules import RULES

    names = [*RULES, *sorted(f"aten::{name}" for name in REWRITES)]
    return [name for name in names if name.lower().startswith(incomplete.lower())]


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RULE|OP",
            help="A rule's id, such as NST101, or an op, such as aten::sort.",
            autocompletion=_offered,
        ),
    ],
    profile: Annotated[
        list[Path] | None,
        typer.Option("--profile", metavar="FILE", help="Look in this operator profile too; repeatable."),
    ] = None,
) -> None:
    """Say what a rule means and what to do about a finding of it, or what is known of an op.

    Of an op: in which operator profiles it has a kernel, whether it lowers, what was reported from real devices, and
    what to write instead. Nothing is run.
    """
    from smoketest.cli.output import emit, printable

    # A page is ours, and may have colours; what is known of an op holds texts of profiles.
    emit(_rule(what) if re.match(r"nst\w*$", what, re.IGNORECASE) else printable(_op(what, profile or [])))


def _rule(name: str) -> str:
    from smoketest.config.targets import suggest
    from smoketest.errors import ConfigError
    from smoketest.findings.rules import RULES

    found = RULES.get(name.upper())
    if found is None:
        hint = suggest(name.upper(), RULES) or f"rules are {', '.join(RULES)}"
        raise ConfigError(f"there is no rule {name!r}", hint=hint)
    return _rule_text(found)


def _rule_text(rule: Rule) -> str:
    """The rule's page; what is in the code where this installation has none."""
    from smoketest.cli.output import use_color, width
    from smoketest.findings.pages import rule_page
    from smoketest.render.page import plain

    page = rule_page(rule.id)
    if page is None:
        return _short_text(rule)
    return plain(page, width=width(sys.stdout), color=use_color(sys.stdout))


def _short_text(rule: Rule) -> str:
    import textwrap

    other = "deny" if rule.default == "warn" else "warn"
    return "\n".join([
        f"{rule.id}: {rule.title}",
        f"class {rule.class_}; {_DEFAULTS[rule.default]}",
        "",
        textwrap.fill(rule.remedy, 80),
        "",
        f"Another verdict for the whole class, in the check:  gate: {{{rule.class_}: {other}}}",
        f'One finding accepted:  gate: {{allow: [{{rule: {rule.id}, site: "path/file.py", reason: "why"}}]}}',
    ])  # fmt: skip


def _op(text: str, files: list[Path]) -> str:
    from smoketest.cli.explain_op import explain_op, near_ops, op_name
    from smoketest.cli.output import width
    from smoketest.errors import ConfigError
    from smoketest.operators.profile import load_profile

    profiles = [load_profile(), *(load_profile(file) for file in files)]
    op = op_name(text)
    found = explain_op(op, profiles, width=width(sys.stdout))
    if found is None:
        near = near_ops(op, profiles)
        is_aten = op.startswith("aten::")
        raise ConfigError(
            f"PyTorch has no op {op}" if is_aten else f"nothing is known of {op}: only PyTorch's own ops are told",
            hint=f"ops of a like name are {', '.join(near)}" if near
            else "ops are named as reports name them, such as aten::sort; rules such as NST101",
        )  # fmt: skip
    return found
