"""The entry of `gate.allow` that a report offers: pasted into a check, the finding is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from sample_reports import SAMPLES, TODAY, base, judged

from smoketest.config.load import load_check
from smoketest.errors import ConfigError
from smoketest.findings import Finding, Observation, Site, merge
from smoketest.gate import judge_report
from smoketest.render import render
from smoketest.render.allow import entries

CHECK = """\
name: x
model: {target: "torch.nn:Linear", args: [2, 2]}
batch: {tensors: {x: {shape: [2, 2], dtype: float32}}}
loss: output.sum
"""


def offered(markdown: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", markdown, re.DOTALL)


def pasted(folder: Path, entry: str) -> Any:
    """The gate of a check that somebody pasted an entry into, the reason filled in."""
    file = folder / "check.yaml"
    file.write_text(CHECK + entry.replace('reason: ""', 'reason: "once per step"'), encoding="utf-8")
    return load_check(file).gate


@pytest.mark.parametrize("name", ["equivariant", "crashed"])
def test_what_markdown_offers_allows_the_finding_it_stands_with(name: str, tmp_path: Path) -> None:
    report = SAMPLES[name]()
    blocks = render(report, "markdown").split("\n### ")[1:]
    assert blocks
    for block in blocks:
        ids = set(re.findall(r"id `(\w+)`", block))
        assert ids
        if block.partition(". ")[2].startswith("allow"):
            assert offered(block) == []
            continue
        (entry,) = offered(block)
        again = judge_report(report, pasted(tmp_path, entry), problem=None, today=TODAY)
        assert {f.verdict for f in again.findings if f.id in ids} == {"allow"}


def test_an_entry_names_op_rule_and_file_and_leaves_the_reason_to_the_reader(tmp_path: Path) -> None:
    site = Site(file="model/router.py", line=7, code="torch.sort(x)")
    findings = merge([Observation("NST101", op="aten::sort.values_stable", site=site, grounds="reported")])
    assert entries(findings) == [
        "gate:",
        "  allow:",
        '    - {op: "aten::sort.values_stable", rule: NST101, site: "model/router.py", reason: ""}  # say why',
    ]
    unfilled = tmp_path / "unfilled.yaml"
    unfilled.write_text(CHECK + "\n".join(entries(findings)), encoding="utf-8")
    with pytest.raises(ConfigError, match="reason"):
        load_check(unfilled)


@pytest.mark.parametrize(
    "given",
    [
        {"site": Site(file="a[1]/b*?.py", line=1)},
        {"site": Site(file="q\"uo'te\\d: #.py", line=1)},
        {"site": Site(file="naïve/模型.py", line=1)},
        {"module": "h.0.attn[x]", "site": None},
        {"op": None, "site": Site(file="m.py", line=1)},
    ],
)
def test_names_that_yaml_or_patterns_would_read_otherwise_are_written_so_that_they_fit(
    given: dict[str, Any], tmp_path: Path
) -> None:
    findings = merge([Observation("NST104", **({"op": "aten::a"} | given))])
    report = judged(base("x", findings=findings))
    assert [f.verdict for f in report.findings] == ["deny"]
    gate = pasted(tmp_path, "\n".join(entries(report.findings)))
    assert [f.verdict for f in judge_report(report, gate, problem=None, today=TODAY).findings] == ["allow"]


def test_findings_that_are_alike_get_an_entry_for_each_file_once() -> None:
    sites = [Site(file=file, line=line) for file, line in (("a.py", 1), ("a.py", 2), ("b.py", 1))]
    found = entries(merge(Observation("NST204", site=site) for site in sites))
    assert [yaml.safe_load(line)[0]["site"] for line in found[2:]] == ["a.py", "b.py"]
    many = entries(merge(Observation("NST204", site=Site(file=f"{i}.py", line=1)) for i in range(9)))
    assert many[-1] == "    # and 5 more files"
    assert yaml.safe_load("\n".join(many))["gate"]["allow"][3]["site"] == "3.py"


def finding(**given: Any) -> Finding:
    return merge([Observation(**({"rule": "NST101", "op": "aten::a"} | given))])[0]


def test_nothing_is_offered_where_nothing_can_be_accepted_or_a_name_cannot_be_written() -> None:
    allowed = finding().model_copy(update={"verdict": "allow"})
    assert entries([allowed, finding(rule="NST303"), finding(op="aten::\u202e"), finding(op="a" * 400)]) == []
