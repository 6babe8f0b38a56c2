from __future__ import annotations

import json
import math

import pytest
from pydantic import ValidationError

from smoketest.findings import Finding, ModuleCalls, NotChecked, Report, Site
from smoketest.findings.report import (
    CompilePart,
    DeviceInfo,
    EagerPart,
    Environment,
    GraphInfo,
    OperatorRow,
    ParityPart,
    Step,
    WorkloadInfo,
)

# Section 8 of the design, word for word: scripts of users read these names in this order.
TOP = [
    "schema_version",
    "name",
    "created",
    "ranks",
    "status",
    "exit_code",
    "headline",
    "device",
    "environment",
    "workload",
    "eager",
    "compile",
    "parity",
    "fit",
    "cost",
    "operators",
    "findings",
    "baseline",
    "not_checked",
    "command",
]
INNER = {
    "device": "kind profile profile_note",
    "environment": "python torch torch_neuronx torch_mlir neuronx_cc platform settings set_by_run lines",
    "workload": "model parameters batch optimizer training parallel",
    "eager": "status reason steps op_calls host_calls distinct_ops continued_past",
    "compile": "status reason graphs ops_probed ops_failed ops_unknown graph_breaks skipped_frames recompiles",
    "parity": "status reason max_relative_error steps tensors tolerance precision",
    "fit": (
        "status reason basis parameters parameter_bytes buffer_bytes gradient_bytes optimizer_bytes activation_bytes"
        " total_bytes device_bytes fits host_bytes host_limit kernels compile_seconds new_kernels moving assumptions"
    ),
    "cost": (
        "calls_per_step bytes_per_step exact host_syncs_per_step step_ms fallback_ms share plan_steps price_per_hour"
        " hours money fallback_hours fallback_money why_not"
    ),
    "baseline": "file fixed note",
}
ITEMS = {
    "operators": "op eager compile calls_per_step ranks",
    "findings": (
        "id rule class verdict status op called_as kind grounds phase site modules shapes calls_per_step exact"
        " bytes_per_step ms_per_step ranks ranks_unended witnesses stage message remedy repro"
    ),
    "not_checked": "what why",
}


def full(loss: float | None = 1.5) -> Report:
    return Report(
        name="gpt2",
        created="2026-12-01T00:00:00Z",
        status="pass",
        exit_code=0,
        headline="clean",
        device=DeviceInfo(kind="emulated", profile="list"),
        environment=Environment(settings={"NEURON_CC_FLAGS": "-O1"}),
        workload=WorkloadInfo(batch={"x": {"shape": [2, 3], "dtype": "float32"}, "scale": loss}),
        eager=EagerPart(
            status="ran",
            steps=(Step(index=0, role="timed", loss=loss, forward_ms=loss),),
            continued_past=("aten::lgamma.out",),
        ),
        compile=CompilePart(
            status="ran", graphs=(GraphInfo(id="0", direction="forward", nodes=3, status="lowered", stage="stablehlo"),)
        ),
        parity=ParityPart(status="skipped", max_relative_error=loss),
        operators=(OperatorRow(op="aten::add.Tensor", eager="device", compile="lowers", calls_per_step=2),),
        findings=(
            Finding(
                id="0123456789ab",
                rule="NST101",
                class_="fallback",
                op="aten::sort.values_stable",
                site=Site(file="a.py", line=1, code="x"),
                modules=(ModuleCalls(pattern="h.*", calls=2),),
                ms_per_step=loss,
            ),
        ),
        not_checked=(NotChecked(what="parity", why="later"),),
        command="smoketest run gpt2.yaml",
    )


def test_keys_are_those_of_the_design_in_its_order() -> None:
    data = json.loads(full().to_json())
    assert list(data) == TOP
    assert {name: list(data[name]) for name in INNER} == {name: keys.split() for name, keys in INNER.items()}
    assert {name: list(data[name][0]) for name in ITEMS} == {name: keys.split() for name, keys in ITEMS.items()}
    assert list(data["eager"]["steps"][0]) == [
        "index",
        "role",
        "loss",
        "loss_by_rank",
        "forward_ms",
        "backward_ms",
        "optimizer_ms",
        "compiling",
    ]
    counts = ["lowered", "failed", "unknown", "not_reached"]
    graph = ["id", "direction", "nodes", "status", "stage", *counts, "first_ms", "steady_ms"]
    assert list(data["compile"]["graphs"][0]) == graph
    assert list(data["findings"][0]["site"]) == ["file", "line", "code"]
    assert list(data["findings"][0]["modules"][0]) == ["pattern", "calls"]


def test_json_gives_the_report_back() -> None:
    assert Report.model_validate_json(full().to_json()) == full()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_are_null_wherever_they_stand(value: float) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    data = json.loads(full(value).to_json(), parse_constant=refuse)
    assert data["eager"]["steps"][0]["loss"] is None
    assert data["eager"]["steps"][0]["forward_ms"] is None
    assert data["parity"]["max_relative_error"] is None
    assert data["findings"][0]["ms_per_step"] is None
    assert data["workload"]["batch"]["scale"] is None


def test_a_report_cannot_be_changed_and_takes_no_unknown_field() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        full().name = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        Report.model_validate_json(full().to_json().replace('"name"', '"nick": 1, "name"', 1))


def test_lone_surrogates_of_file_names_are_written_as_escapes_wherever_they_stand() -> None:
    name = "caf\udce9.py"
    report = full().model_copy(update={"headline": name, "environment": Environment(settings={name: name})})
    report = report.model_copy(update={"workload": WorkloadInfo(batch={name: [name, {name: name}]})})
    report = report.model_copy(update={"findings": (full().findings[0].model_copy(update={"shapes": (name,)}),)})
    data = json.loads(report.to_json())
    escaped = "caf\\udce9.py"
    assert data["headline"] == escaped
    assert data["environment"]["settings"] == {escaped: escaped}
    assert data["workload"]["batch"] == {escaped: [escaped, {escaped: escaped}]}
    assert data["findings"][0]["shapes"] == [escaped]
    assert Site(file=name, line=1).file == escaped
    assert Report.model_validate_json(report.to_json()).to_json() == report.to_json()


@pytest.mark.parametrize(
    ("key", "number"), [("calls_per_step", 10**400), ("bytes_per_step", 2**63), ("bytes_per_step", -1)]
)
def test_numbers_that_count_nothing_are_no_report(key: str, number: int) -> None:
    with pytest.raises(ValidationError, match=key):
        Finding.model_validate({"id": "1", "rule": "NST101", "class": "fallback", key: number})
