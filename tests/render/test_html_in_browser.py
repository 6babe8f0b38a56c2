"""The HTML report as a reader has it, in a headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, chromium
from sample_reports import SAMPLES, large
from test_all_parts import everything
from test_render_summary import summary

from smoketest.render import render
from smoketest.render.summary import render as render_summary

FOUND = chromium()
pytestmark = [
    pytest.mark.skipif(FOUND is None, reason="no Chromium here (chromium, chromium-browser or google-chrome)"),
    pytest.mark.timeout(300),
]
NAMES = [*SAMPLES, "everything", "large", "summary"]
CUT = """
[...document.querySelectorAll("td, th, dd, dt, p, h1, h2, li, figcaption, pre, label, summary, caption")]
.filter((e) => e.checkVisibility() && (e.scrollWidth > e.clientWidth + 1) && getComputedStyle(e).display != "inline")
.map((e) => e.tagName + " " + e.className + ": " + e.textContent.slice(0, 60))
"""
SHOWN = "[...document.querySelectorAll('#findings-table > tbody')].filter((e) => e.checkVisibility())"
OPS = f"{SHOWN}.map((e) => e.rows[0].cells[3].textContent.trim())"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert FOUND is not None
    with Browser(FOUND) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    files = {}
    made = SAMPLES | {"everything": everything, "large": lambda: large(100)}
    texts = {name: render(make(), "html") for name, make in made.items()}
    texts["summary"] = render_summary(summary(20), "html")
    for name, text in texts.items():
        files[name] = folder / f"{name}.html"
        files[name].write_text(text, encoding="utf-8")
    return files


def show(browser: Browser, file: Path, width: int = 1280, colours: str = "light") -> None:
    browser.window(width)
    browser.colours(colours)
    browser.load(file)


def silent(browser: Browser) -> None:
    assert browser.complaints == []
    assert browser.requests == []


def test_this_browser_reports_what_a_page_asks_for_and_complains_of(browser: Browser, tmp_path: Path) -> None:
    """Else the tests below could not fail."""
    (tmp_path / "bad.html").write_text("<img src=http://127.0.0.1:9/x.png><script>console.log('a'); nothing()</script>")
    browser.load(tmp_path / "bad.html")
    assert browser.requests == ["http://127.0.0.1:9/x.png"]
    assert any("console: ['a']" in complaint for complaint in browser.complaints)
    assert any("nothing is not defined" in complaint for complaint in browser.complaints)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_loads_without_a_complaint_or_a_request(browser: Browser, pages: dict[str, Path], name: str) -> None:
    for colours in ("light", "dark"):
        show(browser, pages[name], colours=colours)
        silent(browser)
        assert browser.run("document.querySelectorAll('script').length") == 1


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_cut_or_wider_than_the_window(browser: Browser, pages: dict[str, Path], name: str) -> None:
    show(browser, pages[name])
    browser.run("document.querySelectorAll('details').forEach((e) => { e.open = true })")
    for width in (1280, 960, 800, 400, 320):
        browser.window(width)
        assert browser.run("innerWidth") == width
        assert browser.run("document.documentElement.scrollWidth") <= width, width
        assert browser.run(CUT) == [], width


@pytest.mark.parametrize("name", ["equivariant", "everything"])
def test_no_number_is_broken_over_two_lines(browser: Browser, pages: dict[str, Path], name: str) -> None:
    broken = """
    [...document.querySelectorAll(".cross td, .narrow td.number, .place bdi")].filter((e) => e.checkVisibility())
    .flatMap((cell) => {
      const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), bad = [];
      while (walk.nextNode()) for (const run of walk.currentNode.data.matchAll(/\\d+/g)) {
        const range = document.createRange();
        range.setStart(walk.currentNode, run.index); range.setEnd(walk.currentNode, run.index + run[0].length);
        if (range.getClientRects().length > 1) bad.push(cell.textContent);
      }
      return bad;
    })"""
    show(browser, pages[name])
    browser.run("document.querySelectorAll('details').forEach((e) => { e.open = true })")
    for width in (320, 400, 800, 960, 1280):
        browser.window(width)
        assert browser.run(broken) == [], width


@pytest.mark.parametrize("width", [400, 1280])
def test_no_cell_lies_on_another(browser: Browser, pages: dict[str, Path], width: int) -> None:
    show(browser, pages["equivariant"], width)
    overlaps = """
    [...document.querySelectorAll("tr")].flatMap((row) => {
      const boxes = [...row.cells].filter((c) => c.checkVisibility()).map((c) => {
        const range = document.createRange(); range.selectNodeContents(c); return range.getBoundingClientRect();
      }).filter((b) => b.width);
      return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) =>
        a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1));
    }).length"""
    assert browser.run(overlaps) == 0


def test_without_script_everything_is_there_and_no_control_that_does_nothing(
    browser: Browser, pages: dict[str, Path]
) -> None:
    with browser.without_script():
        show(browser, pages["equivariant"])
        assert browser.run(f"{SHOWN}.length") == 9
        visible = "[...document.querySelectorAll('button, select, input')].filter((e) => e.checkVisibility()).length"
        assert browser.run(visible) == 0
        assert "aten::erfinv" in browser.run("document.body.innerText")
        silent(browser)


def test_a_heading_sorts_by_its_column_and_back_what_is_not_known_last(
    browser: Browser, pages: dict[str, Path]
) -> None:
    show(browser, pages["equivariant"])
    often = "document.querySelector('th.c-often')"
    first = browser.run(OPS)
    browser.run(f"{often}.querySelector('button').click()")
    assert browser.run(f"{often}.getAttribute('aria-sort')") == "descending"
    descending = browser.run(OPS)
    assert descending[0] == "aten::native_batch_norm"  # at least 6
    assert descending[-1] == "aten::roll"  # count not known
    browser.run(f"{often}.querySelector('button').click()")
    assert browser.run(f"{often}.getAttribute('aria-sort')") == "ascending"
    ascending = browser.run(OPS)
    assert (ascending[-2], ascending[-1]) == ("aten::native_batch_norm", "aten::roll")
    assert sorted(first) == sorted(descending) == sorted(ascending)
    browser.run("document.querySelector('th.c-number button').click()")
    assert browser.run(OPS) == first
    assert browser.run("document.querySelectorAll('[aria-sort]').length") == 1


def choose(browser: Browser, name: str, value: str) -> None:
    browser.run(
        f"{{ const s = document.querySelector('[data-filters=findings-table] [data-filter={name}]');"
        f" s.value = {value!r}; s.dispatchEvent(new Event('change')); }}"
    )


def test_filters_by_verdict_phase_rule_and_words_say_how_many_are_shown(
    browser: Browser, pages: dict[str, Path]
) -> None:
    show(browser, pages["equivariant"])
    count = "document.querySelector('[data-count]').textContent"
    assert browser.run(count) == ""
    choose(browser, "verdict", "deny")
    assert browser.run(count) == "3 of 9 shown"
    choose(browser, "rule", "NST201")
    assert browser.run(OPS) == ["aten::lgamma"]
    browser.run("document.querySelector('[data-reset]').click()")
    assert browser.run(f"{SHOWN}.length") == 9
    browser.run("document.querySelector('[data-filter-text]').focus()")
    browser.type("TORCH-mlir head")
    assert browser.run(OPS) == ["aten::erfinv"]
    assert browser.run(count) == "1 of 9 shown"


def test_the_keyboard_alone_reaches_and_works_every_control(browser: Browser, pages: dict[str, Path]) -> None:
    show(browser, pages["equivariant"])
    seen: list[Any] = []
    here = """(() => { const e = document.activeElement, s = getComputedStyle(e);
      const label = (e.ariaLabel || e.textContent || e.closest('label')?.textContent || '').trim();
      return [e.tagName, label.slice(0, 30), s.outlineStyle != 'none' && parseFloat(s.outlineWidth) >= 2]; })()"""
    for _ in range(80):
        browser.press("Tab")
        seen.append(tuple(browser.run(here)))
        if seen[-1][:2] == ("BUTTON", "How often"):
            break
    else:
        pytest.fail(f"not reached: {seen}")
    assert seen[0][:2] == ("A", "Skip to the content")
    assert all(outline for tag, _, outline in seen if tag != "BODY"), seen
    assert all(label for _, label, _ in seen), seen
    assert {label for tag, label, _ in seen if tag == "BUTTON"} >= {"Reset", "Unfold all", "#", "Verdict", "Op"}
    browser.press("Enter")
    assert browser.run("document.querySelector('th.c-often').getAttribute('aria-sort')") == "descending"
    assert browser.run("document.activeElement.textContent") == "How often"  # the focus stays where it was
    for _ in range(3):
        browser.press("Tab")
        if browser.run("document.activeElement.tagName") == "SUMMARY":
            break
    before = browser.run("document.activeElement.parentNode.open")
    browser.press(" ")
    assert browser.run("document.activeElement.parentNode.open") is not before


def test_every_control_has_a_name(browser: Browser, pages: dict[str, Path]) -> None:
    show(browser, pages["large"])
    unnamed = """[...document.querySelectorAll("button, input, select, [role=region], [role=img], [role=search]")]
    .filter((e) => !(e.ariaLabel || e.textContent.trim() || e.closest("label"))).length"""
    assert browser.run(unnamed) == 0


def test_a_number_of_the_cross_table_shows_its_ops(browser: Browser, pages: dict[str, Path]) -> None:
    show(browser, pages["large"])
    browser.run("document.querySelector('td[data-eager=cpu][data-compile=fails] button').click()")
    rows = "[...document.querySelectorAll('#operators-table tbody tr')].filter((e) => !e.hidden)"
    assert browser.run(f"{rows}.length") == 4
    assert browser.run(f"new Set({rows}.map((e) => e.dataset.eager + e.dataset.compile)).size") == 1


def test_a_link_to_a_finding_unfolds_it_and_puts_an_end_to_a_filter_that_hides_it(
    browser: Browser, pages: dict[str, Path]
) -> None:
    show(browser, pages["equivariant"])
    choose(browser, "verdict", "deny")
    link = "document.querySelector('.phases a[href=\"#finding-5\"]')"
    browser.run(f"{link}.click()")
    browser.run("new Promise((done) => setTimeout(done, 50))")
    assert browser.run("document.querySelector('#finding-5').checkVisibility()") is True
    assert browser.run("document.querySelector('#finding-5 details').open") is True


CONTRAST = """
(() => {
  const parse = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((v) => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126*x + 0.7152*y + 0.0722*z; };
  const back = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
  const bad = new Set();
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some((n) => n.nodeType == 3 && n.textContent.trim()) || !e.checkVisibility()) continue;
    if (e.closest("svg, script")) continue;
    const a = light(parse(getComputedStyle(e).color)), b = light(back(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.add(`${e.tagName}.${e.className} ${ratio.toFixed(2)}`);
  }
  return [...bad];
})()
"""


@pytest.mark.parametrize("name", ["equivariant", "everything", "crashed", "hostile", "clean"])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_text_stands_out_from_its_background(browser: Browser, pages: dict[str, Path], name: str, colours: str) -> None:
    show(browser, pages[name], colours=colours)
    assert browser.run(CONTRAST) == []


def test_colours_follow_the_system_until_chosen(browser: Browser, pages: dict[str, Path]) -> None:
    back = "getComputedStyle(document.documentElement).backgroundColor"
    show(browser, pages["clean"], colours="dark")
    assert browser.run(back) == "rgb(21, 24, 29)"
    choice = "document.querySelector('[data-theme-choice]')"
    browser.run(f"{{ {choice}.value = 'light'; {choice}.dispatchEvent(new Event('change')); }}")
    assert browser.run(back) == "rgb(255, 255, 255)"
    browser.load(pages["clean"])
    assert browser.run(back) == "rgb(255, 255, 255)"  # kept
    browser.run(f"{{ {choice}.value = ''; {choice}.dispatchEvent(new Event('change')); }}")
    assert browser.run(back) == "rgb(21, 24, 29)"


def test_on_paper_all_is_unfolded_light_and_without_controls(browser: Browser, pages: dict[str, Path]) -> None:
    show(browser, pages["equivariant"], colours="dark")
    browser.run("addEventListener('beforeprint', () => { window.folded = document.querySelectorAll("
                "'details:not([open])').length })")  # fmt: skip
    pdf = browser.pdf()
    assert pdf.startswith(b"%PDF")
    assert browser.run("window.folded") == 0
    assert browser.run("document.querySelectorAll('details:not([open])').length") > 0  # and folded again afterwards
    browser._send("Emulation.setEmulatedMedia", media="print", features=[])
    browser.window(700)
    assert browser.run("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    visible = (
        "[...document.querySelectorAll('input, select, nav, [data-reset]')].filter((e) => e.checkVisibility()).length"
    )
    assert browser.run(visible) == 0
    assert browser.run("document.documentElement.scrollWidth") <= 700
    assert browser.run(CUT) == []
    browser._send("Emulation.setEmulatedMedia", media="", features=[])
