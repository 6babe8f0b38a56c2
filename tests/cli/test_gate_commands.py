"""Baselines, comparison and CI output as a person meets them: one check, predicted and then measured on a double."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from doubles.behaviours import Behaviour
from doubles.install import install

ROOT = Path(__file__).parents[2]
PACKAGED = ROOT / "smoketest" / "operators" / "data" / "torch-neuronx-prerelease-2026-04.json"
WORKLOAD = """\
import torch
import torch.nn.functional as F


class Net(torch.nn.Linear):
    def forward(self, x):
        x = F.gelu(super().forward(x))
        x = torch.sigmoid(x)
        return torch.lgamma(x + 2)


def make_model():
    return Net(4, 4)


def make_batch(step):
    return {"x": torch.randn(2, 4, generator=torch.Generator().manual_seed(step))}


def loss_fn(output, batch):
    return output.sum()
"""
CHECK = """\
workload: net.py
profile: profile.json
training: {steps: 1, warmup: 0}
compile: {enabled: false}
parity: {enabled: false}
witnesses: {strict: false, copies: false}
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def smoketest(folder: Path, *arguments: str, **environment: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "smoketest", *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Runs:
    folder: Path
    predicted: Done
    measured: Done
    baseline: str

    def report(self, name: str) -> Any:
        return json.loads((self.folder / name / "net" / "report.json").read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A prediction that accepts what it finds, and a run of the same check on a device that disagrees in three places.

    The operator list of the prediction lacks sigmoid, which the device runs; on the device gelu and its gradient fail
    and the CPU takes over, which the prediction knows nothing of.
    """
    folder = tmp_path_factory.mktemp("project")
    (folder / "net.py").write_text(WORKLOAD)
    (folder / "net.yaml").write_text(CHECK)
    (folder / "pyproject.toml").write_text("")
    profile = json.loads(PACKAGED.read_text())
    for op in ("aten::sigmoid", "aten::sigmoid.out"):
        del profile["native"][op]
    (folder / "profile.json").write_text(json.dumps(profile))
    double = install(Behaviour(failing={"aten::gelu": "early", "aten::gelu_backward": "early"}), folder / "double")
    (folder / "summary.md").touch()
    ci = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "GITHUB_WORKSPACE": str(folder)}
    predicted = smoketest(
        folder, "run", "net.yaml", "--device", "emulated", "--output", "predicted", "--junit", "ci/junit.xml",
        "--baseline", "baselines/net.json", "--update-baseline", **ci,
    )  # fmt: skip
    baseline = (folder / "baselines" / "net.json").read_text()
    measured = smoketest(
        folder, "run", "net.yaml", "--device", "neuron", "--output", "measured", "--quiet",
        "--baseline", "baselines", "--strict-baseline", **(double.environ({}) | {"PATH": os.environ["PATH"]}),
    )  # fmt: skip
    return Runs(folder, predicted, measured, baseline)


def test_a_new_baseline_accepts_what_was_found(runs: Runs) -> None:
    assert runs.predicted.code == 0, runs.predicted.err
    assert "net: baseline: baselines/net.json accepts 3 findings now (3 new, 0 gone)" in runs.predicted.err
    told = [(e["op"], e["phase"], e["verdict"]) for e in json.loads(runs.baseline)["findings"]]
    assert told == [
        ("aten::digamma.out", "backward", "deny"),
        ("aten::lgamma.out", "forward", "deny"),
        ("aten::sigmoid.out", "forward", "warn"),
    ]
    report = runs.report("predicted")
    assert report["status"] == "pass"
    assert {f["status"] for f in report["findings"]} == {"known"}
    assert report["baseline"] == {"file": "baselines/net.json", "fixed": [], "note": None}


def test_what_the_device_has_beside_it_is_new_and_what_it_has_not_must_go(runs: Runs) -> None:
    assert runs.measured.code == 1, runs.measured.err
    report = runs.report("measured")
    assert sorted((f["op"], f["status"], f["verdict"]) for f in report["findings"] if f["rule"] == "NST101") == [
        ("aten::digamma.out", "known", "allow"),
        ("aten::gelu", "new", "deny"),
        ("aten::gelu_backward", "new", "deny"),
        ("aten::lgamma.out", "known", "allow"),
    ]
    sigmoid = next(e["id"] for e in json.loads(runs.baseline)["findings"] if e["op"] == "aten::sigmoid.out")
    assert report["baseline"]["fixed"] == [sigmoid]
    assert report["baseline"]["note"].startswith("the baseline was made on the emulated device")
    assert (
        "1 entry of the baseline is not needed any more; to take it out: smoketest run net.yaml --device neuron"
        " --baseline baselines --update-baseline" in runs.measured.err
    )


def test_a_finding_that_was_predicted_and_is_measured_has_one_id(runs: Runs) -> None:
    both = [{f["op"]: f["id"] for f in runs.report(name)["findings"]} for name in ("predicted", "measured")]
    for op in ("aten::lgamma.out", "aten::digamma.out"):
        assert both[0][op] == both[1][op]


def test_the_three_places_where_the_device_disagrees_are_named(runs: Runs) -> None:
    told = smoketest(runs.folder, "compare", "predicted/net", "measured/net", "--format", "json")
    assert told.code == 1, told.err
    prediction = json.loads(told.out)["prediction"]
    wrong = [*prediction["contradicted"], *prediction["missed"]]
    assert [(place["op"], place["phase"], place["predicted"], place["measured"]) for place in wrong] == [
        ("aten::sigmoid.out", "forward", "fallback", "device"),
        ("aten::gelu_backward", "backward", "device", "fallback"),
        ("aten::gelu", "forward", "device", "fallback"),
    ]
    assert [place["site"]["line"] for place in wrong] == [8, 7, 7]
    assert (prediction["firm"], prediction["possible"]) == ({"held": 2, "judged": 2}, {"held": 0, "judged": 1})
    assert prediction["found"] == {"held": 2, "judged": 4}


def test_the_comparison_is_told_in_text_and_markdown(runs: Runs) -> None:
    text = smoketest(runs.folder, "compare", "predicted/net", "measured/net").out
    assert text.startswith("3 of 5 places contradict the prediction: 1 predicted otherwise than")
    assert "torch_neuronx: not there → 2.1" in text
    markdown = smoketest(runs.folder, "compare", "predicted/net", "measured/net", "--format", "markdown").out
    assert "| `aten::sigmoid.out` | forward | `net.py:8` | fallback | device |" in markdown


def test_junit_and_github_are_told(runs: Runs) -> None:
    suite = ET.parse(runs.folder / "ci" / "junit.xml").getroot()[0]
    assert (suite.get("name"), suite.get("failures"), suite.get("errors")) == ("net", "0", "0")
    assert runs.predicted.out.startswith(
        "::warning file=net.py,line=8,title=net%3A possible fallback of aten%3A%3Asigm"
    )
    summary = (runs.folder / "summary.md").read_text()
    assert summary.startswith("# PASS on the emulated neuron device")
    assert "| 1 | warn (known) | NST101 possible fallback | `aten::sigmoid.out` | `net.py:8` |" in summary


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--baseline", "none.json"),
            "error: none.json: there is no such baseline\n  hint: make it from what is found",
        ),
        (
            ("--update-baseline",),
            "error: --update-baseline needs a baseline, and the check 'net' has none\n  hint: name",
        ),
        (("--baseline", "net.yaml"), "error: net.yaml: not a baseline of smoketest (schema 1.0): Invalid JSON"),
        (("--baseline", "other.json"), "other.json: this is the baseline of the check 'other', not of 'net'"),
    ],
)
def test_a_wrong_baseline_is_told_before_anything_runs(runs: Runs, arguments: tuple[str, ...], message: str) -> None:
    (runs.folder / "other.json").write_text('{"check": "other", "device": "emulated"}')
    done = smoketest(runs.folder, "run", "net.yaml", "--output", "refused", *arguments)
    assert done.code == 2
    assert message in done.err
    assert not (runs.folder / "refused").exists()


def test_reports_that_cannot_be_read_are_refused(runs: Runs) -> None:
    done = smoketest(runs.folder, "compare", "predicted/net", "nowhere")
    assert (done.code, done.out) == (2, "")
    assert "error: nowhere: cannot be read: No such file or directory" in done.err
