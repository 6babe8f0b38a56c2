"""A check as frozen data (design, section 6). Reading it from YAML is `load.py`'s work."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag, WithJsonSchema

__all__ = [
    "Allow",
    "Batch",
    "Check",
    "Compile",
    "Gate",
    "Loss",
    "Model",
    "Optimizer",
    "Parallel",
    "Parity",
    "TensorSpec",
    "Training",
    "Witnesses",
]

DType = Literal[
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"
]
WeightDType = Literal["float64", "float32", "float16", "bfloat16"]
AutocastDType = Literal["bfloat16", "float16"]
Verdict = Literal["deny", "warn", "allow"]
Size = Annotated[int, Field(ge=0)]
_MOST = 2**63 - 1
"""What a 64-bit number holds."""
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ParallelKind = Literal["ddp", "fsdp2", "tp"]
MOST_RANKS = 64
"""Processes of one machine: a Trn2 instance has 64 logical cores."""


if TYPE_CHECKING:
    Free = Any
else:
    Free = Annotated[JsonValue, WithJsonSchema({})]  # to an editor it is any value
"""What the user's code is given as it stands, so of the types only that reach a worker unchanged: no date."""


class Part(BaseModel):
    """Base of the parts of a check: frozen and closed, so that a misspelt key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Model(Part):
    """``target`` makes the module; ``config`` is built first and passed to it as first argument."""

    target: str
    config: dict[str, Free] | None = None
    args: list[Free] = []
    kwargs: dict[str, Free] = {}
    dtype: WeightDType | None = None


class TensorSpec(Part):
    """One random tensor of a batch: ``shape`` and ``dtype``, or ``like`` another one (the same values).

    ``low`` and ``high`` bound integers (``high`` excluded) and, where given, floats (uniform; else standard normal).
    """

    shape: list[Size] | None = None
    dtype: DType = "float32"
    low: float | None = None
    high: float | None = None
    like: str | None = None


class Batch(Part):
    """One of ``target``, ``tensors`` and ``loader``, or the workload file's ``make_batch``.

    ``loader`` is an iterable of batches, such as a DataLoader, or a function that makes one; ``sample`` is how many of
    its batches are looked at for their shapes, without running the model, and ``names`` makes dicts of batches that
    are lists or tuples. ``forward`` names what the model is called with (default: all), and leaves the rest to the
    loss.
    """

    target: str | None = None
    tensors: dict[str, TensorSpec] | None = None
    loader: str | None = None
    sample: Annotated[int, Field(ge=0, le=100_000)] = 64
    names: Annotated[list[str], Field(min_length=1)] | None = None
    forward: list[str] | None = None


class Loss(Part):
    """A function of ``torch.nn.functional`` and where its two arguments are (``output.logits``, ``batch.labels``)."""

    name: str
    input: str = "output"
    target: str
    kwargs: dict[str, Free] = {}


def _loss_form(value: Any) -> str:
    return "mapping" if isinstance(value, dict | Loss) else "text"


# Told apart by form, so that a mistake in a mapping is not also called a mistake in a text.
LossForms = Annotated[Annotated[str, Tag("text")] | Annotated[Loss, Tag("mapping")], Discriminator(_loss_form)]


class Optimizer(Part):
    """An optimizer of ``torch.optim`` by ``name``, its keyword arguments beside it; or a ``target``."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    __pydantic_extra__: dict[str, Free]

    name: str | None = None
    target: str | None = None

    @property
    def options(self) -> dict[str, Free]:
        """The keyword arguments for the optimizer's class."""
        return dict(self.model_extra or {})


class Training(Part):
    """How many steps, and how one is made. ``timeout`` is seconds for the whole eager part."""

    steps: Annotated[int, Field(ge=1, le=100_000)] = 3
    warmup: Annotated[int, Field(ge=0, le=1_000)] = 1
    seed: int = 0
    autocast: AutocastDType | None = None
    clip_grad_norm: Annotated[float, Field(gt=0)] | None = None
    accumulate: Annotated[int, Field(ge=1, le=10_000)] = 1
    timeout: Seconds = 1800


class Parallel(Part):
    """How the step is spread over ``nproc`` processes, each with a device of its own.

    ``ddp`` and ``fsdp2`` give each rank its part of the batch, ``tp`` gives all of it to every rank. With ``fsdp2``,
    ``mixed_precision`` is the dtype of computation and communication, ``cpu_offload`` keeps the shards on the host, and
    ``layers`` is a glob of the modules that are sharded one by one (default: the children of every ModuleList). With
    ``tp``, ``plan`` says for globs of modules how their weights are split (default: the model's own plan). ``split``
    names what of the batch each rank gets a part of (default: every tensor whose first dimension is more than 1);
    where the batch is a tuple or a list, by position (``"0"``).
    """

    kind: ParallelKind = "ddp"
    nproc: Annotated[int, Field(ge=1, le=MOST_RANKS)] = 2
    mixed_precision: Literal["bfloat16"] | None = None
    cpu_offload: bool = False
    plan: dict[str, Literal["colwise", "rowwise"]] = {}
    layers: Annotated[str, Field(min_length=1)] | None = None
    split: list[str] | None = None


class Compile(Part):
    """The compile probe. ``timeout`` is seconds for all of it, ``op_timeout`` for lowering one op."""

    enabled: bool = True
    fullgraph: bool = False
    timeout: Seconds = 1800
    op_timeout: Seconds = 120


class Parity(Part):
    """The comparison with plain CPU. ``timeout`` is seconds for all of it.

    A tensor may differ by ``rtol`` of its size plus ``atol`` a value, or by ``rounding`` times what a rounding error in
    every parameter does to it on the CPU. ``rtol`` is that of the step's dtype by default (docs/rules/NST106.md).
    """

    enabled: bool = True
    rtol: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    atol: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    rounding: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 8.0
    timeout: Seconds = 1800


class Witnesses(Part):
    """Which witnesses are heard. What one that is off would have told is listed under ``not_checked``."""

    tracker: bool = True
    registry: bool = True
    dispatch: bool = True
    kernels: bool = True
    warnings: bool = True
    copies: bool = True
    strict: bool = True


class Allow(Part):
    """One accepted finding. Every given pattern (globs, but for ``rule`` and ``phase``) must match."""

    op: str | None = None
    rule: str | None = None
    phase: Literal["setup", "forward", "backward", "optimizer"] | None = None
    site: str | None = None
    module: str | None = None
    reason: Annotated[str, Field(min_length=1)]
    ticket: str | None = None
    expires: dt.date | None = None
    max_calls_per_step: Annotated[int, Field(le=_MOST)] | None = None
    max_bytes_per_step: Annotated[int, Field(le=_MOST)] | None = None


class Gate(Part):
    """Verdicts by class, overriding the defaults of section 9, and what is allowed."""

    fallback: Verdict | None = None
    hidden: Verdict | None = None
    host_sync: Verdict | None = None
    op_failed: Verdict | None = None
    non_finite: Verdict | None = None
    parity: Verdict | None = None
    moved: Verdict | None = None
    lowering: Verdict | None = None
    graph_break: Verdict | None = None
    recompile: Verdict | None = None
    dynamic_shape: Verdict | None = None
    compiler_limit: Verdict | None = None
    environment: Verdict | None = None
    allow: list[Allow] = []
    baseline: Path | None = None


class Check(Part):
    """One check. Paths in it are absolute once it was loaded.

    Either ``workload`` (a Python file that defines ``make_model``, ``make_batch`` and so on) or ``model`` is given;
    both may be, then the YAML's parts win over the file's.
    """

    name: str
    workload: Path | None = None
    model: Model | None = None
    batch: Batch | None = None
    loss: LossForms | None = None
    optimizer: Optimizer | None = None
    train_step: str | None = None
    training: Training = Training()
    parallel: Parallel | None = None
    device: Literal["auto", "neuron", "emulated", "cpu"] = "auto"
    profile: Path | None = None
    compile: Compile = Compile()
    parity: Parity = Parity()
    witnesses: Witnesses = Witnesses()
    gate: Gate = Gate()

    @property
    def ranks(self) -> int:
        """How many processes make its steps."""
        return self.parallel.nproc if self.parallel is not None else 1

    @property
    def files(self) -> tuple[Path, ...]:
        """The Python files it names: its workload and those of its targets."""
        config = self.model.config if self.model is not None else None
        targets = (
            self.model.target if self.model else None,
            (config or {}).get("class"),
            self.batch.target if self.batch else None,
            self.batch.loader if self.batch else None,
            self.loss if isinstance(self.loss, str) else None,
            self.optimizer.target if self.optimizer else None,
            self.train_step,
        )
        heads = (target.rpartition(":")[0] for target in targets if isinstance(target, str))
        named = tuple(Path(head) for head in heads if head.endswith(".py") or "/" in head)
        return named if self.workload is None else (self.workload, *named)
