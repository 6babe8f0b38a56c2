"""The schema that editors complete checks with agrees with what is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from jsonschema import Draft202012Validator

from smoketest.config.load import load_check
from smoketest.config.schema import check_schema
from smoketest.errors import ConfigError

ROOT = Path(__file__).parents[2]
SCHEMA = check_schema()
FULL = """
name: full
model: {target: "net.py:Net", config: {class: "net.py:Net", n: 1}, args: [1], kwargs: {a: 1}, dtype: bfloat16}
batch: {tensors: {x: {shape: [2, 3], dtype: int64, low: 0, high: 5}, y: {like: x}}, forward: [x]}
loss: {name: cross_entropy, input: output.logits, target: batch.y, kwargs: {reduction: sum}}
optimizer: {name: AdamW, lr: 1.0e-4, betas: [0.9, 0.99]}
training: {steps: 3, warmup: 1, seed: 0, autocast: bfloat16, clip_grad_norm: 1.0, accumulate: 1, timeout: 1800}
parallel: {kind: tp, nproc: 2, mixed_precision: null, cpu_offload: false, plan: {"*.q": colwise}, layers: null}
device: auto
compile: {enabled: true, fullgraph: false, timeout: 1800, op_timeout: 120}
parity: {enabled: true}
witnesses: {strict: false}
gate:
  graph_break: deny
  allow:
    - {op: "aten::sort*", site: a.py, reason: small, ticket: MIG-12, expires: 2027-03-31, max_calls_per_step: 3}
  baseline: b.json
"""


def mistakes(text: str) -> list[str]:
    """What the schema has against a YAML; dates as an editor sees them, which is text."""
    data = yaml.load(text, Loader=_Loader)
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(data)]


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: ClassVar[Any] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("file", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_checks_that_ship_fit_it(file: Path) -> None:
    assert mistakes(file.read_text()) == []


def test_the_checks_of_the_readme_fit_it() -> None:
    texts = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert texts
    for text in texts:
        assert mistakes(text) == []


def test_a_check_with_every_key_fits_it_and_is_read(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("class Net: ...\n")
    (tmp_path / "c.yaml").write_text(FULL)
    assert mistakes(FULL) == []
    assert load_check(tmp_path / "c.yaml").name == "full"


def test_the_short_form_of_parallel_fits_it_too() -> None:
    assert mistakes(BASE + "parallel: fsdp2") == []


BASE = "model: {target: net.py:Net}\nbatch: {target: net.py:make_batch}\nloss: output.loss\n"


@pytest.mark.parametrize("text", [
    "[]",
    "loss: output.loss",
    BASE + "name: a b",
    BASE + "modle: x",
    BASE + "device: tpu",
    BASE + "training: {steps: 0}",
    BASE + "training: {steps: '3'}",
    BASE + "training: {step: 3}",
    BASE + "training: {timeout: -1}",
    BASE + "parallel: dpd",
    BASE + "parallel: {kind: dp}",
    BASE + "parallel: {nproc: 0}",
    BASE + "parallel: {kind: fsdp2, mixed_precision: float16}",
    BASE + "parallel: {kind: tp, plan: {q: columns}}",
    BASE + "gate: {fallback: refuse}",
    BASE + "gate: {allow: [{op: x}]}",
    BASE + "gate: {allow: [{reason: x}]}",
    BASE + "gate: {allow: [{rule: NST1, reason: x}]}",
    BASE.replace("{target: net.py:make_batch}", "{tensors: {x: {dtype: float32}}}"),
    BASE.replace("{target: net.py:make_batch}", "{tensors: {x: {shape: [2], like: y}}}"),
    BASE.replace("{target: net.py:make_batch}", "{tensors: {x: {shape: [-2]}}}"),
    BASE.replace("{target: net.py:make_batch}", "{}"),
    BASE.replace("{target: net.py:make_batch}", "{target: a:b, tensors: {x: {shape: [2]}}}"),
    BASE.replace("output.loss", "{name: mse_loss}"),
    BASE.replace("{target: net.py:Net}", "{target: net.py:Net, config: {n: 1}}"),
])  # fmt: skip
def test_what_reading_refuses_an_editor_marks_too(tmp_path: Path, text: str) -> None:
    (tmp_path / "net.py").write_text("class Net: ...\ndef make_batch(step): ...\n")
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError):
        load_check(tmp_path / "c.yaml")
    assert mistakes(text) != []


def test_every_key_has_a_description_and_no_title_made_of_its_name() -> None:
    parts: list[tuple[str, Any]] = [("Check", SCHEMA), *SCHEMA["$defs"].items()]
    bare = [f"{name}.{key}" for name, part in parts for key, field in part["properties"].items()
            if not field.get("description") or "title" in field]  # fmt: skip
    assert bare == []


def test_texts_are_those_of_parts_and_keys_that_exist() -> None:
    from smoketest.config.schema import _KEYS

    assert {name: set(keys) for name, keys in _KEYS.items()} == {
        name: set(part["properties"]) for name, part in [("Check", SCHEMA), *SCHEMA["$defs"].items()]
    }
