"""Paths that are not UTF-8, as Linux allows them: a report, or one message and exit 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smoketest.errors import ConfigError

CHECK = """\
model: {target: torch.nn:Linear, args: [4, 4]}
batch: {tensors: {input: {shape: [2, 4]}}}
loss: {name: mse_loss, target: batch.input}
training: {steps: 1, warmup: 0}
device: cpu
"""
REFUSED = "this path has bytes that are not UTF-8, which no report can hold"


@pytest.fixture
def cafe(tmp_path: Path) -> Path:
    folder = tmp_path / "caf\udce9"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system knows no such names")
    (folder / "net.yaml").write_text(CHECK)
    return folder


def smoketest(folder: Path, *arguments: Path | str) -> tuple[int, str]:
    command = [sys.executable, "-m", "smoketest", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=200)
    return done.returncode, done.stderr


def test_a_check_in_such_a_folder_is_one_message(cafe: Path, tmp_path: Path) -> None:
    for folder, command in ((tmp_path, ("run", cafe / "net.yaml")), (cafe, ("validate", "net.yaml"))):
        code, err = smoketest(folder, *command)
        assert code == 2
        assert err.startswith("error: ")
        assert REFUSED in err
        assert len(err.splitlines()) == 2, "the message and its hint"
    assert "caf\\xe9/net.yaml" in smoketest(tmp_path, "run", "caf\udce9/net.yaml")[1]


def test_an_output_folder_with_such_a_name_is_one_message(cafe: Path, tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(CHECK)
    code, err = smoketest(tmp_path, "run", "net.yaml", "--output", cafe / "out")
    assert (code, REFUSED in err, (cafe / "out").exists()) == (2, True, False)


def test_the_other_checks_of_a_folder_run_all_the_same(tmp_path: Path, cafe: Path) -> None:
    (tmp_path / "good.yaml").write_text(CHECK)
    (cafe / "net.yaml").rename(tmp_path / "b\udce9.yaml")
    code, err = smoketest(tmp_path, "run", tmp_path, "--no-compile", "--quiet")
    assert code == 2
    assert f"b\\xe9.yaml: {REFUSED}" in err
    rows = json.loads((tmp_path / "reports/summary.json").read_text())["checks"]
    assert [(row["name"].rpartition("/")[2], row["exit_code"]) for row in rows] == [("b\\xe9.yaml", 2), ("good", 0)]


def test_a_run_from_such_a_folder_of_what_lies_elsewhere_is_a_run(cafe: Path, tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(CHECK)
    code, err = smoketest(cafe, "run", tmp_path / "net.yaml", "--no-compile", "--output", tmp_path / "out")
    assert code == 0, err
    assert json.loads((tmp_path / "out/net/report.json").read_text())["status"] == "pass"


def test_from_python_it_is_the_same_error(cafe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import smoketest
    from smoketest.config.load import load_check

    (tmp_path / "net.yaml").write_text(CHECK)
    check = load_check(tmp_path / "net.yaml")
    monkeypatch.chdir(cafe)
    for wrong in (cafe / "net.yaml", check):
        with pytest.raises(ConfigError, match=REFUSED):
            smoketest.run(wrong, compile=False)
