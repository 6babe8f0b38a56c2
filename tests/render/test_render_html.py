from __future__ import annotations

import html
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sample_reports import EVIL, SAMPLES, base, judged, large, seen

from smoketest.findings import NotChecked, Report, merge
from smoketest.render import render
from smoketest.render.words import clean

VOID = {"meta", "link", "input", "wbr"}
OURS = {
    "html", "head", "meta", "title", "link", "style", "body", "a", "header", "div", "h1", "h2", "span", "bdi", "p",
    "ul", "li", "b", "label", "select", "option", "main", "nav", "section", "pre", "input", "button", "output", "table",
    "caption", "thead", "tbody", "tr", "th", "td", "code", "details", "summary", "dl", "dt", "dd", "figure",
    "figcaption", "svg", "rect", "script", "wbr",
}  # fmt: skip


class Page(HTMLParser):
    """The elements of a page; fails where one is not closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        self.text += data


def words_of(report: Report) -> str:
    """What is there to be read, its white space collapsed."""
    text = re.sub(r"<(style|script)>.*?</\1>|<wbr>", "", render(report, "html"), flags=re.DOTALL)
    return " ".join(Page(text.replace("<", " <").replace(">", "> ")).text.split())


def values(page: Page, name: str) -> list[str]:
    return [value for _, attribute, value in page.attributes if attribute == name]


@pytest.mark.parametrize("name", [*SAMPLES, "large"])
def test_every_element_is_closed_and_one_of_ours_whatever_the_report_holds(name: str) -> None:
    page = Page(render(large() if name == "large" else SAMPLES[name](), "html"))
    assert set(page.tags) <= OURS | {"title"}
    assert page.tags.count("script") == page.tags.count("style") == page.tags.count("title") - page.tags.count("rect")
    assert page.tags.count("script") == 1
    handlers = {name for _, name, _ in page.attributes if name.startswith("on") or name in ("style", "src", "srcdoc")}
    assert handlers == set()
    assert {value for value in values(page, "href") if not re.fullmatch(r"#[a-z0-9-]+", value)} == {"data:,"}
    assert set(values(page, "href")) - {"data:,"} <= {f"#{value}" for value in values(page, "id")}
    assert len(set(values(page, "id"))) == len(values(page, "id"))


@settings(deadline=None, max_examples=60)
@example(EVIL)
@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=80))
def test_any_text_is_read_as_that_text_with_its_control_characters_as_escapes(text: str) -> None:
    findings = merge(seen("aten::sort", 1, text, "reported", 1, 1, message=text, remedy=text, called_as=text))
    report = base(text, findings=findings, not_checked=(NotChecked(what=text, why=text),), command=text, headline=text)
    page = Page(render(report, "html"))
    assert page.text.count(clean(text)) >= 6
    assert not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page.text
    )


def test_the_policy_of_the_page_lets_nothing_in_but_its_own_script_and_style() -> None:
    import base64
    import hashlib

    text = render(SAMPLES["hostile"](), "html")
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1])  # type: ignore[index]
    for kind in ("style", "script"):
        content = re.search(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)[1]  # type: ignore[index]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert "unsafe" not in policy


def test_five_hundred_findings_of_10_kb_names_make_a_page_that_can_be_opened() -> None:
    text = render(large(), "html")
    assert text.count("<tbody role") == 500
    assert len(text.encode()) < 4_000_000


def test_the_page_is_a_function_of_the_report() -> None:
    assert render(SAMPLES["equivariant"](), "html") == render(SAMPLES["equivariant"](), "html")


@pytest.mark.parametrize("name", SAMPLES)
def test_it_says_verdict_device_what_was_checked_and_what_was_not(name: str) -> None:
    report = SAMPLES[name]()
    text = words_of(report)
    assert f"{report.status.upper()} {clean(report.name, 60)} · smoketest" in text
    if report.device.kind == "emulated":
        assert "Predictions from an operator profile: nothing ran on Trainium hardware." in text
    else:
        assert "Plain CPU runs every op: this says nothing" in text
    assert "Eager part: " in text
    for entry in report.not_checked:
        assert f"{clean(entry.what)} : {clean(entry.why)}" in text


def test_no_finding_is_said_of_what_was_checked_only() -> None:
    text = words_of(SAMPLES["interrupted"]())
    assert "None in what was checked; not checked says" in text
    assert "forward - - - none seen" in text


def test_the_step_gives_each_phase_its_time_its_fallbacks_and_what_they_cost() -> None:
    text = words_of(SAMPLES["equivariant"]())
    assert "Fallbacks, host work and failed ops of one step (predicted)" in text
    assert (
        "forward 12.2 ms at least 16 at least 18.6 MiB"
        " aten::native_batch_norm at least 6 calls per step aten::atan2.out 4 calls per step"
    ) in text
    assert "backward 22.5 ms - - none" in text
    assert "not known - not known not known aten::roll count not known" in text
    assert "Times are those of this machine's CPU: not what Trainium takes." in text


def test_a_failed_op_is_told_in_its_phase_and_not_counted_as_run_on_the_host() -> None:
    findings = merge(
        [
            *seen("aten::acos.out", 1, "a", "reported", 2, 1024),
            *seen("aten::_sparse_mm", 2, "b", "reported", 5, None, rule="NST104"),
        ]
    )
    text = words_of(judged(base("x", findings=findings)))
    assert (
        "forward 12.2 ms 6 3.0 KiB aten::acos.out 6 calls per step aten::_sparse_mm 15 calls per step, failed backward"
    ) in text


def test_the_cross_table_counts_ops_by_what_eager_and_the_compiler_do_with_them() -> None:
    rows = [("device", "lowers"), ("device", "lowers"), ("device", "fails"), ("cpu", "lowers"), ("cpu", "not_reached")]
    operators = [{"op": f"aten::op{i}", "eager": eager, "compile": c} for i, (eager, c) in enumerate(rows)]
    report = Report.model_validate(judged(base("x")).model_dump(by_alias=True) | {"operators": operators})
    text = words_of(report)
    states = "lower fail to lower not in what torch.compile captured all"
    assert f"{states} on the device 2 1 · 3 on the CPU 1 · 1 2 all 3 1 1 5" in text
    assert text.index("aten::op4") < text.index("aten::op0")  # those in trouble first


def test_a_dead_workers_last_words_are_shown_line_by_line() -> None:
    text = render(SAMPLES["hostile"](), "html")
    assert "Eager part: why it ended</h2>" in text
    crashed = SAMPLES["crashed"]()
    words = "crashed\nTraceback\n  File x\n    boom()"
    eager = crashed.eager.model_copy(update={"reason": words})
    page = Page(render(crashed.model_copy(update={"eager": eager}), "html"))
    assert words in page.text


def test_jinja2_is_loaded_for_html_only() -> None:
    code = (
        "import sys, json\nsys.path.insert(0, 'tests/render')\nfrom sample_reports import clean\n"
        "from smoketest.render import render\n"
        "for form in ('json', 'markdown', 'terminal'): render(clean(), form)\n"
        "assert 'jinja2' not in sys.modules\nrender(clean(), 'html')\nassert 'jinja2' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
