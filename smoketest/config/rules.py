"""What the parts of a check owe one another, beyond the type of each."""

from __future__ import annotations

import difflib
import importlib.util
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from smoketest.config.document import Path_, describe
from smoketest.config.models import Batch, Check, Loss, TensorSpec
from smoketest.config.paths import profile_fault
from smoketest.config.targets import suggest
from smoketest.errors import Place

__all__ = ["Mistake", "mistakes"]

_INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
# What `low` and `high` may be. The values themselves are below `high`, but for int64: torch takes no larger one.
_RANGES: dict[str, tuple[float, float]] = {
    "int64": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31),
    "int16": (-(2**15), 2**15),
    "int8": (-(2**7), 2**7),
    "uint8": (0, 2**8),
    "bool": (0, 2),
    "float16": (-65504, 65504),
    "bfloat16": (-3.38e38, 3.38e38),
    "float32": (-3.4e38, 3.4e38),
    "complex64": (-3.4e38, 3.4e38),
    "float64": (-1.79e308, 1.79e308),
}
_MOST_IN_A_DIMENSION = 2**31
_MOST_ELEMENTS = 2**40
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OUTPUT_PATH = re.compile(r"""output(\.\w+|\[(\d+|"[^"\]]*"|'[^'\]]*')\])*""")
_LOSS_PATH = re.compile(r"""(output|batch)(\.\w+|\[(\d+|"[^"\]]*"|'[^'\]]*')\])*""")


@dataclass(frozen=True)
class Mistake:
    """A broken rule: where in the check, what, and what to do; `place` where it is not in the check itself."""

    path: Path_
    message: str
    hint: str | None = None
    place: Place | None = None


def mistakes(
    check: Check, workload_names: frozenset[str] | None, unused: Mapping[str, int] | None = None
) -> Iterator[Mistake]:
    """All broken rules of a valid check, top to bottom.

    Args:
        check: the check.
        workload_names: names its workload file defines; None where they cannot be known.
        unused: functions the workload file defines and never mentions again, with their lines.
    """
    yield from _name(check)
    yield from _makers(check, workload_names)
    yield from _near_misses(check, workload_names, unused or {})
    if check.model is not None and check.model.config is not None:
        yield from _model_config(check)
    if check.batch is not None:
        yield from _batch(check.batch, chooses_only=_chooses_only(check))
    yield from _loss(check)
    yield from _optimizer(check)
    yield from _seed(check.training.seed)
    yield from _parallel(check)
    if check.profile is not None and (fault := profile_fault(check.profile)) is not None:
        yield Mistake(("profile",), f"profile: {check.profile.name} is not an operator profile: {fault}",
                      "`smoketest operators export` writes one; without the key the packaged one is used")  # fmt: skip
    for index, entry in enumerate(check.gate.allow):
        if not any((entry.op, entry.rule, entry.phase, entry.site, entry.module)):
            yield Mistake(("gate", "allow", index), "an entry that names no finding allows everything",
                          "give one of op, rule, phase, site, module")  # fmt: skip
        if entry.rule is not None and not re.fullmatch(r"NST\d{3}", entry.rule):
            yield Mistake(("gate", "allow", index, "rule"), f"expected a rule such as NST101, found {entry.rule!r}")


def _seed(seed: int) -> Iterator[Mistake]:
    if not -(2**63) <= seed < 2**64:
        yield Mistake(("training", "seed"), "training.seed: expected a whole number of at most 64 bits,"
                      f" found {describe(seed)}")  # fmt: skip


def _parallel(check: Check) -> Iterator[Mistake]:
    """What belongs to another kind, and what cannot be spread over so many ranks."""
    parallel = check.parallel
    if parallel is None:
        return
    for key, kind in (("mixed_precision", "fsdp2"), ("cpu_offload", "fsdp2"), ("layers", "fsdp2"), ("plan", "tp")):
        if getattr(parallel, key) and parallel.kind != kind:
            yield Mistake(("parallel", key), f"parallel.{key} is for {kind}, and the kind is {parallel.kind}",
                          f"remove it, or write kind: {kind}")  # fmt: skip
    if parallel.split is not None and parallel.kind == "tp":
        yield Mistake(("parallel", "split"), "parallel.split is for ddp and fsdp2: under tp every rank gets all of the"
                      " batch", "remove it")  # fmt: skip
    if parallel.nproc > 1 and check.device == "cpu":
        yield Mistake(("parallel", "nproc"), f"parallel: {parallel.nproc} ranks need device neuron or emulated: on"
                      " plain CPU there is nothing to see", "use --nproc 1 for one plain process")  # fmt: skip
    if parallel.nproc > 1 and parallel.kind != "tp":
        tensors = check.batch.tensors or {} if check.batch is not None else {}
        split = tensors if parallel.split is None else parallel.split
        yield from _split(parallel.nproc, {name: spec for name, spec in tensors.items() if name in split})


def _split(ranks: int, tensors: Mapping[str, TensorSpec]) -> Iterator[Mistake]:
    """Tensors of a batch that do not fall into as many equal parts as there are ranks."""
    for name, spec in tensors.items():
        size = spec.shape[0] if spec.shape else None
        if size not in (None, 1) and size % ranks:
            yield Mistake(("batch", "tensors", name, "shape", 0), f"batch.tensors.{name}: the first dimension, {size},"
                          f" does not split into equal parts for {ranks} ranks",
                          f"use a multiple of {ranks}, or other --nproc")  # fmt: skip


def _name(check: Check) -> Iterator[Mistake]:
    if not _NAME.fullmatch(check.name):
        message = f"name: expected a folder's name of letters, digits, '.', '_' and '-', found {check.name!r}"
        yield Mistake(("name",), message, "the report is written to a folder of this name")


def _makers(check: Check, names: frozenset[str] | None) -> Iterator[Mistake]:
    """Every part has a maker: a key of the check, or a function in the workload file."""
    in_file = names or frozenset()
    unknown = check.workload is not None and names is None
    if check.workload is None and check.model is None:
        yield Mistake((), "a check needs a model or a workload",
                      "add `model: {target: package.module:callable}` or `workload: path/to/file.py`")  # fmt: skip
        return
    where: Path_ = ("workload",) if check.workload is not None else ()
    wanted = [
        ("model", check.model is not None, ("make_model",), "model"),
        ("batch", check.batch is not None and not _chooses_only(check), ("make_batch",), "batch"),
        (
            "loss",
            check.loss is not None or check.train_step is not None,
            ("loss_fn", "train_step"),
            "loss or train_step",
        ),
    ]
    for what, given, functions, keys in wanted:
        if given or unknown or in_file & set(functions):
            continue
        if check.workload is None:
            yield Mistake(where, f"a check needs a {what}", f"add {keys}")
        else:
            near = next((hint for f in functions if (hint := suggest(f, in_file))), None)
            missing = f"{check.workload.name} defines no {' or '.join(functions)}"
            yield Mistake(where, f"{missing}, and the check gives no {keys}", near)


def _near_misses(check: Check, names: frozenset[str] | None, unused: Mapping[str, int]) -> Iterator[Mistake]:
    """Functions of the workload file that would be left out without a word, for a slip in their names.

    Only ``make_optimizer`` and ``train_step`` may be missing; without the others there is an error anyhow.
    """
    if check.workload is None or names is None:
        return
    optional = [("make_optimizer", check.optimizer), ("train_step", check.train_step)]
    for wanted, given in optional:
        if given is not None or wanted in names:
            continue
        for near in difflib.get_close_matches(wanted, unused, n=1, cutoff=0.85):
            yield Mistake(
                ("workload",), f"{near} is not used", f"did you mean {wanted!r}?",
                Place(str(check.workload), unused[near]),
            )  # fmt: skip


def _chooses_only(check: Check) -> bool:
    """Whether ``batch`` makes nothing, but chooses from what the workload file's ``make_batch`` gives."""
    batch = check.batch
    made_here = batch is not None and bool(_made_by(batch))
    return check.workload is not None and batch is not None and bool(batch.forward) and not made_here


def _model_config(check: Check) -> Iterator[Mistake]:
    config = check.model.config if check.model and check.model.config else {}
    if not isinstance(config.get("class"), str):
        yield Mistake(("model", "config"), "model.config: expected class: package.module:Class beside its arguments",
                      "for example {class: transformers:GPT2Config, n_layer: 4}")  # fmt: skip


def _made_by(batch: Batch) -> list[str]:
    """The keys that say what makes the batches."""
    made = {"target": batch.target, "tensors": batch.tensors, "loader": batch.loader}
    return [key for key, value in made.items() if value is not None]


def _batch(batch: Batch, *, chooses_only: bool) -> Iterator[Mistake]:
    made_by = _made_by(batch)
    if len(made_by) > 1 or (not made_by and not chooses_only):
        found = " and ".join(made_by) or "none of them"
        yield Mistake(("batch",), f"batch: expected one of target, tensors and loader, found {found}")
        return
    if batch.loader is None and {"sample", "names"} & batch.model_fields_set:
        key = "sample" if "sample" in batch.model_fields_set else "names"
        yield Mistake(("batch", key), f"batch.{key} is about a loader, and there is none")
    names = batch.names or []
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield Mistake(("batch", "names"), f"batch.names has {name!r} twice")
    if batch.names is not None:
        for index, name in enumerate(batch.forward or ()):
            if name not in names:
                message = f"batch.forward names {name!r}, which is not among batch.names"
                yield Mistake(("batch", "forward", index), message, suggest(name, names) or _names(names))
    tensors = batch.tensors or {}
    if batch.tensors is not None and not tensors:
        yield Mistake(("batch", "tensors"), "batch.tensors: expected at least one tensor")
    for name, spec in tensors.items():
        yield from _tensor(name, spec, tensors)
    if batch.forward is None:
        return
    for index, name in enumerate(batch.forward):
        if batch.tensors is not None and name not in tensors:
            message = f"batch.forward names {name!r}, which is not among batch.tensors"
            yield Mistake(("batch", "forward", index), message, suggest(name, tensors) or _names(tensors))
        elif name in batch.forward[:index]:
            yield Mistake(("batch", "forward", index), f"batch.forward names {name!r} twice")


def _names(names: Iterable[str]) -> str | None:
    known = ", ".join(names)
    return f"there are {known}" if known else None


def _tensor(name: str, spec: TensorSpec, tensors: dict[str, TensorSpec]) -> Iterator[Mistake]:
    path: Path_ = ("batch", "tensors", name)
    what = f"batch.tensors.{name}"
    if (spec.shape is None) == (spec.like is None):
        both = "both" if spec.shape is not None else "neither"
        yield Mistake(path, f"{what}: expected one of shape and like, found {both}")
    elif spec.like is not None:
        yield from _like(path, what, name, spec, tensors)
    else:
        yield from _size(path, what, spec.shape or [])
        yield from _integer_bounds(path, what, spec) if spec.dtype in _INTEGERS else _float_bounds(path, what, spec)


def _size(path: Path_, what: str, shape: list[int]) -> Iterator[Mistake]:
    """Sizes that are a slip of the pen: far from what a machine holds, and near to what torch cannot count."""
    for index, size in enumerate(shape):
        if size > _MOST_IN_A_DIMENSION:
            yield Mistake((*path, "shape", index), f"{what}.shape[{index}]: expected at most {_MOST_IN_A_DIMENSION:,},"
                          f" found {describe(size)}")  # fmt: skip
            return
    if math.prod(shape) > _MOST_ELEMENTS:
        yield Mistake((*path, "shape"), f"{what}.shape: expected at most {_MOST_ELEMENTS:,} elements in all,"
                      f" found {describe(math.prod(shape))}")  # fmt: skip


def _like(path: Path_, what: str, name: str, spec: TensorSpec, tensors: dict[str, TensorSpec]) -> Iterator[Mistake]:
    extra = sorted(spec.model_fields_set - {"like"})
    if extra:
        yield Mistake((*path, extra[0]), f"{what}: a tensor that is like another one takes no {extra[0]}")
    seen, here = [name], spec
    while here.like is not None:
        if here.like not in tensors:
            yield Mistake((*path, "like"), f"{what}: like names {here.like!r}, which is not among batch.tensors",
                          suggest(here.like, tensors) or _names(tensors))  # fmt: skip
            return
        if here.like in seen:
            yield Mistake((*path, "like"), f"{what}: like goes round in a circle")
            return
        seen.append(here.like)
        here = tensors[here.like]


def _integer_bounds(path: Path_, what: str, spec: TensorSpec) -> Iterator[Mistake]:
    if spec.high is None:
        yield Mistake(path, f"{what}: integers need high, the first value that is not drawn",
                      "for token ids it is the size of the vocabulary")  # fmt: skip
        return
    for key, bound in (("low", spec.low), ("high", spec.high)):
        if bound is not None and bound != int(bound):
            yield Mistake((*path, key), f"{what}: expected a whole number for {key}, found {bound}")
            return
    if not (spec.low or 0) < spec.high:
        yield Mistake((*path, "high"), f"{what}: expected high above low")
    yield from _range(path, what, spec)


def _float_bounds(path: Path_, what: str, spec: TensorSpec) -> Iterator[Mistake]:
    if (spec.low is None) != (spec.high is None):
        yield Mistake(path, f"{what}: low and high are given together", "or neither: standard normal values")
        return
    if spec.low is not None and spec.high is not None and not spec.low < spec.high:
        yield Mistake((*path, "high"), f"{what}: expected high above low")
    yield from _range(path, what, spec)


def _range(path: Path_, what: str, spec: TensorSpec) -> Iterator[Mistake]:
    """Bounds that the dtype cannot hold."""
    lowest, highest = _RANGES[spec.dtype]
    if spec.low is not None and spec.low < lowest:
        yield Mistake((*path, "low"), f"{what}: expected at least {lowest:,} for low of {spec.dtype},"
                      f" found {_number(spec.low)}")  # fmt: skip
    if spec.high is not None and spec.high > highest:
        yield Mistake((*path, "high"), f"{what}: expected at most {highest:,} for high of {spec.dtype},"
                      f" found {_number(spec.high)}")  # fmt: skip


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:g}"


def _loss(check: Check) -> Iterator[Mistake]:
    loss = check.loss
    if loss is not None and check.train_step is not None:
        yield Mistake(
            ("train_step",), "train_step replaces the whole step, so loss is never used", "remove one of them"
        )
    if isinstance(loss, Loss):
        known = _torch_losses()
        if known and loss.name not in known:
            yield Mistake(
                ("loss", "name"), f"loss.name: torch.nn.functional has no {loss.name!r}", suggest(loss.name, known)
            )
        for key, path in (("input", loss.input), ("target", loss.target)):
            if not _LOSS_PATH.fullmatch(path):
                yield Mistake(
                    ("loss", key), f"loss.{key}: expected a path such as output.logits or batch.labels, found {path!r}"
                )
    elif loss is not None and ":" not in loss and not _OUTPUT_PATH.fullmatch(loss):
        yield Mistake(
            ("loss",), f"loss: expected a path such as output.loss, or a target, found {loss!r}", _loss_hint(loss)
        )


def _loss_hint(loss: str) -> str | None:
    if loss in _torch_losses():
        return f"write {{name: {loss}, input: output.logits, target: batch.labels}}"
    return "a function of yours is path/to/file.py:loss_fn"


def _optimizer(check: Check) -> Iterator[Mistake]:
    optimizer = check.optimizer
    if optimizer is None:
        return
    if (optimizer.name is None) == (optimizer.target is None):
        both = "both" if optimizer.name is not None else "neither"
        near = next((h for key in optimizer.options if (h := suggest(key, ("name", "target")))), None)
        yield Mistake(("optimizer",), f"optimizer: expected one of name and target, found {both}",
                      near or "for example {name: AdamW, lr: 1.0e-4}")  # fmt: skip
        return
    if optimizer.target is not None and optimizer.options:
        key = next(iter(optimizer.options))
        yield Mistake(
            ("optimizer", key), f"optimizer.{key}: a target makes its optimizer itself and takes no arguments here"
        )
    known = _torch_optimizers()
    if optimizer.name is not None and known and optimizer.name not in known:
        yield Mistake(("optimizer", "name"), f"optimizer.name: torch.optim has no {optimizer.name!r}",
                      _other_case(optimizer.name, known) or suggest(optimizer.name, known))  # fmt: skip


def _other_case(name: str, known: Iterable[str]) -> str | None:
    same = [other for other in known if other.lower() == name.lower()]
    return f"did you mean {same[0]!r}?" if same else None


# Names in torch's own source files: reading them takes no import of torch.


def _torch_source(relative: str) -> str:
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder) / relative
        if file.is_file():
            return file.read_text(encoding="utf-8", errors="replace")
    return ""


def _torch_losses() -> list[str]:
    source = _torch_source("nn/functional.py")
    return [name for name in re.findall(r"^(?:def )?([a-z]\w*)(?:\(| = )", source, re.M) if not name.startswith("_")]


def _torch_optimizers() -> list[str]:
    source = _torch_source("optim/__init__.py")
    return [name for name in re.findall(r"\b[A-Z]\w*", source) if name != "Optimizer"]
