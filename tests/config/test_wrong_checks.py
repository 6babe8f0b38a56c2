"""What a person reads when a check is wrong: the whole text, with the place and the next thing to do."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from smoketest.config.load import MAX_SIZE, find_checks, load_check
from smoketest.errors import ConfigError

GOOD = """\
model: {target: net.py:Net}
batch:
  tensors:
    x: {shape: [2, 3]}
    y: {like: x}
  forward: [x]
loss: {name: mse_loss, input: output, target: batch.y}
"""

NET = """\
import torch
if True:
    class Net(torch.nn.Module): ...
def make_batch(step): ...
limit: int = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    return tmp_path


def message(text: str, *overrides: str) -> str:
    Path("c.yaml").write_text(textwrap.dedent(text))
    with pytest.raises(ConfigError) as caught:
        load_check(Path("c.yaml"), overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_the_good_check_is_good() -> None:
    Path("c.yaml").write_text(GOOD)
    assert load_check(Path("c.yaml")).name == "c"


BASE = "model: {target: net.py:Net}\nbatch: {target: net.py:make_batch}\nloss: output.loss\n"

TENSORS = "model: {target: net.py:Net}\nbatch: {tensors: {x: {shape: [6, 3]}}}\nloss: output.loss\n"

WRONG = [
    (BASE + "optimizer: {name: SGD, lr: 2000-01-01}\n",
     "c.yaml:4:28: optimizer.lr: expected text (in quotes), a number, a list or a mapping, found the date 2000-01-01"),
    (BASE.replace("Net}", "Net, kwargs: {since: [2020-01-01]}}"),
     "c.yaml:1:46: model.kwargs.since[0]: expected text (in quotes), a number, a list or a mapping,"
     " found the date 2020-01-01"),
    (BASE + "parallel: dpd\n",
     "c.yaml:4:11: parallel.kind: expected 'ddp', 'fsdp2' or 'tp', found the text 'dpd'\n  hint: did you mean 'ddp'?"),
    (BASE + "parallel: {kind: fsdp2, nproc: 0}\n",
     "c.yaml:4:32: parallel.nproc: expected at least 1, found the number 0"),
    (BASE + "parallel: {nprocs: 2}\n", "c.yaml:4:12: unknown key 'nprocs' in parallel\n  hint: did you mean 'nproc'?"),
    (BASE + "parallel: {kind: ddp, cpu_offload: true}\n",
     "c.yaml:4:36: parallel.cpu_offload is for fsdp2, and the kind is ddp\n  hint: remove it, or write kind: fsdp2"),
    (BASE + "parallel: {kind: fsdp2, plan: {q: colwise}}\n",
     "c.yaml:4:31: parallel.plan is for tp, and the kind is fsdp2\n  hint: remove it, or write kind: tp"),
    (BASE + "device: cpu\nparallel: fsdp2\n",
     "c.yaml:5:11: parallel: 2 ranks need device neuron or emulated: on plain CPU there is nothing to see\n"
     "  hint: use --nproc 1 for one plain process"),
    (TENSORS + "parallel: {nproc: 4}\n",
     "c.yaml:2:31: batch.tensors.x: the first dimension, 6, does not split into equal parts for 4 ranks\n"
     "  hint: use a multiple of 4, or other --nproc"),
    # The text of the file, and of the message.
    ("", "c.yaml: the file is empty\n  hint: copy one of configs/ to begin with"),
    ("# nothing\n", "c.yaml: the file is empty\n  hint: copy one of configs/ to begin with"),
    ("- a\n- b\n", "c.yaml:1:1: a check is a mapping of keys to values, found a list"),
    ("gpt2\n", "c.yaml:1:1: a check is a mapping of keys to values, found the text 'gpt2'"),
    ("name: a\n---\nname: b\n",
     "c.yaml:3:1: a second YAML document starts here; a check is one document\n"
     "  hint: put each check in a file of its own and remove the line '---'"),
    ("name: a\nmodel:\n\ttarget: b\n",
     "c.yaml:3:1: not valid YAML: while scanning for the next token, found character '\\t' that cannot start any token"
     "\n  hint: YAML does not allow tabs for indentation: use spaces"),
    ("name: a: b\n",
     "c.yaml:1:8: not valid YAML: mapping values are not allowed here\n"
     "  hint: write a space after ':', and quote text that itself holds ': '"),
    ("name: [a, b\nloss: x\n",
     "c.yaml:2:5: not valid YAML: while parsing a flow sequence, expected ',' or ']', but got ':'"
     " (it began in line 1)\n  hint: close the list with ']'"),
    ("name: 'a\n",
     "c.yaml:2:1: not valid YAML: while scanning a quoted scalar, found unexpected end of stream"
     " (it began in line 1)\n  hint: close the quotes"),
    ("name: *a\n",
     "c.yaml:1:7: not valid YAML: found undefined alias 'a'\n  hint: define it first, as in `&name value`"),
    ("name: a\x07\n", "c.yaml:1:8: the character U+0007 is not allowed in YAML\n  hint: remove it"),
    ("name: a\nname: b\n", "c.yaml:2:1: the key 'name' is given twice; first in line 1\n  hint: remove one"),
    ("name: !!python/object:os.system a\n",
     "c.yaml:1:7: the tag !!python/object:os.system is not supported\n"
     "  hint: a check holds plain mappings, lists, text and numbers"),
    ("on: a\n", "c.yaml:1:1: a key must be text, and 'on' reads as true\n  hint: quote it: \"on\""),
    ("model: {<<: {target: a}}\n", "c.yaml:1:9: merge keys (<<) are not supported\n  hint: write the keys out"),
    ("training: {timeout: .inf}\n",
     "c.yaml:1:21: '.inf' is not a number: out of range\n  hint: quote it if it is meant as text"),
    ("gate: {allow: [{expires: 2027-02-30}]}\n",
     "c.yaml:1:26: '2027-02-30' is not a date: day is out of range for month\n"
     "  hint: quote it if it is meant as text"),
    (BASE + "trainig: {steps: 3}\n", "c.yaml:4:1: unknown key 'trainig'\n  hint: did you mean 'training'?"),
    (BASE + "steps: 3\n", "c.yaml:4:1: unknown key 'steps'\n  hint: did you mean training.steps?"),
    (BASE + "training: {step: 3}\n",
     "c.yaml:4:12: unknown key 'step' in training\n  hint: did you mean 'steps'?"),
    (BASE + "compile: {banana: 3}\n",
     "c.yaml:4:11: unknown key 'banana' in compile\n  hint: known here: enabled, fullgraph, timeout, op_timeout"),
    (BASE + "training: {steps: three}\n",
     "c.yaml:4:19: training.steps: expected a whole number, found the text 'three'"),
    (BASE + "training: {steps: 2.5}\n", "c.yaml:4:19: training.steps: expected a whole number, found the number 2.5"),
    (BASE + "training: {steps: 0}\n", "c.yaml:4:19: training.steps: expected at least 1, found the number 0"),
    (BASE + "training: {steps: true}\n", "c.yaml:4:19: training.steps: expected a whole number, found true"),
    (BASE + "training: {timeout: 0}\n", "c.yaml:4:21: training.timeout: expected more than 0, found the number 0"),
    (BASE + "training:\n", "c.yaml:4:10: training: expected a mapping, as in {key: value}, found nothing"),
    (BASE + "compile: {enabled: 1}\n", "c.yaml:4:20: compile.enabled: expected true or false, found the number 1"),
    (BASE + "device: nueron\n",
     "c.yaml:4:9: device: expected 'auto', 'neuron', 'emulated' or 'cpu', found the text 'nueron'\n"
     "  hint: did you mean 'neuron'?"),
    (BASE + "name: 5\n", "c.yaml:4:7: name: expected text, found the number 5\n  hint: put quotes around it"),
    (BASE + "name: a/b\n",
     "c.yaml:4:7: name: expected a folder's name of letters, digits, '.', '_' and '-', found 'a/b'\n"
     "  hint: the report is written to a folder of this name"),
    (BASE + "gate: {allow: [{op: a}]}\n", "c.yaml:4:16: gate.allow[0].reason is missing"),
    (BASE + "gate: {allow: [{reason: a}]}\n",
     "c.yaml:4:16: an entry that names no finding allows everything\n"
     "  hint: give one of op, rule, phase, site, module"),
    (BASE + "gate: {allow: [{op: a, reason: a, expires: soon}]}\n",
     "c.yaml:4:44: gate.allow[0].expires: expected a date, as in 2027-03-31, found the text 'soon'"),
    (BASE + "gate: {lowering: never, graph_break: 3}\n",
     "c.yaml:4:18: gate.lowering: expected 'deny', 'warn' or 'allow', found the text 'never' (and 1 more mistake)"),
    (BASE + "profile: none.json\n", "c.yaml:4:10: profile: the file 'none.json' does not exist\n"
     "  hint: paths are relative to {folder}"),
    ("name: a\n", "c.yaml:1:1: a check needs a model or a workload\n"
     "  hint: add `model: {target: package.module:callable}` or `workload: path/to/file.py`"),
    ("model: {target: net.py:Net}\nloss: output.loss\n", "c.yaml:1:1: a check needs a batch\n  hint: add batch"),
    ("model: {target: net.py:Net}\nbatch: {target: net.py:make_batch}\n",
     "c.yaml:1:1: a check needs a loss\n  hint: add loss or train_step"),
    ("model: {}\n", "c.yaml:1:1: model.target is missing"),
    ("workload: nte.py\n", "c.yaml:1:11: workload: the file 'nte.py' does not exist\n  hint: did you mean 'net.py'?"),
    ("workload: net.py\n", "c.yaml:1:11: net.py defines no make_model, and the check gives no model"
     " (and 1 more mistake)"),
    ("model: {target: net.Net}\n" + BASE[28:],
     "c.yaml:1:17: model.target: expected package.module:callable or path/to/file.py:callable, found 'net.Net'\n"
     "  hint: did you mean 'net:Net'?"),
    ("model: {target: net.py}\n" + BASE[28:],
     "c.yaml:1:17: model.target: expected package.module:callable or path/to/file.py:callable, found 'net.py'\n"
     "  hint: name the function too, as in net.py:make_model"),
    ("model: {target: 'net.py:Nett'}\n" + BASE[28:],
     "c.yaml:1:17: model.target: net.py defines no 'Nett' at its top level\n  hint: did you mean 'Net'?"),
    ("model: {target: 'ne.py:Net'}\n" + BASE[28:],
     "c.yaml:1:17: model.target: the file 'ne.py' does not exist\n  hint: did you mean 'net.py'?"),
    ("model: {target: 'nopackage.models:Net'}\n" + BASE[28:],
     "c.yaml:1:17: model.target: the package 'nopackage' is not installed\n"
     "  hint: pip install the package that provides nopackage, or run from the folder it is in"),
    ("model: {target: 'json.decoders:Net'}\n" + BASE[28:],
     "c.yaml:1:17: model.target: json has no module 'decoders'\n  hint: did you mean 'decoder'?"),
    ("model: {target: 'json.decoder:JSONDecode'}\n" + BASE[28:],
     "c.yaml:1:17: model.target: json.decoder defines no 'JSONDecode' at its top level\n"
     "  hint: did you mean 'JSONDecoder'?"),
    ("model: {target: 'net.py:Net', config: {n_layer: 2}}\n" + BASE[28:],
     "c.yaml:1:39: model.config: expected class: package.module:Class beside its arguments\n"
     "  hint: for example {class: transformers:GPT2Config, n_layer: 4}"),
    (BASE + "optimizer: {lr: 1e-3}\n", "c.yaml:4:12: optimizer: expected one of name and target, found neither\n"
     "  hint: for example {name: AdamW, lr: 1.0e-4}"),
    (BASE + "optimizer: {name: AdamX}\n",
     "c.yaml:4:19: optimizer.name: torch.optim has no 'AdamX'\n  hint: did you mean 'Adam'?"),
    (BASE + "optimizer: {name: adamw}\n",
     "c.yaml:4:19: optimizer.name: torch.optim has no 'adamw'\n  hint: did you mean 'AdamW'?"),
    (BASE + "train_step: net.py:make_batch\n",
     "c.yaml:4:13: train_step replaces the whole step, so loss is never used\n  hint: remove one of them"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_a_wrong_check_ends_in_one_message_with_its_place(text: str, expected: str, folder: Path) -> None:
    assert message(text) == expected.replace("{folder}", str(folder))


LOSS = [
    ("outptu.loss", "c.yaml:3:7: loss: expected a path such as output.loss, or a target, found 'outptu.loss'\n"
     "  hint: a function of yours is path/to/file.py:loss_fn"),
    ("cross_entropy", "c.yaml:3:7: loss: expected a path such as output.loss, or a target, found 'cross_entropy'\n"
     "  hint: write {name: cross_entropy, input: output.logits, target: batch.labels}"),
    ("{name: cross_entropi, target: batch.y}", "c.yaml:3:14: loss.name: torch.nn.functional has no 'cross_entropi'\n"
     "  hint: did you mean 'cross_entropy'?"),
    ("{name: mse_loss, target: labels}",
     "c.yaml:3:32: loss.target: expected a path such as output.logits or batch.labels, found 'labels'"),
    ("{name: mse_loss}", "c.yaml:3:1: loss.target is missing"),
    ("{name: mse_loss, target: batch.y, reduce: 1}",
     "c.yaml:3:41: unknown key 'reduce' in loss\n  hint: known here: name, input, target, kwargs"),
    ("[a]", "c.yaml:3:7: loss: expected text, found a list"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "expected"), LOSS)
def test_a_wrong_loss(loss: str, expected: str) -> None:
    assert message(BASE.replace("loss: output.loss", f"loss: {loss}")) == expected


BATCH = [
    ("{}", "c.yaml:2:8: batch: expected one of target, tensors and loader, found none of them"),
    ("{tensors: {}}", "c.yaml:2:18: batch.tensors: expected at least one tensor"),
    ("{tensors: {x: {}}}", "c.yaml:2:22: batch.tensors.x: expected one of shape and like, found neither"),
    ("{tensors: {x: {shape: [2], dtpe: int64}}}",
     "c.yaml:2:35: unknown key 'dtpe' in batch.tensors.x\n  hint: did you mean 'dtype'?"),
    ("{tensors: {x: {shape: [2, -1]}}}",
     "c.yaml:2:34: batch.tensors.x.shape[1]: expected at least 0, found the number -1"),
    ("{tensors: {x: {shape: 2}}}",
     "c.yaml:2:30: batch.tensors.x.shape: expected a list, as in [a, b], found the number 2"),
    ("{tensors: {x: {shape: [2], dtype: int64}}}",
     "c.yaml:2:22: batch.tensors.x: integers need high, the first value that is not drawn\n"
     "  hint: for token ids it is the size of the vocabulary"),
    ("{tensors: {x: {shape: [2], dtype: int64, high: 2.5}}}",
     "c.yaml:2:55: batch.tensors.x: expected a whole number for high, found 2.5"),
    ("{tensors: {x: {shape: [2], dtype: int64, low: 5, high: 5}}}",
     "c.yaml:2:63: batch.tensors.x: expected high above low"),
    ("{tensors: {x: {shape: [2], dtype: flaot32}}}",
     "c.yaml:2:42: batch.tensors.x.dtype: expected 'float64', 'float32', 'float16', 'bfloat16', 'int64', 'int32',"
     " 'int16', 'int8', 'uint8', 'bool' or 'complex64', found the text 'flaot32'\n  hint: did you mean 'float32'?"),
    ("{tensors: {input: {shape: [2]}, y: {like: inptu}}}",
     "c.yaml:2:50: batch.tensors.y: like names 'inptu', which is not among batch.tensors\n"
     "  hint: did you mean 'input'?"),
    ("{tensors: {x: {like: y}, y: {like: x}}}", "c.yaml:2:29: batch.tensors.x: like goes round in a circle"
     " (and 1 more mistake)"),
    ("{tensors: {x: {shape: [2]}}, forward: [z]}",
     "c.yaml:2:47: batch.forward names 'z', which is not among batch.tensors\n  hint: there are x"),
    ("{forward: [z]}", "c.yaml:2:8: batch: expected one of target, tensors and loader, found none of them"),
]  # fmt: skip


@pytest.mark.parametrize(("batch", "expected"), BATCH)
def test_a_wrong_batch(batch: str, expected: str) -> None:
    assert message(BASE.replace("batch: {target: net.py:make_batch}", f"batch: {batch}")) == expected


def test_a_workload_file_that_is_not_python_is_named_with_its_own_line() -> None:
    Path("net.py").write_text("def make_model(:\n")
    assert message("workload: net.py\n") == f"{Path.cwd() / 'net.py'}:1:16: not valid Python: invalid syntax"


def test_a_missing_optional_package_comes_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert message("model: {target: 'transformers:GPT2Model'}\n" + BASE[28:]) == (
        "c.yaml:1:17: model.target: the package 'transformers' is not installed\n"
        '  hint: pip install ".[hf]" in a clone of smoketest'
    )


def test_a_file_that_is_too_large_is_not_read() -> None:
    assert message("# " + "x" * MAX_SIZE) == "c.yaml: larger than 1 MiB, which no check is"


def test_a_file_that_is_not_utf8_is_named_with_the_byte() -> None:
    Path("c.yaml").write_bytes(b"name: a\nloss: \xff\n")
    with pytest.raises(ConfigError) as caught:
        load_check(Path("c.yaml"))
    assert str(caught.value) == "c.yaml:2:7: not UTF-8 text: byte 0xff\n  hint: save it as UTF-8"


def test_aliases_do_not_expand_without_end() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for i in range(1, 9):
        bomb += f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n"
    assert "more than 50,000 values once its aliases are expanded" in message(bomb)


def test_an_alias_to_itself_ends() -> None:
    assert "nested more than 40 levels deep" in message("model: &a {args: [*a]}\n")


def test_deep_nesting_ends() -> None:
    assert "nested too deeply" in message("a: " + "[" * 5000 + "]" * 5000)


def test_a_missing_file_and_a_near_name() -> None:
    Path("gpt2.yaml").write_text(GOOD)
    with pytest.raises(ConfigError) as caught:
        load_check(Path("gpt2.yml"))
    assert str(caught.value) == "gpt2.yml: no such file\n  hint: did you mean 'gpt2.yaml'?"


def test_a_folder_without_checks(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError) as caught:
        find_checks([Path("empty")])
    assert str(caught.value) == "empty: no check in this folder: expected *.yaml files directly in it"


SET = [
    ("training.steps", "--set training.steps: expected key=value\n  hint: for example --set training.steps=5"),
    ("training.stps=5", "--set training.stps=5: unknown key 'stps' in training\n  hint: did you mean 'steps'?"),
    ("training.steps=many",
     "--set training.steps=many: training.steps: expected a whole number, found the text 'many'"),
    ("loss.name.x=1", "--set loss.name.x=1: loss.name is the text 'mse_loss', so 'x' cannot be set in it"),
    ("batch.forward.7=y", "--set batch.forward.7=y: batch.forward is a list: expected an index from 0 to 0, found '7'"),
    ("name=[", "--set name=[:1:2: not valid YAML: while parsing a flow node, expected the node content, but found"
     " '<stream end>'"),
    ("model.target=nte.py:Net", "--set model.target=nte.py:Net: model.target: the file 'nte.py' does not exist\n"
     "  hint: did you mean 'net.py'?"),
]  # fmt: skip


@pytest.mark.parametrize(("override", "expected"), SET)
def test_a_wrong_override_is_named_as_it_was_typed(override: str, expected: str) -> None:
    assert message(GOOD, override) == expected


def mistakes_of(text: str) -> list[str]:
    Path("c.yaml").write_text(textwrap.dedent(text))
    with pytest.raises(ConfigError) as caught:
        load_check(Path("c.yaml"))
    return [str(caught.value), *map(str, caught.value.others)]


def test_every_mistake_is_told_in_the_order_of_the_file() -> None:
    assert mistakes_of("""\
        model: {target: net.py:Nett}
        batch: {tensors: {x: {shape: [2], dtype: long}}}
        loss: output.loss
        optimizer: {name: Adamw}
        trainig: {steps: 1}
        """) == [
        "c.yaml:1:17: model.target: net.py defines no 'Nett' at its top level (and 3 more mistakes)\n"
        "  hint: did you mean 'Net'?",
        "c.yaml:2:42: batch.tensors.x.dtype: expected 'float64', 'float32', 'float16', 'bfloat16', 'int64', 'int32',"
        " 'int16', 'int8', 'uint8', 'bool' or 'complex64', found the text 'long'\n  hint: did you mean 'int64'?",
        "c.yaml:4:19: optimizer.name: torch.optim has no 'Adamw'\n  hint: did you mean 'AdamW'?",
        "c.yaml:5:1: unknown key 'trainig'\n  hint: did you mean 'training'?",
    ]  # fmt: skip


def test_a_part_that_is_wrong_is_not_called_missing() -> None:
    assert mistakes_of("model: {target: net.py:Net}\nbatch: 3\nloss: {nme: x}\n") == [
        "c.yaml:2:8: batch: expected a mapping, as in {key: value}, found the number 3 (and 3 more mistakes)",
        "c.yaml:3:1: loss.name is missing",
        "c.yaml:3:1: loss.target is missing",
        "c.yaml:3:8: unknown key 'nme' in loss\n  hint: did you mean 'name'?",
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("long", "int64"), ("int", "int32"), ("float", "float32"), ("half", "float16"), ("double", "float64"),
     ("torch.long", "int64"), ("torch.float32", "float32"), ("bf16", "bfloat16"), ("Float32", "float32")],
)  # fmt: skip
def test_dtypes_by_another_name(written: str, meant: str) -> None:
    text = BASE.replace("{target: net.py:make_batch}", "{tensors: {x: {shape: [2], dtype: " + written + "}}}")
    assert message(text).endswith(f"\n  hint: did you mean {meant!r}?")


WORKLOAD = """\
import torch
def make_model(): ...
def make_batch(step): ...
def loss_fn(output, batch): ...
"""


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("def make_optimizers(params): ...", "make_optimizer"),
        ("def make_optimiser(params): ...", "make_optimizer"),
        ("def training_step(model, batch, optimizers): ...", "train_step"),
        ("def train_steps(model, batch, optimizers): ...", "train_step"),
    ],
)
def test_a_function_nearly_named_as_one_that_would_be_used(line: str, meant: str, folder: Path) -> None:
    Path("work.py").write_text(f"{WORKLOAD}{line}\n")
    name = line.removeprefix("def ").partition("(")[0]
    assert message("workload: work.py\n") == f"{folder}/work.py:5: {name} is not used\n  hint: did you mean {meant!r}?"


@pytest.mark.parametrize(
    "lines",
    [
        "def make_optimizers(params): ...\ndef make_optimizer(params): return make_optimizers(params)",
        "def make_optimizers(params): ...\ndef make_optimizer(params): ...",
        "def training_step(model): ...\ndef other(): return training_step",
        "def _train_step(model): ...",
        "train_steps = 5",
        "def get_optimizer(model): ...",
        "def test_step(model): ...",
    ],
)
def test_other_functions_of_a_workload_file_are_its_own_business(lines: str) -> None:
    Path("work.py").write_text(f"{WORKLOAD}{lines}\n")
    Path("c.yaml").write_text("workload: work.py\n")
    assert load_check(Path("c.yaml")).workload == Path.cwd() / "work.py"


def test_what_the_check_gives_is_not_looked_for_in_the_file() -> None:
    Path("work.py").write_text(f"{WORKLOAD}def make_optimizers(params): ...\n")
    Path("c.yaml").write_text("workload: work.py\noptimizer: {name: SGD, lr: 0.1}\n")
    assert load_check(Path("c.yaml")).optimizer is not None


def test_a_file_with_another_name_entirely_is_not_suggested() -> None:
    Path("c.yaml").write_text(BASE)
    Path("noloss.yaml").write_text(BASE)
    for typed, hint in (("nosuch.yaml", None), ("noloss.yml", "did you mean 'noloss.yaml'?")):
        with pytest.raises(ConfigError) as caught:
            load_check(Path(typed))
        assert (caught.value.message, caught.value.hint) == ("no such file", hint)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        ("shape: [2, 3000000000], dtype: float32",
         "batch.tensors.x.shape[1]: expected at most 2,147,483,648, found the number 3000000000"),
        ("shape: [2147483648, 1024]",
         "batch.tensors.x.shape: expected at most 1,099,511,627,776 elements in all, found the number 2199023255552"),
        ("shape: [2], dtype: uint8, high: 257",
         "batch.tensors.x: expected at most 256 for high of uint8, found 257"),
        ("shape: [2], dtype: uint8, low: -1, high: 256",
         "batch.tensors.x: expected at least 0 for low of uint8, found -1"),
        ("shape: [2], dtype: int8, low: -129, high: 3",
         "batch.tensors.x: expected at least -128 for low of int8, found -129"),
        ("shape: [2], dtype: int64, high: 9223372036854775808",
         "batch.tensors.x: expected at most 9,223,372,036,854,775,807 for high of int64, found 9.22337e+18"),
        ("shape: [2], dtype: float16, low: 0, high: 70000",
         "batch.tensors.x: expected at most 65,504 for high of float16, found 70,000"),
        ("shape: [2], dtype: bool, low: 0, high: 3",
         "batch.tensors.x: expected at most 2 for high of bool, found 3"),
    ],
)  # fmt: skip
def test_a_tensor_that_no_dtype_or_machine_holds_is_wrong(tensor: str, words: str) -> None:
    assert words in message(GOOD.replace("shape: [2, 3]", tensor))


@pytest.mark.parametrize(
    "tensor",
    [
        "shape: [2], dtype: uint8, high: 256",
        "shape: [2], dtype: int32, low: -2147483648, high: 2147483648",
        "shape: [2], dtype: int64, low: -9223372036854775808, high: 9223372036854774784",
        "shape: [2], dtype: float16, low: -65504, high: 65504",
        "shape: [1024, 1024, 1024, 1024]",
        "shape: [0, 2147483648, 2147483648]",
    ],
)
def test_a_tensor_at_the_bounds_is_right(tensor: str) -> None:
    Path("c.yaml").write_text(GOOD.replace("shape: [2, 3]", tensor))
    load_check(Path("c.yaml"))


def test_a_seed_has_64_bits() -> None:
    for seed in (2**64, -(2**63) - 1):
        assert message(GOOD + f"training: {{seed: {seed}}}\n") == (
            f"c.yaml:8:18: training.seed: expected a whole number of at most 64 bits, found the number {seed}"
        )
    for seed in (2**64 - 1, -(2**63), 0):
        Path("c.yaml").write_text(GOOD + f"training: {{seed: {seed}}}\n")
        assert load_check(Path("c.yaml")).training.seed == seed


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"native: [a]", "it is not JSON: Expecting value (line 1)"),
        (b"[]", "it is not a JSON object"),
        (b'{"ops": []}', "it has no name and no native"),
        (b'{"name": "x", "native": ["aten::mm"]}', "it has no native"),
        (b"\xff\xfe\x00", "it is not UTF-8 text"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"1" * 10_000, "it is not JSON: Exceeds the limit"),
    ],
)
def test_a_file_that_is_no_operator_profile_is_wrong(content: bytes, fault: str) -> None:
    Path("p.json").write_bytes(content)
    text = message(GOOD + "profile: p.json\n")
    assert text.startswith(f"c.yaml:8:10: profile: p.json is not an operator profile: {fault}")
    assert text.endswith("\n  hint: `smoketest operators export` writes one; without the key the packaged one is used")


def test_the_packaged_profile_is_one() -> None:
    from smoketest.config.paths import profile_fault

    data = Path(__file__).parents[2] / "smoketest" / "operators" / "data"
    assert profile_fault(data / "torch-neuronx-prerelease-2026-04.json") is None
    assert profile_fault(data / "cannot_lower.json") == "it has no name and no native"


@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo("c.yaml")
    for path in find_checks([folder]):
        with pytest.raises(ConfigError) as caught:
            load_check(path)
        assert str(caught.value) == "c.yaml: this is a pipe or a device, expected a file"
    with pytest.raises(ConfigError) as caught:
        load_check(Path("/dev/zero"))
    assert str(caught.value) == "/dev/zero: this is a pipe or a device, expected a file"


@pytest.mark.timeout(20)
def test_a_pipe_is_no_workload() -> None:
    os.mkfifo("w.py")
    assert message("workload: w.py\n").startswith(
        "c.yaml:1:11: workload: the file 'w.py' is a pipe or a device, expected a file"
    )


def test_a_path_that_is_not_utf_8_is_wrong(folder: Path) -> None:
    inside = folder / "caf\udce9"
    inside.mkdir()
    (inside / "c.yaml").write_text(GOOD)
    (inside / "net.py").write_text(NET)
    with pytest.raises(ConfigError) as caught:
        load_check(Path("caf\udce9/c.yaml"))
    assert str(caught.value) == (
        "caf\udce9/c.yaml: this path has bytes that are not UTF-8, which no report can hold\n"
        "  hint: rename the file or the folder, or work in another one"
    )
    (folder / "link").symlink_to(inside)
    with pytest.raises(ConfigError):
        load_check(Path("link/c.yaml"))
