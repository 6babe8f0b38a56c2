from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
from test_remedies import output_of

from smoketest.cli.explain_op import explain_op
from smoketest.findings.modules import MODULES, module_for
from smoketest.operators.profile import load_profile


@pytest.mark.skipif(os.environ.get("SMOKETEST_LONG") != "1", reason="long: `make remedies` runs it")
def test_every_module_gives_what_it_replaces_without_fallbacks_and_lowers(tmp_path: Path) -> None:
    pytest.importorskip("torch_mlir", reason="needs the `lowering` extra")
    seen = output_of("module_cases.py", tmp_path)
    assert {name.partition(" ")[0] for name in seen} == set(MODULES)
    for found in seen.values():
        assert found["difference"] < 1e-4
        assert found["original"]  # else the next line could not fail
        assert found["fallbacks"] == found["training"] == found["eval"] == []


@pytest.mark.parametrize("name", ["aten::native_batch_norm_backward", "aten::_native_batch_norm_legit.no_stats"])
def test_recorded_names_find_the_module_of_their_functional_op(name: str) -> None:
    assert module_for(name) == MODULES["native_batch_norm"]


def test_an_op_without_a_module_has_none() -> None:
    assert module_for("aten::lgamma") is None


def test_explain_shows_the_module_as_it_is_to_be_copied() -> None:
    text = explain_op("aten::native_batch_norm", [load_profile(None)]) or ""
    shown = text.split("Whole code, tested in the same way\n")[1]
    assert ast.dump(ast.parse("if True:\n" + shown)) == ast.dump(
        ast.parse("if True:\n" + "".join(f"  {line}\n" for line in MODULES["native_batch_norm"].splitlines()))
    )
