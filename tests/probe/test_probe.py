"""Every op that fails is a finding at its own line, and what does not fail is none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from smoketest.findings import Finding, merge
from smoketest.operators.functional import functional_overload
from smoketest.probe import probe as probe_module
from smoketest.probe import repro
from smoketest.probe.lower import LoweringProcess
from smoketest.probe.probe import ProbeResult

from .conftest import Probe


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))


class Gamma(Weighted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.lgamma(x * self.weight + 2)
        return torch.erfinv(y.tanh() * 0.5)


@torch.library.custom_op("smoketest_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


doubled.register_fake(torch.empty_like)
doubled.register_autograd(lambda _, grad: grad * 2)


class OfALibrary(Weighted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = doubled(x * self.weight)
        return y.sin()


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(x) + 1


class Warp(Weighted):
    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return nn.functional.grid_sample(x * self.weight, grid, align_corners=False)


class OnlyBackwardFails(Weighted):
    """Both paddings lower; of their gradients torch-mlir does not know the ops."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x * self.weight)[None]
        y = nn.functional.pad(y, (1, 1), mode="replicate")
        return nn.functional.adaptive_max_pool2d(y[None], 2)


class Drop(Weighted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x * self.weight, 0.3)


class Branching(Weighted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            if x.sum() > 0:
                x = torch.lgamma(x * self.weight)
        return x


class Conditional(Weighted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x * self.weight,))


class Faulty(Weighted):
    """The double of torch-mlir dies of sin and hangs on cos."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.sin() + x.cos()) * self.weight


DOUBLE = (sys.executable, str(Path(__file__).with_name("faulty_compiler.py")))


def line(cls: type, offset: int) -> int:
    return cls.forward.__code__.co_firstlineno + offset  # type: ignore[attr-defined,no-any-return]


def found(result: ProbeResult, rule: str) -> dict[tuple[str | None, str | None], Finding]:
    return {(f.op, f.phase): f for f in merge(result.observations) if f.rule == rule}


def assert_sums_agree(result: ProbeResult) -> None:
    for graph in result.graphs:
        assert graph.nodes > 0
        assert (graph.lowered or 0) + (graph.failed or 0) + (graph.unknown or 0) + (
            graph.not_reached or 0
        ) == graph.nodes


def test_lgamma_fails_with_stage_sentence_and_line(probed: Probe) -> None:
    result = probed(Gamma(), torch.rand(3, 4))
    lgamma = found(result, "NST201")["aten::lgamma", "forward"]
    assert lgamma.site is not None
    assert (lgamma.site.file, lgamma.site.line) == ("test_probe.py", line(Gamma, 1))
    assert lgamma.site.code == "y = torch.lgamma(x * self.weight + 2)"
    assert (lgamma.grounds, lgamma.stage, lgamma.shapes, lgamma.calls_per_step) == (
        "cannot_lower",
        "imported",
        ("f32[3, 4]",),
        1,
    )
    assert lgamma.message == (
        "aten::lgamma does not lower (torch-neuronx-prerelease-2026-04 has no kernel for it, and no decomposition "
        "avoids it). torch-mlir: failed to legalize operation 'torch.operator' that was explicitly marked illegal "
        "(torch.aten.lgamma)"
    )
    assert_sums_agree(result)


def test_an_op_of_a_librarys_own_is_refused_for_what_it_is_and_has_no_repro(probed: Probe, tmp_path: Path) -> None:
    result = probed(OfALibrary(), torch.rand(3, 4))
    doubled = found(result, "NST201")["smoketest_tests::doubled", "forward"]
    assert doubled.site is not None
    assert (doubled.site.line, doubled.grounds, doubled.stage) == (line(OfALibrary, 1), "cannot_lower", "captured")
    assert doubled.message == (
        "smoketest_tests::doubled does not lower (torch-neuronx-prerelease-2026-04 has no kernel for it, and no "
        "decomposition avoids it). torch-mlir: smoketest_tests::doubled is an op of a library's own (torch.library), "
        "which the torch dialect does not have"
    )
    assert [f.repro for f in repro.write([doubled], result.failing, tmp_path)] == [None]
    assert_sums_agree(result)


def test_what_the_profile_has_a_kernel_for_is_only_possible(probed: Probe) -> None:
    result = probed(Gamma(), torch.rand(3, 4))
    erfinv = found(result, "NST201")["aten::erfinv", "forward"]
    assert erfinv.site is not None
    assert erfinv.site.line == line(Gamma, 2)
    assert (erfinv.grounds, erfinv.stage) == (None, "torch-backend")
    assert erfinv.message == (
        "aten::erfinv possibly does not lower: public torch-mlir refuses it, but torch-neuronx-prerelease-2026-04 "
        "lists a kernel of the backend's own, so a release may lower it. torch-mlir: failed to legalize operation "
        "'torch.aten.erfinv'"
    )
    assert result.operators["aten::erfinv"] == "unknown"
    assert result.operators["aten::lgamma"] == "fails"


def test_all_failing_ops_are_found_in_one_run_backward_ones_at_their_forward_line(probed: Probe) -> None:
    result = probed(Gamma(), torch.rand(3, 4))
    findings = found(result, "NST201")
    assert set(findings) == {
        ("aten::lgamma", "forward"),
        ("aten::erfinv", "forward"),
        ("aten::digamma", "backward"),
    } | {key for key in findings if key == ("aten::erfinv", "backward")}
    digamma = findings["aten::digamma", "backward"]
    assert digamma.site is not None
    assert digamma.site.line == line(Gamma, 1)
    assert [(graph.id, graph.status, graph.stage) for graph in result.graphs] == [
        ("0.forward", "failed", "imported"),
        ("0.backward", "failed", "imported"),
    ]


def test_what_fails_in_the_backward_graph_only_is_found_at_its_forward_line(probed: Probe) -> None:
    result = probed(OnlyBackwardFails(), torch.rand(3, 4))
    findings = found(result, "NST201")
    assert {key: f.site and f.site.line for key, f in findings.items()} == {
        ("aten::replication_pad1d_backward", "backward"): line(OnlyBackwardFails, 2),
        ("aten::adaptive_max_pool2d_backward", "backward"): line(OnlyBackwardFails, 3),
    }
    assert {f.grounds for f in findings.values()} == {"cannot_lower"}
    assert [(graph.id, graph.status, graph.failed) for graph in result.graphs] == [
        ("0.forward", "lowered", 0),
        ("0.backward", "failed", 2),
    ]
    assert_sums_agree(result)


def test_a_linear_layer_lowers_op_by_op_and_whole(probed: Probe) -> None:
    result = probed(Linear(), torch.rand(3, 4))
    assert result.observations == ()
    assert [(graph.id, graph.status, graph.stage) for graph in result.graphs] == [
        ("0.forward", "lowered", "stablehlo"),
        ("0.backward", "lowered", "stablehlo"),
    ]
    assert (result.ops_failed, result.ops_unknown) == (0, 0)
    assert result.operators["aten::add.Tensor"] == "lowers"
    assert_sums_agree(result)


def test_grid_sample_fails_in_both_directions(probed: Probe) -> None:
    grid = torch.rand(1, 3, 3, 2)
    findings = found(probed(Warp(), torch.rand(1, 2, 4, 4), grid), "NST201")
    assert set(findings) == {("aten::grid_sampler_2d", "forward"), ("aten::grid_sampler_2d_backward", "backward")}
    assert {f.site.line for f in findings.values() if f.site} == {line(Warp, 1)}
    assert {f.grounds for f in findings.values()} == {"cannot_lower"}


@pytest.mark.parametrize(
    ("call", "op", "grounds"),
    [
        (lambda x: nn.functional.prelu(x, x[:1, 0]), "aten::_prelu_kernel", "reported"),
        (lambda x: torch.fft.rfft(x).abs(), "aten::_fft_r2c", "cannot_lower"),
        (lambda x: torch.linalg.cholesky(x @ x.T + torch.eye(3)), "aten::linalg_cholesky_ex", "cannot_lower"),
        (lambda x: torch.cumprod(x, 1), "aten::cumprod", "no_kernel_known"),
        (lambda x: torch.multinomial(x.detach().abs(), 1) * x, "aten::multinomial", "no_kernel_known"),
    ],
)
def test_a_failing_op_stands_on_a_report_or_on_being_unknown_else_it_is_possible(
    probed: Probe, call: Callable[..., Any], op: str, grounds: str
) -> None:
    class Calls(Weighted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return call(x * self.weight)  # type: ignore[no-any-return]

    result = probed(Calls(), torch.rand(3, 4))
    finding = found(result, "NST201")[op, "forward"]
    assert finding.grounds == grounds
    assert result.ops_failed >= 1
    possible = "possibly does not lower: public torch-mlir refuses it: it knows the op and has no lowering for it" in (
        finding.message
    )
    assert possible == (grounds == "no_kernel_known")


def test_pooling_backward_that_torch_mlir_has_no_lowering_for_is_never_denied(probed: Probe) -> None:
    class Pools(Weighted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = nn.functional.avg_pool2d(x * self.weight, 2)
            return nn.functional.adaptive_avg_pool2d(x, 1)

    findings = merge(probed(Pools(), torch.rand(1, 2, 8, 4)).observations)
    assert "aten::avg_pool2d_backward" in {f.op for f in findings}
    assert {f.grounds for f in findings} <= {"no_kernel_known", None}


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_is_one_op_in_the_table_whatever_functionalization_calls_it(probed: Probe, training: bool) -> None:
    result = probed(nn.BatchNorm2d(3).train(training), torch.rand(2, 3, 4, 4))
    assert [op for op in result.operators if "norm" in op and "backward" not in op] == ["aten::native_batch_norm"]


def test_dropout_is_no_failure(probed: Probe) -> None:
    result = probed(Drop(), torch.rand(3, 4))
    assert result.observations == ()
    assert {graph.status for graph in result.graphs} == {"lowered"}


def test_a_skipped_frame_is_a_finding_and_is_said_not_to_be_checked(probed: Probe) -> None:
    result = probed(Branching(), torch.rand(3, 4))
    (skipped,) = found(result, "NST204").values()
    assert skipped.site is not None
    assert skipped.site.line == line(Branching, 2)
    assert skipped.message.startswith("Dynamo skipped forward(): it runs as plain Python, in no graph: ")
    assert (result.skipped_frames, result.graphs, result.ops_probed) == (1, (), 0)
    assert [(note.what, note.why) for note in result.not_checked][1:] == [
        ("compiling forward", "Dynamo skipped it: its ops are in no graph")
    ]


def test_a_higher_order_op_the_importer_does_not_know_is_named(probed: Probe) -> None:
    result = probed(Conditional(), torch.rand(3, 4))
    cond = found(result, "NST202")["cond", "forward"]
    assert cond.message == "Higher-order operation 'cond' not implemented in the FxImporter (tried '_import_hop_cond')"
    assert cond.site is not None
    assert cond.site.line == line(Conditional, 1)
    assert_sums_agree(result)


def test_a_higher_order_op_of_pytorchs_own_is_told_with_the_op_in_it(probed: Probe) -> None:
    class Factors(Weighted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = (x * self.weight) @ x.T
            return torch.linalg.cholesky(x + torch.eye(3))

    result = probed(Factors(), torch.rand(3, 4))
    effects = found(result, "NST202")["with_effects", "forward"]
    assert effects.message == (
        "Higher-order operation 'with_effects' not implemented in the FxImporter (tried '_import_hop_with_effects'); "
        "PyTorch puts it around aten::_linalg_check_errors"
    )
    assert (effects.site and effects.site.line) == line(Factors, 2)
    assert ("aten::linalg_cholesky_ex", "forward") in found(result, "NST201")


def test_what_takes_the_result_of_a_higher_order_op_that_nobody_knows_is_not_refused_for_it(probed: Probe) -> None:
    class Recomputed(Weighted):
        def part(self, x: torch.Tensor) -> torch.Tensor:
            return torch.rand(3, 4) * x * self.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.part, x.sin(), use_reentrant=True).cos()  # type: ignore[no-any-return]

    result = probed(Recomputed(), torch.rand(3, 4))
    assert ("run_and_save_rng_state", "forward") in found(result, "NST202")
    assert not [op for op, _ in found(result, "NST201") if op == "aten::detach"]


class Penalty(Weighted):
    """Differentiates within forward what is differentiated once more in backward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        score = self.scored(x).sum()
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        return slope.square()

    def scored(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).tanh()


def test_a_derivative_of_a_derivative_is_refused_at_the_line_of_the_first(probed: Probe) -> None:
    refused = found(probed(Penalty(), torch.rand(3, 4)), "NST202")[None, "backward"]
    assert (refused.site and refused.site.line) == line(Penalty, 3)
    assert refused.message == (
        "torch.compile raises RuntimeError: torch.compile with aot_autograd does not currently support double backward"
    )


def test_a_size_marked_dynamic_is_refused(probed: Probe) -> None:
    x = torch.rand(3, 4)

    def step(call: Callable[..., Any], index: int) -> None:
        torch._dynamo.mark_dynamic(x, 0)
        call(x).sum().backward()

    result = probed(Linear(), run_step=step)
    (dynamic,) = found(result, "NST206").values()
    assert dynamic.site is not None
    assert (dynamic.op, dynamic.site.line) == ("aten::addmm", line(Linear, 1))
    assert dynamic.message.startswith("the shape is not known before the step runs (f32[s")
    assert {graph.status for graph in result.graphs} == {"not_reached"}
    assert_sums_agree(result)


def lengths(*sizes: int, dim: int = 1) -> Callable[[Callable[..., Any], int], None]:
    """A step whose batches have one of these sizes each."""

    def step(call: Callable[..., Any], index: int) -> None:
        shape = [2, 2, 4]
        shape[dim] = sizes[index]
        call(torch.rand(*shape)).sum().backward()

    return step


def test_three_lengths_are_one_finding_with_guard_outlook_and_buckets(probed: Probe) -> None:
    result = probed(Linear(), run_step=lengths(37, 41, 50), steps=3)
    (again,) = found(result, "NST205").values()
    assert again.message == (
        "forward() is compiled 3 times: size 37, 41, 50 of tensor 'x' at index 1 (guard: tensor 'x' size mismatch at "
        "index 1. expected 37, actual 41); every other size is one more compile, up to 14 for sizes from 37 to 50 "
        "(Dynamo gives up after 8 and runs plain Python)"
    )
    assert again.remedy == "Pad to 64: one compile is left, whatever size up to 64 comes."
    assert (again.site is not None and again.site.line, result.recompiles) == (line(Linear, 0), 2)
    assert again.calls_per_step == 2
    # What the advice says, done:
    assert found(probed(Linear(), run_step=lengths(64, 64, 64), steps=3), "NST205") == {}


def test_lengths_far_apart_get_buckets_and_with_these_as_many_compiles_as_was_said(probed: Probe) -> None:
    sizes = [5, 9, 17, 6, 30]
    (again,) = found(probed(Linear(), run_step=lengths(*sizes), steps=5), "NST205").values()
    assert again.remedy == (
        "Pad to the next of 8, 16, 32: at most 3 compiles are left, whatever size up to 32 comes; padded to 32 "
        "throughout, one."
    )
    bucketed = probed(Linear(), run_step=lengths(8, 16, 32, 8, 32), steps=5)
    assert bucketed.recompiles == 3 - 1


def test_a_smaller_last_batch_is_to_be_dropped(probed: Probe) -> None:
    (again,) = found(probed(Linear(), run_step=lengths(8, 8, 3, dim=0), steps=3), "NST205").values()
    assert again.remedy == (
        "If only last batches are smaller than 8: drop_last=True in the DataLoader leaves one compile. Otherwise pad "
        "to the next of 4, 8: at most 2 compiles are left, whatever size up to 8 comes; padded to 8 throughout, one."
    )


def test_a_guard_on_a_number_is_told_without_file_names(probed: Probe) -> None:
    class Scaled(Weighted):
        def forward(self, x: torch.Tensor, factor: int) -> torch.Tensor:
            return x * self.weight * factor

    def step(call: Callable[..., Any], index: int) -> None:
        call(torch.rand(3, 4), index + 1).sum().backward()

    (again,) = found(probed(Scaled(), run_step=step, steps=2), "NST205").values()
    assert again.message == "forward() is compiled 2 times: a Python value has changed (guard: factor == 1)"
    assert again.remedy is not None
    assert again.remedy.startswith("A Python value is compiled in as a constant: every new value compiles again")


def test_sizes_that_come_of_the_values_are_not_to_be_padded(probed: Probe) -> None:
    class Selects(Weighted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * self.weight
            kept = torch.masked_select(y, x > 0.5)
            return kept.sin().sum()

    def step(call: Callable[..., Any], index: int) -> None:
        x = torch.zeros(3, 4)
        x[0, : index + 2] = 1.0
        call(x).sum().backward()

    (again,) = found(probed(Selects(), run_step=step, steps=2), "NST205").values()
    where = line(Selects, 2)
    assert again.message.startswith(
        f"the rest of forward() after line {where} is compiled 2 times: size 2, 3 of the value of that line at index 0"
    )
    assert again.remedy is not None
    assert again.remedy.startswith("The size does not come from the batch, so padding the batches does not help")


def test_a_size_that_depends_on_values_is_a_dynamic_shape_and_not_only_a_graph_break(probed: Probe) -> None:
    class Masked(Weighted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * self.weight
            return y[y > 0.5].sum()

    result = probed(Masked(), torch.rand(3, 4))
    (shape,) = found(result, "NST206").values()
    assert shape.op == "aten::nonzero"
    assert shape.site is not None
    assert shape.site.line == line(Masked, 2)
    assert "output shape depends on input Tensor data" in shape.message
    assert found(result, "NST204") == {}
    assert result.graph_breaks == 1


def test_over_dynamos_recompile_limit_the_function_is_said_to_run_as_plain_python(probed: Probe) -> None:
    result = probed(Linear(), run_step=lengths(*range(2, 12)), steps=10)
    (given_up,) = found(result, "NST204").values()
    assert given_up.message == (
        "Dynamo skipped forward(): it runs as plain Python, in no graph: Dynamo recompile limit exceeded. Dynamo "
        "attempted to recompile the code object too many times, exceeding the recompile_limit cache size limit "
        "(currently set to 8). Excessive recompilations can degrade performance due to the compilation overhead of "
        "each recompilation. [GB0039]"
    )
    assert result.skipped_frames == 1


def test_a_break_that_dynamo_cannot_go_on_after_has_its_reason(probed: Probe) -> None:
    class Recurrent(Weighted):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * self.weight + 1
            y = y.relu()
            out, _ = self.rnn(y)
            return out

    result = probed(Recurrent(), torch.rand(3, 2, 4))
    (broken,) = found(result, "NST204").values()
    assert "unless torch._dynamo.config.allow_rnn is set" in broken.message
    assert broken.site is not None
    assert broken.site.line == line(Recurrent, 3)
    assert result.graphs, "it went on with the switch"


def test_what_our_own_run_of_a_graph_raises_is_not_the_models_error_and_backward_is_probed_still(
    probed: Probe,
) -> None:
    device = torch.library.Library("smoketest_tests", "FRAGMENT")
    device.define("only_fake(Tensor x) -> Tensor")
    torch.library.register_fake("smoketest_tests::only_fake", torch.empty_like, lib=device)
    op = torch.ops.smoketest_tests.only_fake.default
    torch.library.register_autograd(
        "smoketest_tests::only_fake", lambda _context, gradient: torch.lgamma(gradient), lib=device
    )

    class NoKernel(Weighted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return op(x * self.weight)  # type: ignore[no-any-return]

    def step(call: Callable[..., Any], index: int) -> None:
        if isinstance(call, NoKernel):
            return  # plain eager has no trouble
        call(torch.rand(3, 4)).sum().backward()

    result = probed(NoKernel(), run_step=step)
    assert [graph.id for graph in result.graphs] == ["0.forward", "0.backward"]
    assert found(result, "NST202") == {}
    assert ("aten::lgamma", "backward") in found(result, "NST201")
    (note,) = [note for note in result.not_checked if note.what == "compiling the rest of the steps"]
    assert note.why.startswith(
        "in step 1 of 1 a captured graph cannot be run op by op on this device (NotImplementedError: "
    )


def test_what_torch_mlir_breaks_on_is_unknown_and_one_possible_finding_each(probed: Probe) -> None:
    with LoweringProcess(DOUBLE) as double:
        result = probed(Faulty(), torch.rand(3, 4), op_timeout=5.0, process=double)
        assert double.started == 3
    assert (result.ops_failed, result.ops_unknown) == (0, 2)
    findings = merge(result.observations)
    assert [(f.rule, f.op, f.grounds, f.site and f.site.line) for f in findings] == [
        ("NST201", "aten::cos", None, line(Faulty, 1)),
        ("NST201", "aten::sin", None, line(Faulty, 1)),
    ]
    assert findings[1].message == (
        "whether aten::sin lowers is not known: torch-mlir crashed on it: SIGSEGV; that is its own fault and says "
        "nothing of the op"
    )
    assert (result.operators["aten::sin"], result.operators["aten::cos"]) == ("unknown", "unknown")
    assert result.operators["aten::mul.Tensor"] == "lowers"
    notes = {note.what: note.why for note in result.not_checked}
    assert notes["whether aten::sin lowers"] == "torch-mlir crashed on it: SIGSEGV"
    assert notes["whether aten::cos lowers"] == "torch-mlir had no answer after 5 s"
    assert [(graph.id, graph.status) for graph in result.graphs] == [
        ("0.forward", "unknown"),
        ("0.backward", "lowered"),
    ]
    assert_sums_agree(result)


def test_a_graph_that_fails_in_company_only_is_possible_and_has_the_line_of_its_node(probed: Probe) -> None:
    class Company(Weighted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * self.weight
            return x.tanh()

    with LoweringProcess(DOUBLE) as double:
        result = probed(Company(), torch.rand(3, 4), process=double)
    (graph,) = found(result, "NST201").values()
    assert graph.site is not None
    assert (graph.op, graph.grounds, graph.stage, graph.site.line) == ("graph", None, "torch-backend", line(Company, 2))
    assert graph.message == (
        "the forward graph 0.forward possibly does not lower as a whole: public torch-mlir refuses it, although each "
        "of its ops lowers alone. torch-mlir: not in this company"
    )
    assert [(graph.id, graph.status) for graph in result.graphs] == [
        ("0.forward", "unknown"),
        ("0.backward", "lowered"),
    ]


class InCompany(Weighted):
    """Holds an op that does not lower alone, and three that do not lower beside others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.lgamma(x * self.weight)
        y = x @ x.T
        y = y.sum(0, keepdim=True).expand(4, 3)
        return y.flip(0).detach() * self.weight[:3]


def test_without_the_ops_that_fail_alone_all_that_fails_in_company_is_found_in_one_run(probed: Probe) -> None:
    with LoweringProcess(DOUBLE) as double:
        result = probed(InCompany(), torch.rand(3, 4), process=double)
    findings = [f for f in merge(result.observations) if f.phase == "forward"]
    assert [(f.op, f.grounds, f.site and f.site.line - line(InCompany, 0)) for f in findings] == [
        ("aten::lgamma", "cannot_lower", 1),
        ("graph", "reported", 2),
        ("graph", None, 3),
        ("graph", None, 4),
    ]
    alone, *company = [f.message for f in findings]
    assert alone.startswith("aten::lgamma does not lower (")
    whole = "the forward graph 0.forward, without the 1 of its ops that do not lower alone,"
    assert company[0] == (
        f"{whole} does not lower as a whole, although each of the rest lowers alone (reported by a port of Boltz-2 for "
        "torch-neuronx of 2026: matmul: input datatypes mismatched; failed to legalize operation 'torch.aten.mm'). "
        "torch-mlir: matmul: input datatypes mismatched"
    )
    assert company[1] == (
        f"{whole} possibly does not lower as a whole: public torch-mlir refuses it, although each of the rest lowers "
        "alone. torch-mlir: 'stablehlo.broadcast_in_dim' op result #0 must be statically shaped, but got "
        "'tensor<?x4xf32>'"
    )
    assert "failed to legalize operation 'torch.constant.int'" in company[2]
    assert (result.graphs[0].status, result.graphs[0].failed, result.graphs[0].unknown) == ("failed", 1, 3)
    outcomes = ("aten::lgamma", "aten::mm", "aten::expand", "aten::flip", "aten::mul.Tensor")
    assert [result.operators[op] for op in outcomes] == ["fails", "unknown", "unknown", "unknown", "lowers"]
    assert_sums_agree(result)


def test_a_product_of_mixed_dtypes_is_denied_as_users_reported_it(probed: Probe) -> None:
    class Mixed(Weighted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * self.weight
            return y @ y.T.bfloat16()

    def step(call: Callable[..., Any], index: int) -> None:
        if not isinstance(call, Mixed):  # plain CPU takes no such product, where the device's eager mode does
            call(torch.rand(3, 4)).sum().backward()

    result = probed(Mixed(), run_step=step)
    finding = found(result, "NST201")["aten::mm", "forward"]
    assert (finding.grounds, finding.site and finding.site.line) == ("reported", line(Mixed, 2))
    assert "torch-mlir: matmul: input datatypes mismatched" in finding.message


def test_a_graph_without_a_result_possibly_does_not_lower(probed: Probe) -> None:
    class Nothing(Weighted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._assert_async((x > 0).all())
            torch._dynamo.graph_break()
            return x * self.weight

    result = probed(Nothing(), torch.rand(3, 4) + 1)
    empty = found(result, "NST201")["graph", "forward"]
    assert empty.site is not None
    assert (empty.grounds, empty.site.line) == (None, line(Nothing, 1))
    assert [graph.nodes for graph in result.graphs] == [0, 1, 3]
    assert empty.message == (
        "the forward graph 0.forward gives no tensor and possibly does not lower: a pre-release of April 2026 says of "
        "such a graph: No outputs found in the module, expected at least one output"
    )


def test_ten_failing_ops_are_ten_findings_of_one_run(probed: Probe) -> None:
    class Ten(Weighted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = (x * self.weight).detach() + 1
            y = torch.lgamma(y)
            y = torch.digamma(y)
            y = torch.special.i0(y)
            y = torch.special.i1(y)
            y = torch.special.i0e(y)
            y = torch.special.i1e(y)
            y = torch.erfc(y)
            y = torch.special.log_ndtr(y)
            y = torch.special.erfcx(y)
            y = torch.hypot(y, x)
            return y.sum() + self.weight.sum()

    findings = found(probed(Ten(), torch.rand(3, 4)), "NST201")
    assert len(findings) == 10
    assert {f.site.line for f in findings.values() if f.site} == set(range(line(Ten, 2), line(Ten, 12)))
    assert {f.grounds for f in findings.values()} == {"cannot_lower"}


class ManyFine(Weighted):
    """Some of the hundreds of ops that lower: `python -m tests.probe.sweep_models` takes them all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.weight
        y = [
            x.sin(), x.cos(), x.exp(), x.abs().log(), x.sqrt(), x.rsqrt(), x.sigmoid(), x.tanh(), x.relu(), x.neg(),
            x.reciprocal(), x.erf(), x.floor(), x.ceil(), x.sign(), x.square(), x.pow(3.0), x.clamp(0.1, 0.9),
            x.cumsum(1), x.softmax(1), x.log_softmax(0), x.triu(), x.tril(), x.flip(1), x.roll(1, 1), x.maximum(x + 1),
            x.minimum(x + 1), x.atan2(x + 1), x.where(x > 0.5, 2 * x), x.masked_fill(x > 0.5, 0.0),
            nn.functional.gelu(x), nn.functional.silu(x), nn.functional.softplus(x), nn.functional.leaky_relu(x),
            nn.functional.layer_norm(x, (4,)), x.expm1(), x.log1p(), x.lerp(x + 1, 0.5), x.addcmul(x, x),
        ]  # fmt: skip
        z = torch.stack(y).mean(0) + x.amax(1, keepdim=True) + x.sum(0) + x.var(1, keepdim=True) + x.norm()
        return torch.cat([z, z.unsqueeze(0).squeeze(0)], 1).permute(1, 0).reshape(-1)[2:9]


class Dispatched(TorchDispatchMode):
    """The functional overloads that eager mode dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(functional_overload(op.name()))
        return op(*args, **(kwargs or {}))


def test_ops_that_lower_are_no_finding_and_stand_in_the_table_under_the_names_of_eager_mode(probed: Probe) -> None:
    model, x = ManyFine(), torch.rand(3, 4) + 0.1
    result = probed(model, x)
    with Dispatched() as eager:
        model(x).sum().backward()
    assert (
        eager.names - {"aten::ones_like"} == result.operators.keys()
    )  # backward begins with ones, outside of the model
    assert [f.message for f in merge(result.observations)] == []
    assert len(result.operators) > 50
    assert set(result.operators.values()) <= {"lowers", "decomposed"}


def test_progress_is_told(probed: Probe) -> None:
    told: list[tuple[str, int, int]] = []
    probed(Linear(), torch.rand(3, 4), on_progress=lambda *what: told.append(what))
    assert told[:2] == [("capture", 0, 1), ("capture", 1, 1)]
    lower = [entry for entry in told if entry[0] == "lower"]
    assert [done for _, done, _ in lower] == list(range(lower[0][2] + 1))
    assert told[-1] == ("lower whole graphs", 2, 2)


def test_a_torch_mlir_that_cannot_be_used_skips_the_lowering_and_says_so(probed: Probe) -> None:
    with LoweringProcess((sys.executable, "-c", "raise SystemExit(7)")) as broken:
        result = probed(Linear(), torch.rand(3, 4), process=broken)
    assert result.lowering_skipped == (
        "the installed torch-mlir cannot be used: the lowering process does not start (exit status 7)"
    )
    assert {graph.status for graph in result.graphs} == {"not_reached"}


def test_without_torch_mlir_the_graph_breaks_are_still_listed(probed: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = 'torch-mlir is not installed: pip install ".[lowering]" in a clone of smoketest'
    monkeypatch.setattr(probe_module, "missing_reason", lambda: reason)
    result = probed(Branching(), torch.rand(3, 4), process=None)
    assert result.lowering_skipped == reason
    assert result.not_checked[0].what == "lowering"
    assert set(found(result, "NST204")) == {(None, "forward")}
    linear = probed(Linear(), torch.rand(3, 4), process=None)
    assert {graph.status for graph in linear.graphs} == {"not_reached"}
    assert (linear.ops_probed, linear.observations) == (0, ())


class Penalized(nn.Module):
    """A GAN in small: its step calls the two networks alone, and differentiates the gradient of one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.G = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh())
        self.D = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def test_what_only_torch_compile_raises_in_a_step_that_calls_two_networks_is_denied_with_its_text(
    probed: Probe,
) -> None:
    model = Penalized()

    def step(_: Callable[..., Any], index: int) -> None:
        real = torch.rand(3, 4, requires_grad=True)
        (slope,) = torch.autograd.grad(model.D(real).sum(), real, create_graph=True)
        (model.D(model.G(torch.rand(3, 4))).mean() + slope.square().mean()).backward()

    result = probed(model, run_step=step, steps=2)
    refused = found(result, "NST202")[None, "backward"]
    assert (refused.site and refused.site.line) == step.__code__.co_firstlineno + 2
    text = "RuntimeError: torch.compile with aot_autograd does not currently support double backward"
    assert refused.message == f"torch.compile raises {text}"
    assert "call `net` for the penalty and `compiled` for the rest" in refused.remedy
    assert result.failed is None
    (why,) = [note.why for note in result.not_checked if note.what == "compiling the rest of the steps"]
    assert why == f"in step 1 of 2 torch.compile raised {text}; without torch.compile the same step runs"


def test_a_first_step_that_raises_without_torch_compile_too_fails_the_probe_with_both_texts(probed: Probe) -> None:
    runs = [0]

    def step(call: Callable[..., Any], index: int) -> None:
        call(torch.rand(3, 4)).sum().backward()
        runs[0] += 1
        raise ValueError(f"no such label, run {runs[0]}")

    result = probed(Gamma(), run_step=step)
    assert result.failed == (
        "in step 1 of 1 the model's own code raised ValueError: no such label, run 1; run without torch.compile it "
        "raised ValueError: no such label, run 2"
    )
    assert ("aten::lgamma", "forward") in found(result, "NST201")


def test_a_function_that_the_user_compiles_is_not_compiled_where_the_step_is_run_without(probed: Probe) -> None:
    tanh = torch.compile(torch.tanh, backend="aot_eager")

    def step(call: Callable[..., Any], index: int) -> None:
        x = torch.rand(3, 4, requires_grad=True)
        (slope,) = torch.autograd.grad(tanh(call(x)).sum(), x, create_graph=True)
        slope.square().sum().backward()

    assert (None, "backward") in found(probed(Linear(), run_step=step), "NST202")


class Halved(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return torch.cdist(x, x)


class TwoSizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.halves = nn.ModuleList([Halved(), Halved()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.weight
        with torch.no_grad():
            first = self.halves[0](x)
            second = self.halves[1](x[:, :2])
        if x.sum() > 20:
            return x.lgamma().sum() + first.sum()
        return x.sum() + second.sum()


def test_counts_are_the_calls_of_a_step_and_none_is_given_of_a_branch_that_the_last_one_did_not_take(
    probed: Probe,
) -> None:
    def step(call: Callable[..., Any], index: int) -> None:
        call(torch.full((2, 3, 4), 2.0 - index)).backward()

    result = probed(TwoSizes(), run_step=step, steps=3)
    findings = {finding.op: finding for finding in result.findings if finding.rule == "NST201"}
    distance = findings["aten::_cdist_forward"]
    assert (distance.calls_per_step, distance.exact) == (2, True)
    assert {calls.pattern: calls.calls for calls in distance.modules} == {"halves.*": 2}
    assert (findings["aten::lgamma"].calls_per_step, findings["aten::lgamma"].exact) == (None, None)
    assert all(finding.exact is None for finding in result.findings if finding.rule in ("NST204", "NST205"))


class Recurrent(Weighted):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen, _ = self.cells(x * self.weight)
        return torch.lgamma(seen.square() + 1)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_recurrent_module_does_not_hide_what_comes_after_it_and_the_switch_is_named(
    probed: Probe, fullgraph: bool
) -> None:
    result = probed(Recurrent(), torch.rand(3, 2, 4), fullgraph=fullgraph)
    assert ("aten::lgamma", "forward") in found(result, "NST201")
    assert (result.skipped_frames, result.graph_breaks) == (0, 0)
    (given_up,) = found(result, "NST204").values()
    assert (given_up.site and given_up.site.line) == line(Recurrent, 1)
    assert "The probe went on with allow_rnn = True" in given_up.message
    assert (given_up.remedy or "").startswith("Set `torch._dynamo.config.allow_rnn = True` before the first call")
    assert "the graphs with torch._dynamo.config.allow_rnn as it was set" in {note.what for note in result.not_checked}
    assert torch._dynamo.config.allow_rnn is False
