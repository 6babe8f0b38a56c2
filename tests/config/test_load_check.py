"""What a check that is right becomes, and that no text whatever is anything but a check or a ConfigError."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from smoketest.config import Check
from smoketest.config.document import read_document
from smoketest.config.load import find_checks, load_check
from smoketest.config.models import Loss, Parallel
from smoketest.config.translate import fields_at
from smoketest.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text("class Net: ...\ndef make_batch(step): ...\ndef loss_fn(output, batch): ...\n")
    return tmp_path


def load(text: str, *overrides: str) -> Check:
    Path("c.yaml").write_text(text)
    return load_check(Path("c.yaml"), overrides)


BASE = "model: {target: net.py:Net}\nbatch: {target: net.py:make_batch}\nloss: output.loss\n"


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_check_is_valid(path: Path) -> None:
    assert load_check(path).name == path.stem


def test_the_design_s_example_is_valid(tmp_path: Path) -> None:
    Path("baselines").mkdir()
    check = load("""
name: gpt2
model:
  target: transformers:GPT2LMHeadModel
  config: {class: transformers:GPT2Config, n_layer: 4}
  dtype: float32
batch:
  tensors:
    input_ids: {shape: [4, 128], dtype: int64, low: 0, high: 50257}
    labels: {like: input_ids}
  forward: [input_ids, labels]
loss: output.loss
optimizer: {name: AdamW, lr: 1.0e-4}
training: {steps: 3, warmup: 1, seed: 0, autocast: bfloat16, clip_grad_norm: 1.0, accumulate: 1, timeout: 1800}
device: auto
compile: {enabled: true, fullgraph: false, timeout: 1800, op_timeout: 120}
parity: {enabled: true}
gate:
  graph_break: deny
  allow:
    - {op: "aten::sort*", site: "model/router.py", reason: "once per step", ticket: MIG-12, expires: 2027-03-31}
  baseline: baselines/gpt2.json
""")  # fmt: skip
    assert check.optimizer is not None
    assert check.optimizer.options == {"lr": 1e-4}
    assert check.gate.allow[0].expires == dt.date(2027, 3, 31)
    assert check.gate.baseline == tmp_path / "baselines" / "gpt2.json"
    assert Check.model_validate(check.model_dump(mode="json")) == check, "as it travels to the worker"


def test_the_name_is_the_file_s_where_none_is_given() -> None:
    Path("my first check!.yaml").write_text(BASE)
    assert load_check(Path("my first check!.yaml")).name == "my-first-check"


def test_paths_are_relative_to_the_file_and_absolute_once_loaded(tmp_path: Path) -> None:
    Path("sub").mkdir()
    Path("sub/c.yaml").write_text(BASE.replace("net.py", "../net.py"))
    check = load_check(Path("sub/c.yaml"))
    assert check.model is not None
    assert check.model.target == f"{tmp_path}/net.py:Net"


def test_a_check_knows_the_files_it_names() -> None:
    check = Check.model_validate({
        "name": "x",
        "workload": "/p/w.py",
        "model": {"target": "/p/m.py:Net", "config": {"class": "transformers:GPT2Config", "n_layer": 2}},
        "batch": {"target": "/p/b.py:batch"},
        "loss": "output.loss",
        "optimizer": {"name": "AdamW"},
        "train_step": "/p/s.py:step",
    })  # fmt: skip
    assert [str(file) for file in check.files] == ["/p/w.py", "/p/m.py", "/p/b.py", "/p/s.py"]


def test_paths_in_overrides_are_relative_to_where_they_are_typed(tmp_path: Path) -> None:
    Path("sub").mkdir()
    Path("sub/c.yaml").write_text(BASE.replace("net.py", "../net.py"))
    check = load_check(Path("sub/c.yaml"), ["model.target=net.py:Net"])
    assert check.model is not None
    assert check.model.target == f"{tmp_path}/net.py:Net"


@pytest.mark.parametrize("number", ["1e-4", "1E-4", "1.0e-4", "0.0001", ".0001", "1_0e-5"])
def test_a_number_is_a_number_in_every_way_people_write_it(number: str) -> None:
    check = load(BASE + f"optimizer: {{name: AdamW, lr: {number}}}\n")
    assert check.optimizer is not None
    assert check.optimizer.options == {"lr": 1e-4}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True), ("off", False), ("0x10", 16), ("0o17", 15), ("1_000", 1000), ("-3", -3), ("1:30", "1:30"),
        ("010", "010"), ("~", None), ("2027-03-31", dt.date(2027, 3, 31)), ("'5'", "5"), ("1.2.3", "1.2.3"),
        ("1e", "1e"), ("", None),
    ],
)  # fmt: skip
def test_scalars_mean_what_they_say(text: str, value: Any) -> None:
    assert read_document(f"- {text}", "x").data == [value]


def test_overrides_reach_into_everything() -> None:
    text = BASE.replace("net.py:Net}", "net.py:Net, config: {class: net.py:Net, n_layer: 4}}")
    check = load(
        text, "model.config.n_layer=2", "training.steps=7", "optimizer.name=SGD", "optimizer.lr=1e-3",
        "loss={name: mse_loss, target: batch.y}", "device=cpu",
    )  # fmt: skip
    assert check.model is not None
    assert check.model.config is not None
    assert check.model.config["n_layer"] == 2
    assert check.model.config["class"].endswith("/net.py:Net")
    assert check.training.steps == 7
    assert check.optimizer is not None
    assert check.optimizer.options == {"lr": 1e-3}
    assert isinstance(check.loss, Loss)
    assert check.device == "cpu"


def test_parallel_in_its_short_form_is_the_long_one_and_can_be_overridden() -> None:
    short = load(BASE + "parallel: fsdp2\n")
    assert short.parallel == Parallel(kind="fsdp2", nproc=2)
    assert load(BASE + "parallel: fsdp2\n", "parallel.nproc=4").parallel == Parallel(kind="fsdp2", nproc=4)
    assert load(BASE, "parallel=tp").parallel == Parallel(kind="tp")
    assert load(BASE, "parallel=ddp", "parallel.nproc=4").parallel == Parallel(kind="ddp", nproc=4)
    assert (load(BASE).ranks, short.ranks, load(BASE, "parallel.nproc=1").ranks) == (1, 2, 1)


def test_a_file_that_makes_its_names_at_run_time_is_taken_on_trust() -> None:
    Path("net.py").write_text("globals()['Net'] = 1\nglobals()['make_batch'] = 1\n")
    assert load(BASE).model is not None
    Path("net.py").write_text("from os import *\n")
    assert load(BASE).model is not None


def test_looking_names_up_runs_no_user_code(folder: Path) -> None:
    (folder / "pkg" / "sub").mkdir(parents=True)
    for init in ("pkg/__init__.py", "pkg/sub/__init__.py"):
        Path(init).write_text("raise SystemExit('this was run')\n")
    Path("pkg/sub/net.py").write_text("class Net: ...\nraise SystemExit('this was run')\n")
    check = load(BASE.replace("net.py:Net", "pkg.sub.net:Net"))
    assert check.model is not None
    assert check.model.target == "pkg.sub.net:Net"


def test_compiled_and_built_in_modules_are_taken_on_trust() -> None:
    assert load(BASE.replace("net.py:Net", "math:sqrt")).model is not None
    assert load(BASE.replace("net.py:Net", "pydantic_core._pydantic_core:SchemaValidator")).model is not None
    assert load(BASE.replace("net.py:Net", "transformers:GPT2LMHeadModel")).model is not None
    assert load(BASE.replace("net.py:Net", "torch.nn:Linear")).model is not None


def test_a_folder_stands_for_the_checks_directly_in_it() -> None:
    Path("checks/deeper").mkdir(parents=True)
    for name in ("b.yaml", "a.yml", ".hidden.yaml", "note.txt", "deeper/c.yaml"):
        Path("checks", name).write_text(BASE)
    assert find_checks([Path("checks"), Path("checks/b.yaml")]) == [Path("checks/a.yml"), Path("checks/b.yaml")]


def test_the_keys_named_in_hints_are_those_of_the_models() -> None:
    assert fields_at(("batch", "tensors", "anything")) == ("shape", "dtype", "low", "high", "like")
    assert "reason" in fields_at(("gate", "allow", 0))
    assert fields_at(("loss",)) == ("name", "input", "target", "kwargs")


def test_loading_a_check_imports_no_torch() -> None:
    code = (
        "import sys; from pathlib import Path; from smoketest.config.load import load_check;"
        "load_check(Path(sys.argv[1])); assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(ROOT / "configs" / "gpt2.yaml")], check=True)


ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([*Check.model_fields, "target", "config", "class", "tensors", "shape", "like", "x", "lr"])
ALMOST = st.dictionaries(
    KEYS, ANY_VALUE | st.dictionaries(KEYS, ANY_VALUE | st.dictionaries(KEYS, ANY_VALUE, max_size=4), max_size=4)
)
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ends_in_a_check_or_a_config_error(data: bytes, *overrides: str) -> None:
    Path("c.yaml").write_bytes(data)
    try:
        check = load_check(Path("c.yaml"), overrides)
    except ConfigError:
        return
    assert Check.model_validate_json(check.model_dump_json()).name == check.name


@FUZZ
@given(st.binary(max_size=200))
@example(b'"\\UFFFFFFFF"')
@example(b"%YAML 9.9\n---\n")
@example(b"? [a]\n: b\n")
@example(b"? {a: b}\n: c\n")
@example(b"!!int x")
@example(b"!!timestamp x")
@example(b"!!bool maybe")
@example(b"!<tag:yaml.org,2002:map> x")
@example(b"&a [*a]")
@example(b"{" * 3000)
@example(b"x: " + b"9" * 6000)
@example(b"x: 1e999")
def test_any_bytes_end_in_a_config_error(data: bytes) -> None:
    ends_in_a_check_or_a_config_error(data)


@FUZZ
@given(st.text(max_size=200))
def test_any_text_ends_in_a_config_error(text: str) -> None:
    ends_in_a_check_or_a_config_error(text.encode("utf-8", "surrogatepass"))


@FUZZ
@given(ALMOST)
@example({"model": {"target": "a\0.py:b"}})
@example({"model": {"target": "x" * 5000 + ".py:b"}})
@example({"workload": "a\0"})
@example({"workload": "/" + "x" * 300})
@example({"workload": "."})
@example({"model": {"target": "..:b"}})
@example({"model": {"target": "__main__:b"}})
@example({"gate": {"baseline": "\0"}})
@example({"model": {"target": "net.py:Net", "config": {"class": ["x"]}}, "batch": None, "loss": ""})
def test_any_mapping_ends_in_a_config_error(data: dict[str, Any]) -> None:
    ends_in_a_check_or_a_config_error(yaml.safe_dump(data, allow_unicode=True).encode("utf-8", "surrogatepass"))


@FUZZ
@given(st.text(max_size=60) | st.tuples(KEYS, KEYS, st.text(max_size=20)).map(lambda t: f"{t[0]}.{t[1]}={t[2]}"))
@example("=")
@example("a.=1")
@example("model.target.x=1")
@example("batch=[1]")
def test_any_override_ends_in_a_config_error(text: str) -> None:
    ends_in_a_check_or_a_config_error(BASE.encode(), text)


def test_a_user_file_that_warns_on_compilation_is_looked_at_in_silence() -> None:
    Path("net.py").write_text("class Net: ...\ndef make_batch(step): return '\\d'\n")
    assert load(BASE).model is not None
