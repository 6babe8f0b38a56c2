"""A target that cannot be had ends in one message that names the place and the next thing to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from smoketest.config.models import Check
from smoketest.errors import UserCodeError
from smoketest.workload.build import build_workload
from smoketest.workload.targets import load_file, resolve


@pytest.fixture(autouse=True)
def _own_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def error_of(target: str) -> UserCodeError:
    with pytest.raises(UserCodeError) as caught:
        resolve(target)
    return caught.value


def test_a_function_in_a_file_and_one_in_a_package_are_found(tmp_path: Path) -> None:
    file = write(tmp_path / "one.py", "def make(): return 7\n")
    assert resolve(f"{file}:make")() == 7
    assert resolve("collections:OrderedDict.fromkeys")("a") == {"a": None}


def test_a_file_is_imported_once_and_sees_the_modules_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "beside_it.py", "value = 3\n")
    file = write(tmp_path / "two.py", "import beside_it\nbeside_it.value += 1\nresult = beside_it.value\n")
    assert load_file(file).result == 4
    assert load_file(tmp_path / "." / "two.py").result == 4


def test_a_file_in_a_package_may_use_relative_imports(tmp_path: Path) -> None:
    write(tmp_path / "mypackage" / "__init__.py", "")
    write(tmp_path / "mypackage" / "sizes.py", "width = 5\n")
    file = write(tmp_path / "mypackage" / "net.py", "from .sizes import width\n")
    assert load_file(file).width == 5


def test_an_import_that_raises_shows_only_the_users_frames(tmp_path: Path) -> None:
    file = write(tmp_path / "broken.py", "def helper():\n    return 1 / 0\n\nhelper()\n")
    error = error_of(f"{file}:make")
    assert str(error) == "broken.py:2: importing broken.py raised ZeroDivisionError: division by zero"
    lines = error.traceback.splitlines()
    assert [line.split(", in ")[1] for line in lines if line.startswith("  File")] == ["<module>", "helper"]
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "smoketest/workload" not in error.traceback


def test_a_missing_module_may_be_the_user_s_own_or_have_another_name_as_a_distribution(tmp_path: Path) -> None:
    file = write(tmp_path / "needs.py", "import no_such_package_at_all.inner\n")
    assert error_of(f"{file}:make").hint == (
        "is no_such_package_at_all yours? Modules are looked for in the folder of the workload file and in the current "
        f"folder ({Path.cwd()}). If it is not, install the distribution that provides it"
    )


def test_a_module_missing_from_a_package_that_is_there(tmp_path: Path) -> None:
    file = write(tmp_path / "needs.py", "import json.no_such_part\n")
    assert error_of(f"{file}:make").hint == "json is there, but has no module no_such_part: is it the release you need?"


def test_a_syntax_error_has_line_and_column(tmp_path: Path) -> None:
    file = write(tmp_path / "syntax.py", "x = 1\ny = (2\n")
    error = error_of(f"{file}:make")
    assert str(error.place) == "syntax.py:2:5"
    assert error.message == "importing syntax.py raised SyntaxError: '(' was never closed (syntax.py, line 2)"


def test_a_script_that_exits_on_import_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path / "script.py", "raise SystemExit(2)\n")
    assert error_of(f"{file}:make").message == "importing script.py raised SystemExit: 2"


def test_a_misspelt_name_is_suggested(tmp_path: Path) -> None:
    file = write(tmp_path / "names.py", "def make_model(): ...\n")
    error = error_of(f"{file}:make_modle")
    assert str(error) == (
        "names.py: names.py:make_modle: there is no 'make_modle' in names\n  hint: did you mean 'make_model'?"
    )


def test_a_target_must_be_callable(tmp_path: Path) -> None:
    file = write(tmp_path / "values.py", "model = None\nsize = 3\n")
    assert error_of(f"{file}:size").message == f"'{file}:size' is not callable: it is of type int"
    assert error_of(f"{file}:model").message == f"'{file}:model' is not callable: it is None"


def test_a_model_must_be_a_module(tmp_path: Path) -> None:
    file = write(tmp_path / "no_return.py", "def make_model(): pass\ndef make_batch(step): pass\n")
    with pytest.raises(UserCodeError) as caught:
        build_workload(Check(name="x", workload=file), "cpu")
    assert str(caught.value) == ("make_model() gave None, not an nn.Module\n  hint: does it end in a return statement?")


def test_a_constructor_that_raises_is_the_users_error(tmp_path: Path) -> None:
    text = "import torch\ndef make_model():\n    return torch.nn.Linear(2)\ndef make_batch(step): pass\n"
    file = write(tmp_path / "bad_layer.py", text)
    with pytest.raises(UserCodeError) as caught:
        build_workload(Check(name="x", workload=file), "cpu")
    assert str(caught.value.place) == "bad_layer.py:3"
    assert "make_model() raised TypeError: " in caught.value.message
    assert "return torch.nn.Linear(2)" in caught.value.traceback


def test_a_workload_file_without_a_model_says_what_to_define(tmp_path: Path) -> None:
    file = write(tmp_path / "empty.py", "")
    with pytest.raises(UserCodeError) as caught:
        build_workload(Check(name="x", workload=file), "cpu")
    assert str(caught.value) == (
        "there is nothing to make a model with: empty.py defines no make_model\n"
        "  hint: define make_model there, or in the YAML"
    )


def test_causes_of_an_error_are_shown_and_the_length_is_bounded(tmp_path: Path) -> None:
    text = "try:\n    {}['key']\nexcept KeyError as e:\n    raise ValueError('x' * 20000) from e\n"
    error = error_of(f"{write(tmp_path / 'chained.py', text)}:make")
    assert len(error.message) < 700
    assert len(error.traceback) <= 8_005
    short = error_of(f"{write(tmp_path / 'chained2.py', text.replace('20000', '2'))}:make")
    assert "KeyError: 'key'" in short.traceback
    assert "direct cause" in short.traceback
