from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from sample_reports import EVIL, SAMPLES, base, judged, seen

from smoketest.findings import NotChecked, Observation, Site, merge
from smoketest.render.escape import block, code, mixed, prose
from smoketest.render.markdown import LIMIT, render

TEXT = st.text(st.characters(exclude_categories=()), max_size=60) | st.text("`|\\<>&*_[]()#@~$\n\r !-=:1.", max_size=40)


def parse(text: str) -> list[Token]:
    """All tokens of GitHub's Markdown, inline ones too."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [inner for token in tokens for inner in (token, *(token.children or []))]


def html(tokens: list[Token]) -> set[str]:
    return {token.content.strip() for token in tokens if token.type in ("html_inline", "html_block")}


def kinds(tokens: list[Token]) -> set[str]:
    return {token.type for token in tokens}


PLAIN = {"paragraph_open", "paragraph_close", "inline", "text", "text_special"}


@settings(deadline=None)
@example(EVIL)
@given(TEXT)
def test_prose_is_text_and_nothing_but_text(text: str) -> None:
    tokens = parse(f"Cause: {prose(text)}")
    assert kinds(tokens) <= PLAIN
    assert not re.search(r"(?<!\\)[@#](?=\w)", "".join(prose(text).replace("&#", "")))


@settings(deadline=None)
@example(EVIL)
@given(TEXT)
def test_code_is_code_and_nothing_else(text: str) -> None:
    tokens = parse(f"At {code(text)}, forward")
    assert kinds(tokens) <= PLAIN | {"code_inline", "html_inline"}
    assert html(tokens) in (set(), {"<code>", "</code>"})


@settings(deadline=None)
@example(EVIL)
@example("a`b|c")
@given(TEXT)
def test_a_table_row_stays_one_row_of_two_cells(text: str) -> None:
    tokens = parse(f"| a | b |\n| --- | --- |\n| {code(text)} | {prose(text)} |\n\nafter")
    assert [token.type for token in tokens].count("td_open") == 2
    assert [token.type for token in tokens].count("tr_open") == 2


@settings(deadline=None)
@example(EVIL)
@given(TEXT)
def test_a_fenced_block_ends_where_it_should(text: str) -> None:
    tokens = parse(f"{block(text, 'python')}\n\nafter")
    assert [token.type for token in tokens].count("fence") == 1
    assert tokens[-2].content == "after"


@settings(deadline=None)
@example(EVIL)
@given(TEXT)
def test_mixed_text_holds_code_and_prose_only(text: str) -> None:
    tokens = parse(f"Instead: {mixed(text)}")
    assert kinds(tokens) <= PLAIN | {"code_inline", "html_inline"}
    assert html(tokens) in (set(), {"<code>", "</code>"})


def test_code_in_a_remedy_is_shown_as_code() -> None:
    assert mixed("Write `-torch.ceil(-x)`, not x_.") == "Write `-torch.ceil(-x)`, not x\\_."


def test_characters_that_hide_or_turn_text_are_shown_as_escapes() -> None:
    assert prose("a\u202eb\x00c\x1b[0m\ud800") == "a\\\\u202eb\\\\x00c\\\\x1b\\[0m\\\\ud800"
    assert prose("one\ntwo\u2028three\tfour") == "one two three four"


def test_a_hostile_report_holds_no_markup_but_ours() -> None:
    text = render(SAMPLES["hostile"]())
    tokens = parse(text)
    assert html(tokens) == {"<code>", "</code>"}
    assert not kinds(tokens) & {"link_open", "image", "s_open", "hr", "blockquote_open"}
    headings = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    assert [h.split()[0] for h in headings] == [
        "ERROR", "What", "Checked", "Not", "Findings", "1.", "Environment", "Reproduce", "Words",
    ]  # fmt: skip
    assert [token.type for token in tokens].count("tr_open") == 2
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u200b\u202a-\u202e\u2066-\u2069]", text)


def many(count: int, text: str = "x") -> tuple[Any, ...]:
    return merge(
        Observation(
            "NST101",
            op=f"aten::op{i}",
            phase="forward",
            grounds="measured" if i % 2 else "no_kernel_known",
            site=Site(file="m.py", line=i, code=text),
            module=text,
            calls=i + 1,
            bytes=1000 * i,
            message=text,
            remedy=text,
        )
        for i in range(count)
    )


@pytest.mark.parametrize("text", ["x", "word " * 400, "`|" * 2000, "\u202e" * 500, "&" * 3000])
@pytest.mark.parametrize("count", [1, 30, 400])
def test_no_report_is_longer_than_the_limit_and_what_is_left_out_is_counted(count: int, text: str) -> None:
    notes = tuple(NotChecked(what=text, why=text) for _ in range(200))
    report = judged(base("big", findings=many(count, text), not_checked=notes, command=text))
    out = render(report)
    assert len(out) <= LIMIT
    tokens = parse(out)
    rows = len(re.findall(r"^\| \d+ \|", out, re.MULTILINE))
    blocks = len(re.findall(r"^### \d+\.", out, re.MULTILINE))
    left_rows = sum(int(n) for n in re.findall(r"^(\d+) more findings are left out of this table", out, re.MULTILINE))
    left_blocks = sum(int(n) for n in re.findall(r"^Details of (\d+) more findings", out, re.MULTILINE))
    assert rows + left_rows == count
    assert blocks + left_blocks == count
    assert [token.type for token in tokens].count("fence") == 2 * blocks + 1  # its line, its entry; the command
    end = out.partition("\n## Reproduce\n")[2]
    assert end.startswith("\n```sh\n")  # the command that reproduces it is never what is cut, nor what words mean
    assert "- **fallback**: an op that the device hands to the CPU" in end


def test_the_first_twenty_rows_are_seen_and_the_rest_folded_away() -> None:
    out = render(judged(base("big", findings=many(30))))
    before, after = out.split("<details><summary>10 more findings</summary>\n\n")
    assert len(re.findall(r"^\| \d+ \|", before, re.MULTILINE)) == 20
    folded = after.split("</details>")[0]
    assert len(re.findall(r"^\| \d+ \|", folded, re.MULTILINE)) == 10
    assert folded.startswith("| # | verdict |")


def test_the_worst_comes_first() -> None:
    out = render(judged(base("big", findings=many(6))))
    verdicts = re.findall(r"^\| \d+ \| (\w+) \|.*?`aten::op(\d)`", out, re.MULTILINE)
    assert verdicts == [("deny", "5"), ("deny", "3"), ("deny", "1"), ("warn", "4"), ("warn", "2"), ("warn", "0")]


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "hostile"])
def test_the_first_line_says_verdict_and_device(name: str) -> None:
    report = SAMPLES[name]()
    first = render(report).splitlines()[0]
    assert first.startswith(f"# {report.status.upper()} on ")
    if report.device.kind == "emulated":
        assert "the emulated neuron device (operator profile torch-neuronx-prerelease-2026-04)" in first


def test_a_report_without_findings_says_what_was_checked_and_what_not() -> None:
    out = render(SAMPLES["clean"]())
    assert "clean: 1,234 op calls, no denied finding, no warnings" in out.splitlines()[0]
    assert "## Findings\n\nNone.\n" in out
    assert "- **parity**: comparison with the CPU reference is not part of this version" in out


def places(*lines: int, op: str = "aten::native_batch_norm", **given: Any) -> list[Observation]:
    return [part for line in lines for part in seen(op, line, f"x = f{line}(x)", "no_kernel_known", 1, 1024, **given)]


def test_findings_of_one_op_and_cause_are_one_block_with_their_places() -> None:
    out = render(judged(base("a", findings=merge(places(7, 8)))))
    assert "### 1, 2. warn: possible fallback `aten::native_batch_norm`\n" in out
    assert out.count("Cause: ") == 1
    assert (
        "- `configs/workloads/equivariant.py:8`, forward: `x = f8(x)` 3 calls per step, 3.0 KiB per step to and from"
        " the host, in `interactions.*.angles`; shapes: "
    ) in out


def test_a_remedy_stands_once_and_later_findings_refer_to_it() -> None:
    back = places(7, op="aten::native_batch_norm_backward", phase="backward")
    out = render(judged(base("a", findings=merge([*places(7), *back]))))
    assert out.count("Instead: A newer release may have the kernel") == 1
    assert out.count("Instead: as in 1.") == 1
    assert out.count("\nclass BatchNorm(torch.nn.BatchNorm2d):\n") == 1


def test_places_of_a_block_keep_their_own_way_to_reproduce_them() -> None:
    findings = [f.model_copy(update={"repro": f"repro/{f.id}.py"}) for f in merge(places(7, 8))]
    out = render(judged(base("a", findings=tuple(findings))))
    assert "### 1, 2. warn" in out
    assert [out.count(f"; reproduced by `repro/{f.id}.py`; id `{f.id}`") for f in findings] == [1, 1]


def test_of_very_many_places_in_a_block_the_rest_is_counted() -> None:
    out = render(judged(base("a", findings=merge(places(*range(1, 31))))))
    assert "### 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 18 more. warn: possible fallback" in out
    assert "- … and 18 more, in report.json\n" in out


def test_no_file_of_this_project_is_linked_to_and_terms_are_explained() -> None:
    out = render(SAMPLES["equivariant"]())
    assert "docs/rules" not in out
    assert "class fallback (`smoketest explain NST101`); id `" in out
    assert "- how it is known: seen on a real device by others\n" in out
    assert "- lowering got as far as stage 3 of 4 (torch-backend)\n" in out


def test_the_profile_says_in_words_where_it_was_read_and_once_that_nothing_ran_on_trainium() -> None:
    report = SAMPLES["clean"]()
    note = "emulated with the list X (PRE, 2026-04, torch 2.10); a prediction, nothing ran on Trainium"
    out = render(report.model_copy(update={"device": report.device.model_copy(update={"profile_note": note})}))
    assert "About the profile: emulated with the list X (read from a pre-release, 2026-04, torch 2.10)\n" in out
    assert out.count("nothing ran on Trainium") == 1


def test_an_error_is_told_in_the_headline_and_once_more_whole() -> None:
    report = SAMPLES["user_error"]()
    reason = "net.py:3: the step raised ValueError: no\n  hint: say yes\nTraceback:\n  File `net.py`\n    ```x```"
    first = reason.splitlines()[0]
    eager = report.eager.model_copy(update={"reason": reason})
    text = render(report.model_copy(update={"headline": first, "eager": eager, "not_checked": ()}))
    assert f"## What went wrong\n\nEager part:\n\n````text\n{reason}\n````\n\n## Checked\n" in text
    assert "- Eager part: failed; no step was completed." in text
    assert text.count("raised ValueError: no") == 2


def test_a_very_long_error_keeps_its_beginning_and_its_end() -> None:
    report = SAMPLES["user_error"]()
    reason = "\n".join(["first", *["x" * 200] * 150, "last"])
    text = render(report.model_copy(update={"eager": report.eager.model_copy(update={"reason": reason})}))
    block = text.partition("```text\n")[2].partition("\n```")[0]
    assert (block[:5], block[-4:], len(block) < 6_100) == ("first", "last", True)


def test_nothing_is_called_measured_where_no_step_came_to_its_end() -> None:
    report = SAMPLES["user_error"]()
    on_neuron = report.model_copy(update={"device": report.device.model_copy(update={"kind": "neuron"})})
    text = render(on_neuron)
    assert "No step came to its end on this device, so nothing was measured." in text
    assert "was measured" not in text.replace("nothing was measured", "")
