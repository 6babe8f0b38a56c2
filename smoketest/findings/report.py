"""The report as frozen data: what `report.json` holds (design, section 8), and nothing that renders it.

Every field is there in every report; one that does not apply is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = [
    "SCHEMA_VERSION",
    "Baseline",
    "CompilePart",
    "CostPart",
    "Count",
    "DeviceInfo",
    "EagerPart",
    "Environment",
    "EnvironmentLine",
    "Finding",
    "FitPart",
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


def _encodable(value: Any) -> Any:
    """The value with each lone surrogate in its texts as an escape: file names can hold some, UTF-8 cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(inner) for inner in value]
    return value


MOST = 2**63 - 1
Int = Annotated[int, Field(ge=-MOST - 1, le=MOST)]
"""Any number of a report: a larger one is no count of anything, and overflows where it is divided."""
Count = Annotated[int, Field(ge=0, le=MOST)]
Text = Annotated[str, AfterValidator(_encodable)]
Values = Annotated[dict[str, Any], AfterValidator(_encodable)]


class Model(BaseModel):
    """Base of the report's parts: frozen, closed, and named in JSON as in the design."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, json_schema_serialization_defaults_required=True
    )


class Site(Model):
    """A line of source: file relative to the project (or ``package/file.py``), line from 1, stripped text."""

    file: Text
    line: Int
    code: Text = ""


class ModuleCalls(Model):
    """How often an op was called in the modules that match a pattern such as ``encoder.layer.*.attention``."""

    pattern: Text
    calls: Int


class Finding(Model):
    """One finding per (rule, op, phase, site). ``verdict`` and ``status`` are the gate's; null before it.

    ``ranks`` are those that made the observation, where several ranks ran and not all did; else null. Of the others
    ``ranks_unended`` may have made it too: their traced step did not come to its end.
    ``status`` is what a baseline says of it: not in it (``new``), in it (``known``), or in it and less bad (``worse``);
    null without a baseline, and for what ``gate.allow`` accepts.
    """

    id: Text
    rule: Text
    class_: Text = Field(alias="class")
    verdict: Verdict | None = None
    status: Literal["new", "known", "worse"] | None = None
    op: Text | None = None
    called_as: Text | None = None
    kind: Kind | None = None
    grounds: Grounds | None = None
    phase: Phase | None = None
    site: Site | None = None
    modules: tuple[ModuleCalls, ...] = ()
    shapes: tuple[Text, ...] = ()
    calls_per_step: Count | None = None
    exact: bool | None = None
    bytes_per_step: Count | None = None
    ms_per_step: float | None = None
    ranks: tuple[Count, ...] | None = None
    ranks_unended: tuple[Count, ...] | None = None
    witnesses: tuple[Text, ...] = ()
    stage: Text | None = None
    message: Text = ""
    remedy: Text | None = None
    repro: Text | None = None


class NotChecked(Model):
    """Something the report says nothing about, and why."""

    what: Text
    why: Text


class DeviceInfo(Model):
    """Which device ran the steps, and under which operator profile."""

    kind: Literal["emulated", "neuron", "cpu"]
    profile: Text | None = None
    profile_note: Text | None = None


class EnvironmentLine(Model):
    """One thing the doctor looked at: what is there, what a machine with a Neuron device has there, what to do."""

    topic: Text
    found: Text
    expected: Text
    verdict: Literal["ok", "warn", "fail", "unknown"]
    advice: Text = ""


class Environment(Model):
    """Versions and settings that a result depends on.

    ``settings`` are environment variables as the user has them, ``set_by_run`` those a run on the real device set
    itself before torch was imported. ``lines`` are the doctor's, where the real device was asked for.
    """

    python: Text | None = None
    torch: Text | None = None
    torch_neuronx: Text | None = None
    torch_mlir: Text | None = None
    neuronx_cc: Text | None = None
    platform: Text | None = None
    settings: dict[Text, Text] = {}
    set_by_run: dict[Text, Text] = {}
    lines: tuple[EnvironmentLine, ...] = ()


class WorkloadInfo(Model):
    """What was run: names and sizes, never values. ``parallel`` is null where one process ran."""

    model: Text | None = None
    parameters: Int | None = None
    batch: Values | None = None
    optimizer: Text | None = None
    training: Values | None = None
    parallel: Values | None = None


class Step(Model):
    """One optimizer step. Times are milliseconds; null where the step is not split (a custom train_step).

    With several ranks ``loss`` is the mean of ``loss_by_rank`` (null there where they are all the same), and times are
    those of the slowest rank.

    ``compiling``: whether the device compiled something in it, by its own counter or since its compiler was seen at
    work; null where neither can tell, and on a device that compiles nothing.
    """

    index: Int
    role: Literal["warmup", "timed", "traced"]
    loss: float | None = None
    loss_by_rank: tuple[float | None, ...] | None = None
    forward_ms: float | None = None
    backward_ms: float | None = None
    optimizer_ms: float | None = None
    compiling: bool | None = None


class EagerPart(Model):
    """The eager run. ``op_calls`` and ``distinct_ops`` count every op call of the traced step.

    ``host_calls`` says how many of them took and made tensors of the host only.
    """

    status: PartStatus
    reason: Text | None = None
    steps: tuple[Step, ...] = ()
    op_calls: Int | None = None
    host_calls: Int | None = None
    distinct_ops: Int | None = None
    continued_past: tuple[Text, ...] = ()

    def steady(self) -> tuple[Step, ...]:
        """The timed steps in which the device compiled nothing; all timed ones where it compiled in each."""
        timed = tuple(step for step in self.steps if step.role == "timed")
        return tuple(step for step in timed if not step.compiling) or timed


class GraphInfo(Model):
    """One captured graph and how far it got on the lowering ladder.

    ``nodes`` counts what calls something; ``lowered``, ``failed``, ``unknown`` and ``not_reached`` say what became of
    each of them and add up to it (null in reports of before they were counted). From a device run: ``first_ms`` is how
    long compilation and first run took, ``steady_ms`` the median of later runs, both until the device was done.
    """

    id: Text
    direction: Literal["forward", "backward"]
    nodes: Int
    status: Literal["lowered", "failed", "unknown", "not_reached"]
    stage: Text | None = None
    lowered: Int | None = None
    failed: Int | None = None
    unknown: Int | None = None
    not_reached: Int | None = None
    first_ms: float | None = None
    steady_ms: float | None = None


class CompilePart(Model):
    """The compile probe. Counts are of distinct (op, shapes, dtypes)."""

    status: PartStatus
    reason: Text | None = None
    graphs: tuple[GraphInfo, ...] = ()
    ops_probed: Int | None = None
    ops_failed: Int | None = None
    ops_unknown: Int | None = None
    graph_breaks: Int | None = None
    skipped_frames: Int | None = None
    recompiles: Int | None = None


class ParityPart(Model):
    """The comparison with the same steps on plain CPU.

    ``max_relative_error`` is the largest of a loss, of as many ``steps``; ``tensors`` says how many of the traced step
    were compared one by one, null where only losses were. ``tolerance`` is what a value may be off by at least, a share
    of its size: that of ``precision``, the coarsest floating-point dtype of the step, where the check sets none.
    """

    status: PartStatus
    reason: Text | None = None
    max_relative_error: float | None = None
    steps: Int | None = None
    tensors: Int | None = None
    tolerance: float | None = None
    precision: Text | None = None


class FitPart(Model):
    """Whether the job fits: an estimate, with what it assumes.

    Bytes of the model stand without a step; those of the activations and the kernels come from one step more that is
    made after the traced one. Nothing of it is measured on the device, on a real one neither.

    Attributes:
        status: ``ran`` where the model was sized.
        reason: why it was not.
        basis: ``meta``: of the model as built without memory, before anything else; ``built``: of the model that ran.
        parameters: how many numbers; tied ones once.
        parameter_bytes: of the weights.
        buffer_bytes: of the model's buffers.
        gradient_bytes: of one gradient for each parameter that requires one.
        optimizer_bytes: of the optimizer's state after its first step; null where it cannot be told.
        activation_bytes: of what autograd keeps for backward, at its most in the step; null before one was made.
        total_bytes: of all of these that are known.
        device_bytes: memory of one logical core that the total is held against.
        fits: false where what is known is more than the device's memory already; null where something is not known.
        host_bytes: what this machine needs for the run, activations apart.
        host_limit: memory of this machine.
        kernels: distinct signatures (op, shapes, dtypes) that the device computed in the step: what an eager device
            compiles in its first step.
        compile_seconds: (fewest, most) for all of them, by the seconds that people reported for one.
        new_kernels: signatures of the step after that were not among them: 0 where shapes are stable.
        moving: the first of those, each with what the step before had for the same op.
        assumptions: what the estimate leaves out or takes for granted.
    """

    status: PartStatus = "skipped"
    reason: Text | None = None
    basis: Literal["meta", "built"] | None = None
    parameters: Int | None = None
    parameter_bytes: Int | None = None
    buffer_bytes: Int | None = None
    gradient_bytes: Int | None = None
    optimizer_bytes: Int | None = None
    activation_bytes: Int | None = None
    total_bytes: Int | None = None
    device_bytes: Int | None = None
    fits: bool | None = None
    host_bytes: Int | None = None
    host_limit: Int | None = None
    kernels: Int | None = None
    compile_seconds: tuple[float, float] | None = None
    new_kernels: Int | None = None
    moving: tuple[Text, ...] = ()
    assumptions: tuple[Text, ...] = ()


class CostPart(Model):
    """What the fallbacks cost: calls and bytes always, time and money from a device run only.

    Attributes:
        calls_per_step: calls that ran on the CPU in forward, backward and optimizer; null where none could be counted.
        bytes_per_step: that they move between device and host.
        exact: false where one of the two is a lower bound.
        host_syncs_per_step: calls in which the host waits for the device.
        step_ms: median of the timed steps.
        fallback_ms: time of those calls in the traced step, the device waited for before and after each: an upper
            bound of what a step without them saves.
        share: of the step that this is, at most 1.
        plan_steps: optimizer steps of the booked job (``--plan-steps``).
        price_per_hour: of the machine (``--price-per-hour``), in whatever currency it was given.
        hours: of the booked job.
        money: of the booked job.
        fallback_hours: the fallbacks' share of the hours.
        fallback_money: the fallbacks' share of the money.
        why_not: why there are no times, hours or money.
    """

    calls_per_step: Int | None = None
    bytes_per_step: Int | None = None
    exact: bool | None = None
    host_syncs_per_step: Int | None = None
    step_ms: float | None = None
    fallback_ms: float | None = None
    share: float | None = None
    plan_steps: Int | None = None
    price_per_hour: float | None = None
    hours: float | None = None
    money: float | None = None
    fallback_hours: float | None = None
    fallback_money: float | None = None
    why_not: Text | None = None


class OperatorRow(Model):
    """One functional overload: what eager does with it and what the compiler does.

    Eager ``cpu`` is an op of the device that ran on the CPU; ``host`` is a call that took CPU tensors only, or none,
    such as those of an optimizer that keeps its step counters on the CPU. ``unknown``: no witness could tell where it
    ran. ``ranks`` are those that called it, where several ran and not all did.
    """

    op: Text
    eager: Literal["device", "host", "cpu", "mixed", "failed", "unknown", "not_reached"]
    compile: Literal["lowers", "fails", "unknown", "decomposed", "not_reached"]
    calls_per_step: Int | None = None
    ranks: tuple[Count, ...] | None = None


class Baseline(Model):
    """The baseline compared with, and what of it is gone: ids that nothing needs any more.

    ``note`` says what keeps the two from being comparable, such as another device.
    """

    file: Text | None = None
    fixed: tuple[Text, ...] = ()
    note: Text | None = None


class Report(Model):
    """Everything one check found.

    ``ranks`` is how many processes made the steps, null where it was one: then counts are those of a rank, the largest
    where they differ.
    """

    schema_version: Text = SCHEMA_VERSION
    name: Text
    created: Text
    ranks: Count | None = None
    status: Literal["pass", "fail", "error"]
    exit_code: Int
    headline: Text
    device: DeviceInfo
    environment: Environment
    workload: WorkloadInfo
    eager: EagerPart
    compile: CompilePart
    parity: ParityPart
    fit: FitPart = FitPart(reason="not part of this version")
    cost: CostPart = CostPart()
    operators: tuple[OperatorRow, ...] = ()
    findings: tuple[Finding, ...] = ()
    baseline: Baseline = Baseline()
    not_checked: tuple[NotChecked, ...] = ()
    command: Text | None = None

    def to_json(self) -> str:
        """The report as indented JSON, keys in the order of the design, non-finite losses as null."""
        # Validated again, since `model_copy` takes any text as it is.
        return Report.model_validate(self.model_dump(by_alias=True)).model_dump_json(by_alias=True, indent=2)
