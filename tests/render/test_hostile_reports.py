"""A report whose every text is hostile, in every form there is: no text becomes markup, and none is without an end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from lxml import etree
from markdown_it import MarkdownIt
from pydantic import ValidationError
from rich.cells import cell_len
from sample_reports import TEXTS, crashed, equivariant
from test_all_parts import everything
from test_render_html import OURS, Page
from test_render_junit import SCHEMA

from smoketest.findings import Report
from smoketest.gate.compare import compare
from smoketest.render import FORMATS, comparison, render
from smoketest.render.github import SUMMARY_LIMIT, annotate, step_summary
from smoketest.render.json import parse
from smoketest.render.junit import render as junit
from smoketest.render.summary import Row, Summary, row, terminal
from smoketest.render.summary import render as summary

MORE = (
    "\n::error file=x.py,line=1::owned\n##[error]owned\n::set-output name=x::y\r::stop-commands::x",
    "]]>&lt;&#x1b;&xxe;<!ENTITY xxe SYSTEM 'file:///etc/passwd'><?xml version='1.0'?><!--",
    "\x1b]0;title\x07\x1b[2J\x1b[1;31m\x9b31m\x08\x08\x08\x0c\x0b\r",
    "\ud800 lone \udfff surrogates",
    "é" * 10_240,
    "💥" * 2_560 + "\u0301" * 500,
    "x.y:" * 2_560,
    "|" * 500 + "`" * 500 + "\\" * 500,
    "=cmd|'/c calc'!A1",
)
EVIL = [*TEXTS, *MORE]
CONTROL = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
OF_ONE = {form: lambda report, form=form: render(report, form) for form in FORMATS}
OF_SEVERAL: dict[str, Callable[[Report], str]] = {
    "coloured terminal": lambda report: render(report, "terminal", color=True),
    "narrow terminal": lambda report: render(report, "terminal", width=40),
    "junit": lambda report: junit([report, without(report)]),
    "annotations": lambda report: "\n".join(annotate([report, without(report)], lambda name, file: file)) + "\n",
    "step summary": lambda report: step_summary([report, without(report)], 1, report.created),
    "summary.json": lambda report: summary(of_several(report), "json"),
    "summary.md": lambda report: summary(of_several(report), "markdown"),
    "summary.html": lambda report: summary(of_several(report), "html"),
    "summary": lambda report: terminal([row(report), without(report)]),
    "compare": lambda report: comparison.render(compare(report, crashed()), "terminal"),
    "compare, the other way": lambda report: comparison.render(compare(everything(), report), "terminal"),
    "compare.json": lambda report: comparison.render(compare(report, everything()), "json"),
    "compare.md": lambda report: comparison.render(compare(report, equivariant()), "markdown"),
}
FORMS: dict[str, Callable[[Report], str]] = {**OF_ONE, **OF_SEVERAL}
MARKDOWN = ("markdown", "summary.md", "compare.md")
HTML = ("html", "summary.html")
JSON = ("json", "sarif", "summary.json", "compare.json")
LONGEST = 4_000_000
"""Characters of any form of a report whose hundred texts have 10 kB each."""


def without(report: Report) -> Row:
    """A check that came to no report."""
    return Row.without_report(report.name, 2, report.headline)


def of_several(report: Report) -> Summary:
    return Summary(created="2026-12-01T00:00:00Z", exit_code=1, rows=(row(report), without(report)))


def leaves(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where texts stand; a key that a user's name may be is one too."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield from leaves(value, (*way, key))
    if isinstance(data, str):
        yield way


def put(data: Any, way: tuple[Any, ...], value: Any) -> Any:
    """Put it there; what stood there."""
    for key in way[:-1]:
        data = data[key]
    before, data[way[-1]] = data[way[-1]], value
    return before


@cache
def free_texts() -> tuple[tuple[Any, ...], ...]:
    """Every place of a report that takes any text whatever."""
    data = plain()
    found = []
    for way in list(leaves(data)):
        before = put(data, way, "any text")
        try:
            Report.model_validate(data)
        except ValidationError:  # one of a few words
            pass
        else:
            found.append(way)
        put(data, way, before)
    return tuple(found)


def plain() -> Any:
    """A report with something in every part, as JSON."""
    return json.loads(everything().to_json())


@cache
def poisoned(text: str) -> Report:
    """The report with a text in the place of every one of its own."""
    data = plain()
    for way in free_texts():
        if way != ("schema_version",):
            put(data, way, text)
    for part in ("settings", "set_by_run"):
        data["environment"][part] = {text: text}
    data["workload"] |= {"batch": {text: text}, "training": {text: text}}
    data["device"] |= {"profile": text, "profile_note": text}
    data["cost"]["why_not"] = text
    data["eager"] |= {"continued_past": [text], "reason": text}
    data["compile"]["reason"] = data["parity"]["reason"] = text
    return Report.model_validate(data)


def test_every_text_of_a_report_is_poisoned() -> None:
    """So that a text that a later version adds is looked at too, none of them is named here."""
    ways = {way[0] for way in free_texts()}
    assert ways >= {
        "name",
        "headline",
        "environment",
        "findings",
        "not_checked",
        "fit",
        "workload",
        "baseline",
        "command",
    }
    assert sum(way[0] == "findings" for way in free_texts()) > 30


@pytest.mark.parametrize("form", FORMS)
def test_no_form_holds_a_control_character_or_is_without_an_end(form: str) -> None:
    for text in EVIL:
        out = FORMS[form](poisoned(text))
        out.encode("utf-8")
        assert len(out) < LONGEST
        assert out.endswith("\n")
        if form == "coloured terminal":
            out = re.sub(r"\x1b\[[0-9;]*m", "", out)
        if form in JSON:
            out = json.dumps(json.loads(out), ensure_ascii=True)  # which has escapes of its own
        assert not CONTROL.search(out), (form, text[:40], CONTROL.search(out))


@pytest.mark.parametrize("form", MARKDOWN)
def test_markdown_holds_no_markup_but_ours(form: str) -> None:
    for text in EVIL:
        out = FORMS[form](poisoned(text))
        assert len(out) <= 60_000
        tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(out)
        tokens += [child for token in tokens for child in token.children or ()]
        kinds = {token.type for token in tokens}
        assert not kinds & {"link_open", "image", "s_open", "hr", "blockquote_open", "em_open"}, (form, text[:40])
        html = {token.content.strip().lower() for token in tokens if token.type == "html_inline"}
        assert html <= {"<code>", "</code>"}, (form, text[:40])
        tags = set(re.findall(r"</?(\w+)", " ".join(t.content for t in tokens if t.type == "html_block")))
        assert tags <= {"details", "summary", "code"}, (form, text[:40])


@pytest.mark.parametrize("form", HTML)
def test_html_holds_no_element_but_ours(form: str) -> None:
    for text in EVIL:
        page = Page(FORMS[form](poisoned(text)))
        assert set(page.tags) <= OURS | {"title"}, (form, text[:40])
        assert page.tags.count("script") <= 1
        names = {name for _, name, _ in page.attributes}
        assert not {name for name in names if name.startswith("on")} | names & {"style", "src", "srcdoc", "action"}


def test_json_is_the_report_again() -> None:
    for text in EVIL:
        report = poisoned(text)
        assert parse(render(report, "json").encode(), name="x") == Report.model_validate_json(report.to_json())


def test_sarif_is_of_its_version_and_its_addresses_are_relative() -> None:
    for text in EVIL:
        log = json.loads(render(poisoned(text), "sarif"))
        assert log["version"] == "2.1.0"
        for way in leaves(log):
            if way[-1] == "uri":
                assert re.fullmatch(r"[A-Za-z0-9._~%/+@!$&'()*,;=-]*", put(log, way, "")), text[:40]


def test_junit_is_valid_and_has_no_cases_but_those_it_always_has() -> None:
    """Entities of a document type would be read by a parser: there can be none in text that is escaped."""
    always = etree.fromstring(junit([everything(), without(everything())]).encode())
    for text in EVIL:
        out = FORMS["junit"](poisoned(text)).encode()
        tree = etree.fromstring(out)
        SCHEMA.assertValid(tree)
        assert tree.getroottree().docinfo.internalDTD is None
        assert {each.get("name") for each in tree.iter("testcase")} <= {
            each.get("name") for each in always.iter("testcase")
        }


def test_an_annotation_is_one_line_and_every_line_is_an_annotation_of_ours() -> None:
    always = FORMS["annotations"](everything()).splitlines()
    for text in EVIL:
        lines = FORMS["annotations"](poisoned(text)).split("\n")[:-1]
        assert len(lines) <= len(always) + 1
        assert all(
            re.match(r"::(error|warning)( [a-z]+=[^,:\r\n]*(,[a-zA-Z]+=[^,:\r\n]*)*)?::", line) for line in lines
        )
        assert not any("\r" in line for line in lines)


def test_the_step_summary_keeps_to_its_limit() -> None:
    for text in EVIL:
        assert len(FORMS["step summary"](poisoned(text)).encode()) <= SUMMARY_LIMIT


@pytest.mark.parametrize("form", ["terminal", "narrow terminal", "summary", "compare", "compare, the other way"])
def test_no_line_is_wider_than_the_terminal(form: str) -> None:
    for text in EVIL:
        wide = max(cell_len(line) for line in FORMS[form](poisoned(text)).splitlines())
        assert wide <= (40 if form == "narrow terminal" else 80), (form, text[:40])
