"""Checks of every kind that a generator comes up with: a check, or a message, and never an error of ours."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from smoketest.cli.output import error_text
from smoketest.config.load import find_checks, load_check
from smoketest.config.models import Check
from smoketest.config.schema import check_schema
from smoketest.errors import ConfigError
from tests.faults.harness import EXIT_CODES, LONG, NET, Stage, long

SHIPPED = Path(__file__).parents[2] / "configs"
VALIDATED = 4_000 if LONG else 400
RUN = 200
MOST = 12_000
"""Characters of one check's messages: ten mistakes, with a value of the user's in each."""


def keys_of(schema: Any) -> set[str]:
    """Every key that a check may have anywhere."""
    found: set[str] = set()
    if isinstance(schema, dict):
        found |= set(schema.get("properties", {}))
        found |= {key for value in schema.values() for key in keys_of(value)}
    elif isinstance(schema, list):
        found |= {key for value in schema for key in keys_of(value)}
    return found


KEYS = sorted(keys_of(check_schema()) | {"x", "", "a.b", "<<", "é", "null", "on"})
WORDS = [
    "net.py:Net", "net.py:", ":Net", "net.py", "torch.nn:Linear", "no.such:thing", "..:x", "os:system", "float32",
    "bfloat16", "int64", "mse_loss", "output.loss", "batch.x", "output", "auto", "emulated", "deny", "../../x",
    "/dev/zero", "/etc/passwd", "~/x", "con", "a" * 300, "\u202e", "\U0001f9e0", "1e999", "0x10", "1_000",
    "yes", "2027-02-30", "aten::sort*", "*", "[", "{}", "%s{0}", "${HOME}", "x\n  y: z",
]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats()
    | st.dates()
    | st.sampled_from(WORDS)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
    | st.binary(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=10,
)
VALID: list[dict[str, Any]] = [
    {
        "name": "net",
        "model": {"target": "net.py:Net", "kwargs": {"act": "nothing", "at": "never"}},
        "batch": {"tensors": {"x": {"shape": [2, 4], "dtype": "float32"}, "y": {"like": "x"}}, "forward": ["x"]},
        "loss": {"name": "mse_loss", "target": "batch.y"},
        "optimizer": {"name": "AdamW", "lr": 1e-4},
        "training": {"steps": 1, "warmup": 0, "seed": 0, "clip_grad_norm": 1.0, "accumulate": 1, "timeout": 60},
        "device": "cpu",
        "compile": {"enabled": False, "fullgraph": False, "timeout": 60, "op_timeout": 60},
        "parity": {"enabled": False},
        "gate": {
            "graph_break": "deny",
            "allow": [{"op": "aten::sort*", "reason": "few elements", "expires": "2027-03-31"}],
        },
    },
]
"""What is changed; the shipped checks are added in `shipped`."""


def shipped() -> list[dict[str, Any]]:
    """The shipped checks that name no installed package but PyTorch: looking names up in others takes its time."""
    found = [yaml.safe_load(path.read_text("utf-8")) for path in sorted(SHIPPED.glob("*.yaml"))]
    return [check for check in found if "transformers" not in str(check)]


def places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a document."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [at, *(place for key, value in inner for place in places(value, (*at, key)))]


@st.composite
def changed(draw: DrawFn, valid: list[dict[str, Any]]) -> Any:
    """A valid check with one to four things of it taken out, put elsewhere, or made something else."""
    data = copy.deepcopy(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(1, 4))):
        *way, last = draw(st.sampled_from(places(data)[1:] or [("name",)]))
        holder = data
        for key in way:
            holder = holder[key]
        how = draw(st.sampled_from(["another", "another", "gone", "renamed", "beside", "wrapped"]))
        match how:
            case "gone":
                del holder[last]
            case "renamed" if isinstance(holder, dict):
                holder[draw(st.sampled_from(KEYS))] = holder.pop(last)
            case "beside" if isinstance(holder, dict):
                holder[draw(st.sampled_from(KEYS))] = draw(VALUES)
            case "wrapped":
                holder[last] = [holder[last]] if draw(st.booleans()) else {draw(st.sampled_from(KEYS)): holder[last]}
            case _:
                holder[last] = draw(VALUES)
    return data


def as_yaml(data: Any) -> bytes:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(data, Dumper=dumper, allow_unicode=True, sort_keys=False)
    return text.encode("utf-8", "surrogatepass")


@st.composite
def texts(draw: DrawFn, valid: list[dict[str, Any]]) -> bytes:
    """The text of a check: of a document, or one with a few of its bytes changed, or of any document at all."""
    kind = draw(st.sampled_from(["changed"] * 6 + ["bytes", "bytes", "random", "text"]))
    if kind == "random":
        return as_yaml(draw(VALUES))
    if kind == "text":
        return draw(st.text("-:?[]{}&*!|>'\"%@`#,\n\t ab10~<=", max_size=120)).encode()
    data = bytearray(as_yaml(draw(changed(valid)) if kind == "changed" else draw(st.sampled_from(valid))))
    for _ in range(draw(st.integers(1, 5)) if kind == "bytes" else 0):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 6))] = draw(
            st.sampled_from(
                [b"", b"\n", b"\t", b":", b"- ", b"&a ", b"*a", b"{", b"]", b'"', b"'", b"\0", b"\xff", b"|\n", b"#"]
            )
            | st.binary(max_size=4)
        )
    return bytes(data)


def ends_well(path: Path) -> str:
    """What reading a check comes to: ``a check`` that survives the way to a worker, or ``a message``."""
    try:
        check = load_check(path)
    except ConfigError as error:
        text = error_text(error)
        assert text.isprintable() or set(text) - set(filter(str.isprintable, text)) <= {"\n", "\t"}
        assert text.startswith("error: ")
        assert len(text) < MOST
        return "a message"
    assert Check.model_validate_json(check.model_dump_json()) == check
    return "a check"


def test_whatever_a_generator_comes_up_with_ends_in_a_check_or_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET.read_text("utf-8"), encoding="utf-8")
    (tmp_path / "workloads").symlink_to(SHIPPED / "workloads")
    valid = VALID + shipped()
    seen = {"a check": 0, "a message": 0}
    path = tmp_path / "c.yaml"

    @settings(
        max_examples=VALIDATED,
        deadline=None,
        derandomize=not LONG,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(texts(valid))
    def any_check(data: bytes) -> None:
        path.write_bytes(data)
        seen[ends_well(path)] += 1

    any_check()
    assert sum(seen.values()) >= VALIDATED
    assert min(seen.values()) > VALIDATED / 50, f"one-sided: {seen}"


TAME = ("target", "workload", "timeout", "op_timeout", "baseline", "profile")
"""Keys whose values a run takes to files and waits for: those of the checks that run are left as they are."""


def small(rng: random.Random) -> Any:
    """A value that asks for little time and memory."""
    return rng.choice([
        None, True, False, 0, 1, 2, 3, -1, 1.5, float("inf"), float("nan"), "", "x", "y", "batch.x", "batch.y",
        "output", "output.loss", "float16", "bfloat16", "int64", "float64", "bool", "SGD", "Adam", "mse_loss",
        "l1_loss", "cross_entropy", "emulated", "auto", "neuron", [], {}, [2, 4], [4, 2], [0], [1, 1, 4], ["x", "y"],
        {"x": 1}, "é\u202e",
    ])  # fmt: skip


def for_a_run(seed: int) -> Any:
    """A valid check with one or two values changed, none of which makes it long."""
    rng = random.Random(seed)
    data = copy.deepcopy(VALID[0])
    for _ in range(rng.choice((1, 1, 2))):
        way = rng.choice([place for place in places(data)[1:] if not set(place) & set(TAME)])
        holder = data
        for key in way[:-1]:
            holder = holder[key]
        change: Callable[[], None] = rng.choice((
            lambda holder=holder, key=way[-1]: holder.__setitem__(key, small(rng)),  # type: ignore[misc]
            lambda holder=holder, key=way[-1]: holder.__setitem__(key, small(rng)),  # type: ignore[misc]
            lambda holder=holder, key=way[-1]: holder.__delitem__(key),  # type: ignore[misc]
        ))  # fmt: skip
        change()
    if isinstance(data, dict):
        data["name"] = f"fuzz{seed}"
    return data


@long
@pytest.mark.parametrize("part", range(10))
def test_two_hundred_checks_run_to_a_report_or_a_message(stage: Stage, part: int) -> None:
    seeds = range(part * RUN // 10, (part + 1) * RUN // 10)
    for seed in seeds:
        (stage.work / f"fuzz{seed}.yaml").write_bytes(as_yaml(for_a_run(seed)))
    ended = stage.run("run", ".", "--no-compile", timeout=280)
    rows = json.loads((ended.output / "summary.json").read_text())["checks"]
    assert len(rows) == len(seeds) == len(find_checks([stage.work]))
    assert {row["exit_code"] for row in rows} <= EXIT_CODES
    crashed = [row for row in rows if row["exit_code"] == 5]
    assert crashed == [], "nothing in these checks kills a process"
    for seed in seeds:
        if (ended.output / f"fuzz{seed}").exists():
            ended.report(f"fuzz{seed}")
