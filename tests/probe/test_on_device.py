"""The compiled step on a device: failing graphs are found and named, slow ones timed, wrong ones seen.

On plain CPU, with a backend that a test makes misbehave: it works in the background, so that its errors are told when
somebody waits for the device. With doubles of torch-neuronx: test_on_device_doubles.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd

from smoketest.findings import SitePolicy, merge
from smoketest.findings.report import Finding
from smoketest.probe.compat import boxed
from smoketest.probe.compiler_errors import read_failure
from smoketest.probe.on_device import DeviceRun, run_on_device
from smoketest.probe.terminal import overheard

REJECTED = (
    "Compilation error occurred on Neuron for operation=torch_compile;\n"
    'error message="COMPILATION FAILED: StableHLO to NEFF compilation failed for torch.compile: Command failed '
    "(neuronx-cc compilation) with exit code 70: 2026-10-20T08:11:02Z Compilation began\n"
    '2026-10-20T08:11:09Z [ERROR] [NCC_EOOM001] Maximum peak HBM usage of 32.00GB exceeds 24.00GB"\n'
    "python stack trace=\n"
)
Wrong = Callable[[int, str, Sequence[Any]], Sequence[Any]]


@dataclass
class Compiler:
    """A backend that does what a test says to each graph, told by number and kind.

    Attributes:
        refusing: raises while a graph is compiled.
        running: given the results of a graph.
        pending: errors of work in the background, told when it is waited for.
    """

    refusing: Callable[[int, str], None] = lambda number, kind: None
    running: Wrong = lambda number, kind, results: results
    pending: list[str] = field(default_factory=list)
    count: int = 0

    def __call__(self, graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        number, self.count = self.count, self.count + 1

        def compile_as(kind: str) -> Callable[..., Any]:
            def compiler(made: fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
                self.refusing(number, kind)
                run = boxed(made, lambda error: None)

                def forward(args: list[Any]) -> Any:
                    return self.running(number, kind, run(args))

                forward._boxed_call = True  # type: ignore[attr-defined]
                return forward

            return compiler

        made: Callable[..., Any] = aot_autograd(fw_compiler=compile_as("forward"), bw_compiler=compile_as("backward"))(
            graph, inputs
        )
        return made

    def synchronize(self) -> None:
        if self.pending:
            raise RuntimeError(self.pending.pop(0))


class Two(nn.Module):
    """Two graphs, of a linear map each."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.drop, self.second = nn.Linear(4, 4), nn.Dropout(dropout), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.first(x).tanh())
        torch._dynamo.graph_break()
        return self.second(x)  # type: ignore[no-any-return]


@pytest.fixture
def run() -> Callable[..., DeviceRun]:
    def run(compiler: Compiler, model: nn.Module | None = None, **options: Any) -> DeviceRun:
        torch.manual_seed(0)
        made = model or Two()

        def step(call: Callable[..., Any], index: int) -> None:
            call(torch.ones(3 + index, 4)).square().sum().backward()

        return run_on_device(
            made, step, backend=compiler, synchronize=compiler.synchronize,
            site_policy=SitePolicy(Path(__file__).parent), **options,
        )  # fmt: skip

    return run


def told(ran: DeviceRun) -> list[tuple[str, str | None, str | None]]:
    return [(f.rule, f.phase, f.site.code if f.site else None) for f in merge(ran.observations)]


def only(ran: DeviceRun) -> Finding:
    (finding,) = merge(ran.observations)
    return finding


FIRST, SECOND = "x = self.drop(self.first(x).tanh())", "return self.second(x)  # type: ignore[no-any-return]"


def test_a_healthy_step_gives_times_for_each_graph_and_no_finding(run: Callable[..., DeviceRun]) -> None:
    ran = run(Compiler())
    assert [graph.id for graph in ran.graphs] == ["0.forward", "0.backward", "1.forward", "1.backward"]
    assert all(graph.first_ms and graph.steady_ms for graph in ran.graphs)
    assert (ran.observations, ran.not_checked, ran.all_ran) == ((), (), True)
    assert ran.compared == 5, "the output and four gradients"


def test_a_slow_first_compilation_is_in_the_first_time_and_not_in_the_steady_one(run: Callable[..., DeviceRun]) -> None:
    def slow(number: int, kind: str) -> None:
        if (number, kind) == (1, "forward"):
            time.sleep(2)

    ran = run(Compiler(refusing=slow))
    first = {graph.id: graph.first_ms or 0 for graph in ran.graphs}
    assert first["1.forward"] > 2000
    assert all(graph.steady_ms is not None and graph.steady_ms < 2000 for graph in ran.graphs)


@pytest.mark.parametrize("kind", ["forward", "backward"])
def test_a_graph_the_compiler_refuses_is_named_with_code_exit_code_and_last_line(
    kind: str, run: Callable[..., DeviceRun]
) -> None:
    def refuse(number: int, of: str) -> None:
        if (number, of) == (1, kind):
            raise RuntimeError(REJECTED)

    ran = run(Compiler(refusing=refuse))
    finding = only(ran)
    assert (finding.rule, finding.phase, finding.op, finding.grounds) == ("NST203", kind, "graph", "measured")
    assert finding.site is not None
    assert finding.site.code == SECOND
    assert [module.pattern for module in finding.modules] == ["second"]
    assert finding.message == (
        f"graph 1.{kind} is rejected by the Neuron compiler [NCC_EOOM001] (exit code 70): "
        "2026-10-20T08:11:09Z [ERROR] [NCC_EOOM001] Maximum peak HBM usage of 32.00GB exceeds 24.00GB"
    )
    assert finding.remedy == "Use a smaller batch or sequence, activation checkpointing, or tensor parallelism."
    failed = {graph.id for graph in ran.graphs if graph.failed}
    assert failed == {f"1.{kind}"}
    assert not ran.all_ran


@pytest.mark.parametrize(
    ("number", "kind", "line"), [(0, "forward", FIRST), (0, "backward", FIRST), (1, "backward", SECOND)]
)
def test_an_error_that_is_told_late_is_pinned_to_the_graph_that_caused_it(
    number: int, kind: str, line: str, run: Callable[..., DeviceRun]
) -> None:
    compiler = Compiler()

    def late(at: int, of: str, results: Sequence[Any]) -> Sequence[Any]:
        if (at, of) == (number, kind) and compiler.count < 3:
            compiler.count = 3  # once
            compiler.pending.append(REJECTED)
        return results

    compiler.running = late
    finding = only(run(compiler))
    assert (finding.rule, finding.phase, finding.site and finding.site.code) == ("NST203", kind, line)
    assert finding.message.startswith(f"graph {number}.{kind} ")


def test_every_failing_graph_is_found_in_one_run(run: Callable[..., DeviceRun]) -> None:
    def refuse(number: int, kind: str) -> None:
        if (number, kind) in ((0, "backward"), (1, "forward")):
            raise RuntimeError(REJECTED)

    assert told(run(Compiler(refusing=refuse))) == [("NST203", "backward", FIRST), ("NST203", "forward", SECOND)]


def test_an_error_of_before_the_graph_is_not_blamed_on_it(run: Callable[..., DeviceRun]) -> None:
    """Work that was given to the device earlier fails: it is told before the first graph begins."""
    compiler = Compiler()

    class Eager(Two):
        def forward(self, x: Tensor) -> Tensor:
            torch._dynamo.graph_break()
            _fail_in_the_background(compiler)
            return super().forward(x)

    ran = run(compiler, Eager())
    assert ran.observations == ()
    assert [note.what for note in ran.not_checked] == [
        "the rest of the compiled step",
        "whether the compiled step gives what the eager one gives",
    ]
    assert "NRT Execution error occurred on Neuron for operation=aten::add.out" in ran.not_checked[0].why


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _fail_in_the_background(compiler: Compiler) -> None:
    compiler.pending.append('NRT Execution error occurred on Neuron for operation=aten::add.out;\nerror message="x"')


@pytest.mark.parametrize(
    ("number", "kind", "phase", "line"), [(1, "forward", "forward", SECOND), (0, "backward", "backward", None)]
)
def test_a_wrong_result_is_seen(
    number: int, kind: str, phase: str, line: str | None, run: Callable[..., DeviceRun]
) -> None:
    def wrong(at: int, of: str, results: Sequence[Any]) -> Sequence[Any]:
        off = (at, of) == (number, kind)
        return [r * 1.01 if off and isinstance(r, Tensor) and r.is_floating_point() else r for r in results]

    finding = only(run(Compiler(running=wrong)))
    assert (finding.rule, finding.class_, finding.phase) == ("NST208", "parity", phase)
    assert (finding.site.code if finding.site else None) == line
    assert "differs from the eager one by 0.01 of its size, where 0.0001 is tolerated" in finding.message


def test_rounding_is_not_taken_for_a_wrong_result(run: Callable[..., DeviceRun]) -> None:
    def rounded(at: int, of: str, results: Sequence[Any]) -> Sequence[Any]:
        return [
            r * (1 + 2e-6 * torch.randn(r.shape)) if isinstance(r, Tensor) and r.is_floating_point() else r
            for r in results
        ]

    assert run(Compiler(running=rounded)).observations == ()


class Cancelling(Two):
    """The gradient of `shift` is nought, made of numbers that are not: any other order of summation changes it."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward((x + self.shift * 3).softmax(-1) * x)


@pytest.mark.parametrize(("off", "rules"), [(2e-6, []), (1e-2, ["NST208"])])
def test_a_gradient_that_cancels_may_differ_and_a_wrong_result_beside_it_is_seen(
    off: float, rules: list[str], run: Callable[..., DeviceRun]
) -> None:
    def inexact(at: int, of: str, results: Sequence[Any]) -> Sequence[Any]:
        torch.manual_seed(5)
        return [
            r * (1 + off * torch.randn(r.shape)) if isinstance(r, Tensor) and r.is_floating_point() else r
            for r in results
        ]

    assert [finding.rule for finding in merge(run(Compiler(running=inexact), Cancelling()).observations)] == rules


class Drawing(Compiler):
    """Draws from the generator before each graph: compiled dropout then has another mask than eager dropout."""

    def synchronize(self) -> None:
        super().synchronize()
        torch.rand(3)


def test_other_random_numbers_are_not_taken_for_a_wrong_result_and_without_dropout_it_is_compared(
    run: Callable[..., DeviceRun],
) -> None:
    ran = run(Drawing(), Two(dropout=0.5).train())
    assert ran.observations == ()
    assert ran.not_checked == ()
    assert ran.compared == 5

    def wrong(at: int, of: str, results: Sequence[Any]) -> Sequence[Any]:
        return [r * 1.01 if isinstance(r, Tensor) and r.is_floating_point() else r for r in results]

    assert only(run(Drawing(running=wrong), Two(dropout=0.5).train())).rule == "NST208"


def test_a_model_that_draws_numbers_itself_is_not_compared_where_they_differ(run: Callable[..., DeviceRun]) -> None:
    class Noisy(Two):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + torch.randn(x.shape))

    ran = run(Drawing(), Noisy())
    assert ran.observations == ()
    assert [note.why for note in ran.not_checked] == [
        "the step draws random numbers, and compiled code may draw others than eager code"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Neuron backend NEFF execution setup failed with unexpected error: "
            "Failed Torch-MLIR Neuron partial lowering from TorchFX IR -> StableHLO IR:\n"
            "loc(\"{file}\":{line}:0): error: failed to legalize operation 'torch.operator' that was explicitly marked "
            'illegal\nnote: see current operation: "torch.operator" <{{name = "torch.aten.lgamma"}}>',
            ("NST201", "aten::lgamma", "imported"),
        ),
        (
            "Failed Torch-MLIR Lowering Torch Backend IR -> StableHLO IR:\n"
            "loc(\"{file}\":{line}:0): error: failed to legalize operation 'torch.aten.mm'",
            ("NST201", "aten::mm", "torch-backend"),
        ),
        (
            "Higher-order operation 'cond' not implemented in the FxImporter (tried '_import_hop_cond')",
            ("NST202", "cond", "captured"),
        ),
        ("[NCC_EMOD025] Dynamic shape is not supported: instruction 'parameter'", ("NST206", None, "captured")),
        ("NRT Execution error occurred on Neuron for operation=torch_compile", ("NST203", None, "compiled")),
    ],
)
def test_what_the_device_says_is_read_as_the_rule_it_falls_under(
    text: str, expected: tuple[str, str | None, str]
) -> None:
    failure = read_failure(text.format(file="model.py", line=88))
    assert failure is not None
    assert (failure.rule, failure.op, failure.stage) == expected
    assert failure.place == (("model.py", 88) if "loc(" in text else None)


def test_an_exception_of_the_users_own_is_none_of_the_compilers() -> None:
    assert read_failure("ValueError: 3 is not a valid number of heads") is None


def test_the_line_that_the_compiler_names_is_the_findings(run: Callable[..., DeviceRun]) -> None:
    def refuse(number: int, kind: str) -> None:
        if (number, kind) == (0, "forward"):
            place = f'loc("{__file__}":{_line_of_second()}:0)'
            raise RuntimeError(
                f"Failed Torch-MLIR stage:\n{place}: error: failed to legalize operation 'torch.aten.mm'"
            )

    class Whole(Two):
        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x))  # type: ignore[no-any-return]

    finding = only(run(Compiler(refusing=refuse), Whole()))
    assert (finding.rule, finding.op, finding.grounds) == ("NST201", "aten::mm", "measured")
    assert finding.site is not None
    assert finding.site.code == SECOND_OF_WHOLE


SECOND_OF_WHOLE = "return self.second(self.first(x))  # type: ignore[no-any-return]"


def _line_of_second() -> int:
    return next(
        n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.strip() == SECOND_OF_WHOLE
    )


def test_a_code_that_only_the_compilers_process_prints_is_heard(
    run: Callable[..., DeviceRun], capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(number: int, kind: str) -> None:
        if (number, kind) == (0, "forward"):
            program = "import sys; sys.stderr.write('[ERROR] [NCC_EVRF013] topk on int64 is not supported\\n')"
            subprocess.run([sys.executable, "-c", program], check=True)
            raise RuntimeError('COMPILATION FAILED: Command failed (neuronx-cc compilation) with exit code 70: "')

    finding = only(run(Compiler(refusing=refuse)))
    assert "[NCC_EVRF013] (exit code 70): [ERROR] [NCC_EVRF013] topk on int64 is not supported" in finding.message
    assert "topk on int64" in capfd.readouterr().err, "and it is passed on"


def test_what_is_written_is_heard_however_late_the_listener_comes_to_read_it() -> None:
    with overheard() as heard:
        for number in range(300):
            os.write(2, f"line {number}\n".encode())
            assert heard.text().endswith(f"line {number}\n")


def test_the_model_and_the_random_state_are_left_as_they_were(run: Callable[..., DeviceRun]) -> None:
    model = Two(dropout=0.5)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(0)
    state = torch.get_rng_state()
    run(Compiler(), model, steps=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.drop.p == 0.5
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_each_shape_is_a_graph_with_times_of_its_own(run: Callable[..., DeviceRun]) -> None:
    ran = run(Compiler(), steps=2)
    assert [graph.id for graph in ran.graphs if graph.direction == "forward"] == [
        "0.forward", "1.forward", "2.forward", "3.forward",
    ]  # fmt: skip


def test_it_is_told_which_graph_is_at_work_before_the_process_may_die_of_it(run: Callable[..., DeviceRun]) -> None:
    where: list[str] = []
    run(Compiler(), entering=where.append)
    graphs = ["0.forward", "1.forward", "1.backward", "0.backward"]
    assert list(dict.fromkeys(where)) == [f"compiled graph {graph}" for graph in graphs]
