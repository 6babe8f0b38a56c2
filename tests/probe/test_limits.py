"""What the Neuron compiler is documented to refuse is said of the ops that lower to it, and of no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from smoketest.findings import Finding, merge
from smoketest.probe.limits import Hit, StableOp, hits, limits

from .conftest import Probe

IR = pytest.importorskip("torch_mlir.ir")
INTS = torch.arange(12).reshape(3, 4)
TABLE = torch.zeros(3, 4, dtype=torch.int64)
ROWS = torch.tensor([0, 0, 1])


class Limited(nn.Module):
    """Each line computes with integers what the compiler computes with floats only."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x @ x.T).sum() + x
        y = y**3
        y = TABLE.scatter_add(0, x.clamp(max=2), y)
        y = TABLE.index_add(0, ROWS, y)
        y = y.sort(1).values
        y = y.topk(2).values
        y = y.to(torch.float8_e4m3fn).float()
        return y.sum() * self.weight


WHERE = {
    1: ("aten::mm", "aten::mm", "NCC_EVRF035"),
    2: ("aten::pow.Tensor_Scalar", "aten::pow.Tensor_Scalar", "NCC_EVRF062"),
    3: ("aten::scatter_add", "aten::scatter_add", "NCC_EVRF060"),
    4: ("aten::index_put", "aten::index_add", "NCC_EVRF060"),
    5: ("aten::sort", "aten::sort", "NCC_EVRF029"),
    6: ("aten::sort", "aten::topk", "NCC_EVRF013"),
    7: ("aten::_to_copy", "aten::_to_copy", "NCC_EVRF005, NCC_EVRF051 or NCC_EVRF052"),
}
"""By line of the forward: the op in the graph, what was called, and the code."""


class Floats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(3, 4).index_add(0, ROWS, x)
        y = y.scatter_add(0, torch.zeros(3, 4, dtype=torch.int64), x @ x.T @ x)
        return (self.table(ROWS) * y**2).topk(2).values


def limited(probed: Probe, model: nn.Module, *inputs: torch.Tensor) -> list[Finding]:
    return [finding for finding in merge(probed(model, *inputs).observations) if finding.rule == "NST207"]


def test_a_documented_limit_is_a_possible_finding_with_code_remedy_and_source(probed: Probe) -> None:
    first = Limited.forward.__code__.co_firstlineno
    findings = {f.site.line - first: f for f in limited(probed, Limited(), INTS) if f.site}
    assert findings.keys() == WHERE.keys()
    for line, (op, called_as, code) in WHERE.items():
        finding, limit = findings[line], limits()[code]
        called = op if op == called_as else f"{op}, of {called_as},"
        assert (finding.op, finding.called_as, finding.grounds, finding.stage) == (op, called_as, None, "stablehlo")
        assert finding.message == (
            f"{called} lowers with public torch-mlir, but the Neuron compiler possibly refuses it. {code}: "
            f"{limit.meaning} ({limit.source})"
        )
        assert finding.remedy == limit.remedy


def test_a_strided_convolution_with_a_dilated_kernel_has_one_in_its_backward_at_its_line(probed: Probe) -> None:
    class Dilated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(2, 2, 3)
            self.conv = nn.Conv2d(2, 2, 3, stride=2, dilation=2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return self.conv(x)  # type: ignore[no-any-return]

    (finding,) = limited(probed, Dilated(), torch.rand(1, 2, 13, 13))
    assert finding.site is not None
    assert (finding.phase, finding.called_as, finding.modules[0].pattern) == (
        "backward",
        "aten::convolution_backward",
        "conv",
    )
    assert finding.site.line == Dilated.forward.__code__.co_firstlineno + 2
    assert "NCC_EVRF010" in finding.message


def test_float_scatters_sorts_products_and_powers_meet_no_limit(probed: Probe) -> None:
    assert limited(probed, Floats(), torch.rand(3, 4)) == []


MODULE = """
func.func @main(%x: tensor<4xi32>, %m: tensor<4x4xf32>, %c: tensor<4xcomplex<f32>>, %d: tensor<?xf32>) {
  %0 = "stablehlo.all_reduce"(%x) : (tensor<4xi32>) -> tensor<4xi32> loc("node:sum":1:0)
  %1 = "stablehlo.abs"(%c) : (tensor<4xcomplex<f32>>) -> tensor<4xf32> loc("node:length":1:0)
  %2 = "stablehlo.exponential"(%d) : (tensor<?xf32>) -> tensor<?xf32> loc("node:exp":1:0)
  %3 = "stablehlo.triangular_solve"(%m, %m) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}
"""


def test_rules_over_stablehlo_that_no_op_of_pytorch_lowers_to_today() -> None:
    with IR.Context() as context:
        context.allow_unregistered_dialects = True
        found = hits(IR.Module.parse(MODULE))
    assert set(found) == {
        Hit("NCC_EVRF061", "stablehlo.all_reduce", "sum"),
        Hit("NCC_EVRF004", "stablehlo.abs", "length"),
        Hit("NCC_EMOD025", "stablehlo.exponential", "exp"),
        Hit("NCC_EVRF001", "stablehlo.triangular_solve", None),
    }


I64, F32 = "tensor<3x4xi64>", "tensor<3x4xf32>"


@pytest.mark.parametrize(
    ("op", "codes"),
    [
        (StableOp("stablehlo.scatter", (I64, I64, I64), regions=frozenset({"stablehlo.maximum"})), {"NCC_EVRF016"}),
        (StableOp("stablehlo.scatter", (F32, I64, F32), regions=frozenset({"stablehlo.maximum"})), set()),
        (StableOp("stablehlo.scatter", (I64, I64, I64), regions=frozenset({"stablehlo.return"})), set()),
        (StableOp("stablehlo.reduce_window", (F32,), attributes=(("base_dilations", "array<i64: 1, 2>"),)),
         {"NCC_EVRF017"}),
        (StableOp("stablehlo.reduce_window", (F32,), attributes=(("window_dilations", "array<i64: 1, 2>"),)),
         {"NCC_EVRF018"}),
        (StableOp("stablehlo.reduce_window", (F32,), attributes=(("window_dilations", "array<i64: 1, 1>"),)), set()),
        (StableOp("stablehlo.convolution", (F32,), attributes=(("lhs_dilation", "array<i64: 2>"),
         ("window_strides", "array<i64: 2>"))), {"NCC_EVRF011"}),
        (StableOp("stablehlo.rng_bit_generator", (I64,), attributes=(("rng_algorithm", "<PHILOX>"),)), {"NCC_EVRF006"}),
        (StableOp("stablehlo.rng_bit_generator", (I64,), attributes=(("rng_algorithm", "<DEFAULT>"),)), set()),
        (StableOp("stablehlo.reduce_scatter", ("tensor<4xi64>",)), {"NCC_EVRF063"}),
        (StableOp("stablehlo.power", ("tensor<i64>", "tensor<i64>"), ("tensor<i64>",)), {"NCC_EVRF062"}),
    ],
)  # fmt: skip
def test_each_condition_of_an_entry(op: StableOp, codes: set[str]) -> None:
    assert {limit.code for limit in limits().values() if limit.meets(op)} == codes


@pytest.mark.parametrize(
    ("dtype", "of"),
    [
        (torch.complex64, {"NCC_EVRF004"}),
        (torch.complex128, {"NCC_EVRF004"}),
        (torch.float8_e4m3fn, {"NCC_EVRF005, NCC_EVRF051 or NCC_EVRF052"}),
        (torch.float32, set()),
        (torch.bfloat16, set()),
        (torch.int64, set()),
    ],
)
def test_limits_of_a_dtype(dtype: torch.dtype, of: set[str]) -> None:
    assert {limit.code for limit in limits().values() if limit.is_of_type(dtype)} == of


def test_a_dtype_is_told_of_where_it_comes_up_and_not_at_every_op_after(probed: Probe) -> None:
    class Rotates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z = torch.polar(x, x)
            z = z.unsqueeze(0).reshape(-1)
            return z.detach(), x * self.weight

    result = probed(Rotates(), run_step=lambda call, _: call(torch.rand(3, 4))[1].sum().backward())
    (finding,) = [f for f in merge(result.observations) if f.rule == "NST207"]
    assert (finding.op, finding.site and finding.site.code) == ("aten::polar", "z = torch.polar(x, x)")
    assert "NCC_EVRF004: complex numbers are not supported" in finding.message


def test_every_code_that_is_predicted_stands_on_the_rules_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rules" / "NST207.md").read_text(encoding="utf-8")
    codes = {code for limit in limits().values() for code in re.findall(r"NCC_\w+", limit.code)}
    assert codes <= set(re.findall(r"NCC_\w+", page))
