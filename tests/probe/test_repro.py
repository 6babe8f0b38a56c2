"""A repro file fails alone, in a fresh process, with the compiler's sentence it names; and passes once that is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from smoketest.findings import merge
from smoketest.probe.graphs import HigherOrder, NodeSpec, TensorSpec
from smoketest.probe.probe import ProbeResult
from smoketest.probe.repro import FailingGraph, can_be_written, script, write

from .build import op
from .conftest import Probe

F32 = TensorSpec((3, 4), torch.float32)


class Failing(nn.Module):
    """Scalars, lists, dtypes, infinities, several results and integer indices, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.bag = nn.EmbeddingBag(10, 4, mode="max")

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        y = torch.lgamma(x * self.weight + 2)
        y = nn.functional.hardshrink(y, float("inf"))
        values, _ = torch.linalg.eigh(y @ y.T)
        image = nn.functional.interpolate(y[None, None], size=(6, 8), mode="bicubic", antialias=True)
        spectrum = torch.fft.rfft(y).abs()
        return values.sum() + image.sum() + spectrum.sum() + self.bag(ids).sum()


def run(path: Path, *arguments: str, engine: Path | None = None) -> tuple[int, str]:
    """Run a file alone, with a double of torch-mlir in front of the real one if `engine` is given."""
    environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    if engine is not None:
        environment["PYTHONPATH"] = str(engine)
    command = [sys.executable, str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=path.parent, env=environment)
    return done.returncode, done.stdout + done.stderr


def double_of_the_engine(folder: Path, does: str) -> Path:
    """A torch_mlir whose lowering does what is given."""
    package = folder / "torch_mlir"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    text = f"import os, signal, time\n\ndef stateless_fx_import(graph, output_type):\n    {does}\n"
    (package / "fx.py").write_text(text)
    return folder


@pytest.fixture
def sine(tmp_path: Path) -> Path:
    """The file of an op that torch-mlir lowers, as if it had refused it."""
    path = tmp_path / "sine.py"
    failing = FailingGraph("aten::sin", op("aten::sin", F32, value=F32), "imported", "no", "torch-mlir")
    path.write_text(script(failing, path.name))
    return path


@pytest.fixture
def failing(probed: Probe) -> ProbeResult:
    return probed(
        Failing(),
        run_step=lambda call, index: call(torch.rand(3, 4), torch.zeros(2, 3, dtype=torch.int64)).backward(),
    )


def test_every_failing_op_gets_a_file_that_fails_with_the_sentence_in_it(
    failing: ProbeResult, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    findings = [f for f in write(merge(failing.observations), failing.failing, tmp_path) if f.rule == "NST201"]
    assert len(findings) >= 8
    assert {f.repro for f in findings} == {f"repro/{f.id}.py" for f in findings}
    for finding in findings:
        path = tmp_path / str(finding.repro)
        module: dict[str, Any] = {"__name__": "repro", "torch": torch}
        exec(compile(path.read_text(), str(path), "exec"), module)
        lower = module["torch_mlir"]()
        with pytest.raises(Exception) as raised:  # noqa: PT011  (torch-mlir's own class is not public)
            lower()
        last = finding.message.partition("torch-mlir: ")[2].split("; ")[-1]
        assert last.partition(" (torch.")[0] in str(raised.value) + capfd.readouterr().err, finding.op


def test_in_a_fresh_process_it_fails_with_exit_code_1_until_the_engine_is_mended_and_names_no_user(
    failing: ProbeResult, tmp_path: Path
) -> None:
    findings = write(merge(failing.observations), failing.failing, tmp_path)
    (lgamma,) = [f for f in findings if f.op == "aten::lgamma"]
    path = tmp_path / str(lgamma.repro)
    assert str(Path(__file__).parent) not in path.read_text()
    code, output = run(path)
    assert code == 1
    assert "failed to legalize operation 'torch.operator' that was explicitly marked illegal" in output
    assert run(path, "--backend", "neuron")[0] == 2  # no torch-neuronx on this machine
    mended = double_of_the_engine(tmp_path / "mended", "return graph")
    assert run(path, engine=mended) == (0, "the failure is gone\n")


def test_a_crash_of_the_compiler_is_a_failure(sine: Path) -> None:
    engine = double_of_the_engine(sine.parent / "crash", "os.kill(os.getpid(), signal.SIGSEGV)")
    assert run(sine, engine=engine) == (1, "the compiler ended the process: -11\n")


def test_a_compiler_that_hangs_is_a_failure(sine: Path) -> None:
    engine = double_of_the_engine(sine.parent / "hang", "time.sleep(600)")
    assert run(sine, "--timeout", "2", engine=engine) == (1, "no answer after 2 s\n")


def test_what_this_pytorch_does_not_trace_is_not_called_a_failure(sine: Path) -> None:
    sine.write_text(sine.read_text().replace("torch.ops.aten.sin.", "torch.ops.aten.no_such_op."))
    code, output = run(sine)
    assert code == 2
    assert output.startswith("cannot be tried here: AttributeError: ")


def test_files_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    (tmp_path / "repro").mkdir()
    (tmp_path / "repro" / "0123456789ab.py").touch()
    assert write((), {}, tmp_path) == ()
    assert list((tmp_path / "repro").iterdir()) == []


def test_a_graph_that_fails_in_company_has_a_file_of_the_whole_graph(tmp_path: Path, probed: Probe) -> None:
    from smoketest.probe.lower import LoweringProcess

    from .test_probe import DOUBLE

    class Company(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.weight).tanh()

    with LoweringProcess(DOUBLE) as double:
        result = probed(Company(), torch.rand(3, 4), process=double)
    (finding,) = write(merge(result.observations), result.failing, tmp_path)
    text = (tmp_path / str(finding.repro)).read_text()
    assert '"""graph 0.forward as a whole does not lower.' in text
    assert "#   not in this company" in text
    assert "torch.ops.aten.tanh.default(" in text
    # The double refuses what torch-mlir does not.
    assert run(tmp_path / str(finding.repro))[0] == 0


@pytest.mark.parametrize("target", [HigherOrder("cond"), "unknown:function"])
def test_a_graph_that_holds_more_than_operators_has_none(target: Any) -> None:
    graph = op("aten::sin", F32, value=F32)
    other = type(graph)((*graph.nodes[:-1], NodeSpec("more", target), graph.nodes[-1]))
    assert can_be_written(graph)
    assert not can_be_written(other)


def test_a_sparse_graph_has_none() -> None:
    assert can_be_written(op("aten::to_dense", F32, None, value=F32))
    assert not can_be_written(op("aten::_to_sparse", F32, torch.sparse_coo, value=F32))
