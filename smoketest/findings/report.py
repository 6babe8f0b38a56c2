"""The report as frozen data: what `report.json` holds (design, section 8), and nothing that renders it.

Every field is there in every report; one that does not apply is null.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "SCHEMA_VERSION",
    "Baseline",
    "CompilePart",
    "DeviceInfo",
    "EagerPart",
    "Environment",
    "Finding",
    "GraphInfo",
    "Grounds",
    "Kind",
    "ModuleCalls",
    "NotChecked",
    "OperatorRow",
    "ParityPart",
    "PartStatus",
    "Phase",
    "Report",
    "Site",
    "Step",
    "Verdict",
    "WorkloadInfo",
]

SCHEMA_VERSION = "1.0"

Phase = Literal["setup", "forward", "backward", "optimizer"]
Verdict = Literal["deny", "warn", "allow"]
Kind = Literal["unimplemented", "rejected", "recovered", "cpu_kernel", "unknown"]
Grounds = Literal["measured", "reported", "cannot_lower", "no_kernel_known"]
PartStatus = Literal["ran", "skipped", "failed", "crashed", "timed_out"]


class Model(BaseModel):
    """Base of the report's parts: frozen, closed, and named in JSON as in the design."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Site(Model):
    """A line of source: file relative to the project (or ``package/file.py``), line from 1, stripped text."""

    file: str
    line: int
    code: str = ""


class ModuleCalls(Model):
    """How often an op was called in the modules that match a pattern such as ``encoder.layer.*.attention``."""

    pattern: str
    calls: int


class Finding(Model):
    """One finding per (rule, op, phase, site). ``verdict`` and ``status`` are the gate's; null before it."""

    id: str
    rule: str
    class_: str = Field(alias="class")
    verdict: Verdict | None = None
    status: Literal["new", "known"] | None = None
    op: str | None = None
    called_as: str | None = None
    kind: Kind | None = None
    grounds: Grounds | None = None
    phase: Phase | None = None
    site: Site | None = None
    modules: tuple[ModuleCalls, ...] = ()
    shapes: tuple[str, ...] = ()
    calls_per_step: int | None = None
    exact: bool | None = None
    bytes_per_step: int | None = None
    ms_per_step: float | None = None
    witnesses: tuple[str, ...] = ()
    stage: str | None = None
    message: str = ""
    remedy: str | None = None
    repro: str | None = None


class NotChecked(Model):
    """Something the report says nothing about, and why."""

    what: str
    why: str


class DeviceInfo(Model):
    """Which device ran the steps, and under which operator profile."""

    kind: Literal["emulated", "neuron", "cpu"]
    profile: str | None = None
    profile_note: str | None = None


class Environment(Model):
    """Versions and settings that a result depends on."""

    python: str | None = None
    torch: str | None = None
    torch_neuronx: str | None = None
    torch_mlir: str | None = None
    neuronx_cc: str | None = None
    platform: str | None = None
    settings: dict[str, str] = {}


class WorkloadInfo(Model):
    """What was run: names and sizes, never values."""

    model: str | None = None
    parameters: int | None = None
    batch: dict[str, Any] | None = None
    optimizer: str | None = None
    training: dict[str, Any] | None = None


class Step(Model):
    """One optimizer step. Times are milliseconds; null where the step is not split (a custom train_step)."""

    index: int
    role: Literal["warmup", "timed", "traced"]
    loss: float | None = None
    forward_ms: float | None = None
    backward_ms: float | None = None
    optimizer_ms: float | None = None


class EagerPart(Model):
    """The eager run. ``op_calls`` and ``distinct_ops`` count the traced step."""

    status: PartStatus
    reason: str | None = None
    steps: tuple[Step, ...] = ()
    op_calls: int | None = None
    distinct_ops: int | None = None
    continued_past: tuple[str, ...] = ()


class GraphInfo(Model):
    """One captured graph and how far it got on the lowering ladder."""

    id: str
    direction: Literal["forward", "backward"]
    nodes: int
    status: Literal["lowered", "failed", "unknown", "not_reached"]
    stage: str | None = None


class CompilePart(Model):
    """The compile probe. Counts are of distinct (op, shapes, dtypes)."""

    status: PartStatus
    reason: str | None = None
    graphs: tuple[GraphInfo, ...] = ()
    ops_probed: int | None = None
    ops_failed: int | None = None
    ops_unknown: int | None = None
    graph_breaks: int | None = None
    skipped_frames: int | None = None
    recompiles: int | None = None


class ParityPart(Model):
    """The comparison with the same steps on plain CPU."""

    status: PartStatus
    reason: str | None = None
    max_relative_error: float | None = None
    steps: int | None = None


class OperatorRow(Model):
    """One functional overload: what eager does with it and what the compiler does."""

    op: str
    eager: Literal["device", "cpu", "mixed", "failed", "not_reached"]
    compile: Literal["lowers", "fails", "unknown", "decomposed", "not_reached"]
    calls_per_step: int | None = None


class Baseline(Model):
    """The baseline compared with, and what of it is gone."""

    file: str | None = None
    fixed: tuple[str, ...] = ()


class Report(Model):
    """Everything one check found."""

    schema_version: str = SCHEMA_VERSION
    name: str
    created: str
    status: Literal["pass", "fail", "error"]
    exit_code: int
    headline: str
    device: DeviceInfo
    environment: Environment
    workload: WorkloadInfo
    eager: EagerPart
    compile: CompilePart
    parity: ParityPart
    operators: tuple[OperatorRow, ...] = ()
    findings: tuple[Finding, ...] = ()
    baseline: Baseline = Baseline()
    not_checked: tuple[NotChecked, ...] = ()
    command: str | None = None

    def to_json(self) -> str:
        """The report as indented JSON, keys in the order of the design, non-finite losses as null."""
        return self.model_dump_json(by_alias=True, indent=2)
