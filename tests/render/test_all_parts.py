"""A report with something in every part it has, and one with very much of it, in every form."""

from __future__ import annotations

from functools import cache

import pytest
from markdown_it import MarkdownIt
from rich.cells import cell_len
from sample_reports import SAMPLES, base, judged, large, steps

from smoketest.findings import Observation, Report, Site, merge
from smoketest.findings.cost import Plan, cost
from smoketest.findings.fit import Sizes, Steps, estimate
from smoketest.findings.report import (
    Baseline,
    CompilePart,
    DeviceInfo,
    EagerPart,
    Environment,
    EnvironmentLine,
    GraphInfo,
    NotChecked,
    ParityPart,
)
from smoketest.render import FORMATS, render
from smoketest.render.junit import render as render_junit
from smoketest.render.markdown import LIMIT

SAID = {
    "the device": "the neuron device (torch-neuronx 2.14.3)",
    "a parity finding": "the gradient of h.0.mlp.weight differs from plain CPU's by 3.1e-02",
    "a compiled result that differs": "graph 0.forward: output 0 of the model differs",
    "what a move changed": "lm_head.weight and wte.weight were one tensor",
    "a value that is not finite": "the loss of step 2 is not finite; aten::log made the first",
    "losses compared": "losses of 5 steps, largest relative error 3.1e-02; 305 tensors of the traced step",
    "graphs that ran": "2 graphs run on the device: 62.0 s to compile and first run them",
    "memory": "weights and buffers",
    "kernels": "kernels to compile",
    "hours and money": "of which fallbacks at most 5 min and 1.79",
    "a baseline": "Against the baseline baselines/all.json: 1 new, 1 worse, 1 known, 2 fixed (of another device)",
    "steps with a compiler at work": "The device compiled in step 1 (warmup",
    "the doctor's line": "neuronx-cc",
    "a setting of the run": "NEURON_CC_FLAGS",
    "what was not checked": "copies inside native ops",
}
"""A piece of text for each part; those of the environment are for the forms that have it."""
NOT_ON_A_TERMINAL = {"the doctor's line", "a setting of the run"}


@cache
def everything() -> Report:
    device = DeviceInfo(kind="neuron", profile=None)
    site = Site(file="model/net.py", line=12, code="return self.mlp(x).log()")
    findings = merge(
        [
            Observation(rule="NST101", op="aten::atan2.out", phase="forward", grounds="measured", site=site, calls=2,
                        bytes=4096, ms=1.5, exact=True, kind="unimplemented", module="h.0", message="ran on the CPU",
                        witnesses=frozenset({"tracker"})),
            Observation(rule="NST106", phase="backward", module="h.0.mlp", site=site, message=SAID["a parity finding"]),
            Observation(rule="NST208", phase="forward", message=SAID["a compiled result that differs"], site=site),
            Observation(rule="NST107", phase="setup", module="lm_head", message=SAID["what a move changed"]),
            Observation(rule="NST105", op="aten::log", phase="forward", site=site,
                        message=SAID["a value that is not finite"]),
            Observation(rule="NST103", op="aten::item", phase="forward", site=site, calls=3, message="waits"),
            Observation(rule="NST304", message="NEURON_LAUNCH_BLOCKING hides what is asynchronous"),
        ]
    )  # fmt: skip
    statuses = ("new", "worse", "known")
    findings = tuple(
        finding.model_copy(update={"status": statuses[place]}) if place < 3 else finding
        for place, finding in enumerate(findings)
    )
    warm, *others = steps("warmup", "timed", "timed", "timed", "traced")
    eager = EagerPart(
        status="ran", steps=(warm.model_copy(update={"compiling": True}), *others), op_calls=900, distinct_ops=40
    )
    sizes = Sizes(7_302_912, 29_211_648, 64, 29_211_648, 58_423_296, "AdamW")
    report = base(
        "all",
        device=device,
        eager=eager,
        findings=findings,
        parity=ParityPart(status="ran", max_relative_error=3.1e-2, steps=5, tensors=305),
        compile=CompilePart(
            status="ran", ops_probed=9, ops_failed=0,
            graphs=tuple(GraphInfo(id=f"{n}.forward", direction="forward", nodes=9, status="lowered", stage="executed",
                                   first_ms=31_000.0, steady_ms=2.5) for n in range(2)),
        ),
        fit=estimate(sizes, Steps(31_457_280, 0, 61, 0), built=True, host_bytes=116_846_656, host_limit=16 * 2**30),
        cost=cost(device, eager, findings, Plan(200_000, 21.5)),
        baseline=Baseline(file="baselines/all.json", fixed=("a1", "a2"), note="of another device"),
        environment=Environment(
            python="3.12.4", torch="2.14.0", torch_neuronx="2.14.3", set_by_run={"NEURON_CC_FLAGS": "--retry"},
            lines=(EnvironmentLine(topic="neuronx-cc", found="2.27", expected="2.28", verdict="warn", advice="new"),),
        ),
        not_checked=(NotChecked(what="copies inside native ops", why="the witness is off"),),
    )  # fmt: skip
    return judged(report)


@cache
def huge() -> Report:
    return large()


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
@pytest.mark.parametrize("part", SAID)
def test_every_part_is_told_in_every_form_for_people(part: str, form: str) -> None:
    if form == "terminal" and part in NOT_ON_A_TERMINAL:
        pytest.skip("a terminal is told what matters; report.md has the environment")
    text = render(everything(), form)  # type: ignore[arg-type]
    if form == "terminal":  # with many findings the other parts are told in short
        text += render(everything().model_copy(update={"findings": ()}), form)
    plain = " ".join(text.replace("&#39;", "'").replace("`", "").replace("\\_", "_").replace("<wbr>", "").split())
    assert SAID[part] in plain


@cache
def unwrapped(name: str) -> str:
    """What a terminal without an edge shows, without its blanks."""
    report = everything() if name == "everything" else huge()
    return "".join(render(report, "terminal", width=1000).split())


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("name", ["everything", "large"])
def test_nothing_is_cut_on_a_terminal(name: str, width: int) -> None:
    report = everything() if name == "everything" else huge()
    out = render(report, "terminal", width=width)
    assert max(cell_len(line) for line in out.splitlines()) <= width
    # Wrapped otherwise, and the same words: nothing is lost for want of room.
    assert "".join(out.split()) == unwrapped(name)


@pytest.mark.parametrize("name", [*SAMPLES, "everything", "large"])
def test_markdown_keeps_to_its_bound_and_every_table_is_whole(name: str) -> None:
    """As GitHub reads it: CommonMark with tables; a row with another number of cells would be cut or filled up."""
    report = {"everything": everything, "large": huge}.get(name, SAMPLES.get(name, everything))()
    text = render(report, "markdown")
    assert len(text) <= LIMIT
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    cells = 0
    for token in tokens:
        if token.type == "tr_open":
            cells = 0
        cells += token.type in ("th_open", "td_open")
        assert token.type != "tr_close" or cells == 8
    bars = [token for token in tokens if token.type == "inline" and token.content.startswith("| ")]
    assert bars == []  # a row that fell out of its table
    rows = sum(token.type == "tr_open" for token in tokens)
    tables = sum(token.type == "table_open" for token in tokens)
    assert rows - tables == len([line for line in text.splitlines() if line.startswith("| ") and line[2].isdigit()])


@pytest.mark.parametrize("form", FORMATS)
def test_very_many_hostile_findings_are_one_text_in_every_form(form: str) -> None:
    text = render(huge(), form)  # type: ignore[arg-type]
    text.encode("utf-8")
    assert text.endswith("\n")
    if form != "json":  # where JSON has escapes of its own
        assert not set(text) & {chr(code) for code in (*range(9), 11, 12, *range(14, 32), 127, 0x202E, 0x200B)}


def test_the_table_of_graphs_has_the_times_of_those_that_ran() -> None:
    page = render(everything(), "html")
    assert 'data-value="31000.0">31.0 s</td>' in page
    assert 'data-value="2.5">2.5 ms</td>' in page
    assert "Compile and first run" not in render(SAMPLES["equivariant"](), "html")


def test_what_several_ranks_leave_out_is_said_in_every_form() -> None:
    left_out = NotChecked(what="parity of single tensors", why="with several ranks no step is made again")
    report = base("ranks").model_copy(update={"ranks": 2, "not_checked": (left_out,)})
    for form in FORMATS:
        assert "parity of single tensors" in render(report, form), form
    assert "parity of single tensors" in render_junit([report])
