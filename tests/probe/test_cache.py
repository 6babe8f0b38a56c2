"""The second probe of the same ops starts no process; a cache that cannot be read is as good as none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from smoketest.probe import cache
from smoketest.probe.cache import CachedLowering, cache_file
from smoketest.probe.graphs import TensorSpec
from smoketest.probe.limits import Hit
from smoketest.probe.lower import Crashed, LoweringProcess
from smoketest.probe.lowering_worker import Answer

from .build import op

F32 = TensorSpec((3, 4), torch.float32)
SINH = op("aten::sinh", F32, value=F32)
LGAMMA = op("aten::lgamma", F32, value=F32)
I64 = TensorSpec((3, 4), torch.int64)
POWER = op("aten::pow.Tensor_Scalar", I64, 3, value=I64)
DOUBLE = (sys.executable, str(Path(__file__).with_name("faulty_compiler.py")))
NEVER = (sys.executable, "-c", "raise SystemExit(7)")


def test_answers_of_a_first_probe_are_there_for_a_second_that_starts_no_process(tmp_path: Path) -> None:
    file = tmp_path / "deeper" / "cache.jsonl"
    with CachedLowering(file) as first:
        known = first.hello()
        answers = [first.lower(graph, 60.0) for graph in (SINH, LGAMMA, POWER)]
    assert isinstance(answers[1], Answer)
    assert (answers[1].stage, answers[1].unknown) == ("imported", ("torch.aten.lgamma",))
    assert isinstance(answers[2], Answer)
    assert answers[2].limits == (Hit("NCC_EVRF062", "stablehlo.power", "op"),)
    with CachedLowering(file, LoweringProcess(NEVER)) as second:
        second.start()
        assert second.hello() == known
        assert [second.lower(graph, 60.0) for graph in (SINH, LGAMMA, POWER)] == answers
        assert second.process.started == 0


def test_another_shape_dtype_or_scalar_is_another_entry(tmp_path: Path) -> None:
    bf16 = TensorSpec((3, 4), torch.bfloat16)
    graphs = [
        op("aten::add.Tensor", F32, 1, value=F32),
        op("aten::add.Tensor", F32, 1.0, value=F32),
        op("aten::add.Tensor", F32, True, value=F32),
        op("aten::add.Tensor", bf16, 1, value=bf16),
        op("aten::add.Tensor", TensorSpec((4, 4), torch.float32), 1, value=TensorSpec((4, 4), torch.float32)),
    ]
    file = tmp_path / "cache.jsonl"
    with CachedLowering(file, LoweringProcess(DOUBLE)) as lowering:
        for graph in graphs:
            lowering.lower(graph, 60.0)
    assert len(file.read_text().splitlines()) == len(graphs)


@pytest.mark.parametrize(
    "content", [b"\xff\x00garbage\n{", b'{"graph": 1}\n[]\n3\n{"graph": "a", "answer": ["no"]}\n', b""]
)
def test_a_corrupted_cache_is_ignored_and_written_on(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "cache.jsonl"
    file.write_bytes(content)
    with CachedLowering(file, LoweringProcess(DOUBLE)) as lowering:
        assert lowering.lower(SINH, 60.0) == Answer("stablehlo")
        lowering.lower(POWER, 60.0)
    with CachedLowering(file, LoweringProcess(NEVER)) as again:
        assert again.lower(POWER, 60.0) == Answer("stablehlo")


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with CachedLowering(tmp_path / "file" / "cache.jsonl", LoweringProcess(DOUBLE)) as lowering:
        assert lowering.lower(SINH, 60.0) == Answer("stablehlo")


def test_a_crash_is_not_kept(tmp_path: Path) -> None:
    sin = op("aten::sin", F32, value=F32)
    with CachedLowering(tmp_path / "cache.jsonl", LoweringProcess(DOUBLE)) as lowering:
        assert isinstance(lowering.lower(sin, 60.0), Crashed)
        assert isinstance(lowering.lower(sin, 60.0), Crashed)
        assert lowering.process.started == 2


def test_the_file_belongs_to_one_torch_one_torch_mlir_and_one_pipeline(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = cache_file()
    assert here is not None
    assert here.parent == own_cache
    names = {here}
    for package in ("torch", "torch-mlir"):
        with monkeypatch.context() as patch:
            real = cache.importlib.metadata.version
            patch.setattr(cache.importlib.metadata, "version", lambda n, p=package, r=real: "9" if n == p else r(n))
            names.add(cache_file() or here)
    with monkeypatch.context() as patch:
        (tmp_path / "worker.py").write_text("other pipelines")
        patch.setattr(cache.lowering_worker, "__file__", str(tmp_path / "worker.py"))
        names.add(cache_file() or here)
    assert len(names) == 4


def test_an_empty_setting_keeps_nothing_and_without_one_it_is_the_users_cache_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SMOKETEST_CACHE_DIR", "")
    assert cache_file() is None
    monkeypatch.delenv("SMOKETEST_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = cache_file()
    assert found is not None
    assert found.parent == tmp_path / "smoketest"
